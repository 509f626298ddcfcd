// The driver fails in each way that it can (fault_layer.cpp): every call says so with its status, what can go on goes on, and nothing hangs.
#include "conformance/side.hpp"
#include "support/driver_fault_runs.hpp"

#include <cstdlib>

using namespace keel;
using namespace keel::conformance;
using namespace keel::test;

namespace {

const FailingDriver driver = {"opencl",
                              {"OPENCL_LAYERS=" KEEL_FAULT_LAYER, "POCL_CACHE_DIR=" KEEL_POCL_CACHE,
                               "XDG_CACHE_HOME=" KEEL_BINARY_DIR "/cache"},
                              "clFlush",
                              -2, // CL_DEVICE_NOT_AVAILABLE
                              -4, // CL_MEM_OBJECT_ALLOCATION_FAILURE
                              "clCreateBuffer",
                              "clGetDeviceIDs",
                              "clBuildProgram",
                              -11,                 // CL_BUILD_PROGRAM_FAILURE
                              "{kernels: plain}"}; // measuring both forms compiles for a minute

struct Environment { // before the loader is first asked
    Environment() {
        for (const std::string &pair : driver.environment)
            setenv(pair.substr(0, pair.find('=')).c_str(), pair.substr(pair.find('=') + 1).c_str(), 1);
    }
};
const Environment environment;

// The next calls fail so; "": none does.
void fail(const std::string &what) {
    setenv("KEEL_DRIVER_FAULT", what.c_str(), 1);
}

const Library &library() {
    static const Library plugin(KEEL_OPENCL_PLUGIN);
    return plugin;
}

uint32_t device_count() {
    TestHost host;
    uint32_t n = 0;
    CHECK(library().table().device_count(host.table(), &n) == KEEL_OK);
    return n;
}

// One device with a buffer of one number.
struct Rig {
    Side side;
    keel_buffer *buffer = nullptr;
    keel_tensor t = {};

    explicit Rig(Params params = {}) : side(library(), (params["kernels"] = "plain", params)) {
        const float one = 1;
        buffer = side.upload(&one, 4);
        t.h = KEEL_HEADER(keel_tensor);
        t.buffer = buffer;
        t.dtype = KEEL_DTYPE_F32;
        t.rank = t.shape[0] = 1;
    }
    ~Rig() {
        fail("");
        side.destroy(buffer);
    }
    keel_status doubles() { // value *= 2
        keel_elementwise_args a = {};
        a.h = KEEL_HEADER(keel_elementwise_args);
        a.a = a.b = a.out = &t;
        return side.table().add(side.ctx(), &a);
    }
    keel_status read(float &value) { return side.table().buffer_read(side.ctx(), buffer, 0, &value, 4); }
    keel_status create(uint64_t bytes, keel_buffer **out) {
        keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
        desc.size = bytes;
        return side.table().buffer_create(side.ctx(), &desc, out);
    }
};

bool no_device() {
    fail("");
    if (device_count() != 0) return false;
    WARN("no OpenCL device here");
    return true;
}

} // namespace

TEST_CASE("no platform, or a platform without devices: there is no device") {
    if (no_device()) return;
    for (const char *what : {"clGetPlatformIDs 1+ -1001", "clGetDeviceIDs 1+ -1", "clGetDeviceIDs 1+ 0"}) {
        fail(what);
        CHECK(device_count() == 0);
    }
    fail("");
}

TEST_CASE("a device that does not open is named") {
    if (no_device()) return;
    fail("clCreateContext 1 -6"); // CL_OUT_OF_HOST_MEMORY
    try {
        const Side side(library(), {});
        FAIL("it opened");
    } catch (const Unusable &unusable) {
        CHECK(holds(unusable.why, "CL_OUT_OF_HOST_MEMORY"));
    }
    fail("");
    CHECK(Rig().doubles() == KEEL_OK);
}

TEST_CASE("memory that is not there is refused with its size, and the context goes on") {
    if (no_device()) return;
    Rig rig;
    const uint64_t held = rig.side.bytes_held();
    keel_buffer *buffer = nullptr;
    for (const char *code : {"-4", "-5", "-6"}) { // allocation failure, out of resources, out of host memory
        fail("clCreateBuffer 1 " + std::string(code));
        CHECK(rig.create(100u << 20, &buffer) == KEEL_E_OUT_OF_MEMORY);
        CHECK(buffer == nullptr);
        CHECK(holds(rig.side.error(), "104857600 bytes"));
        CHECK(rig.side.bytes_held() == held);
    }
    REQUIRE(rig.create(100u << 20, &buffer) == KEEL_OK);
    rig.side.destroy(buffer);
    float value = 0;
    CHECK(rig.doubles() == KEEL_OK);
    CHECK(rig.read(value) == KEEL_OK);
    CHECK(value == 2);
}

TEST_CASE("a kernel that does not build is named with its options, and may build the next time") {
    if (no_device()) return;
    Rig rig(Params{{"cache", "off"}});
    fail("clBuildProgram 1 -11");
    CHECK(rig.doubles() == KEEL_E_INTERNAL);
    CHECK(holds(rig.side.error(), "elementwise.cl does not build"));
    fail("clCreateKernel 1 -46"); // CL_INVALID_KERNEL_NAME
    CHECK(rig.doubles() == KEEL_E_INTERNAL);
    CHECK(holds(rig.side.error(), "combine"));
    fail("");
    CHECK(rig.doubles() == KEEL_OK);
}

TEST_CASE("a lost device is lost in every call that waits, and its context closes") {
    if (no_device()) return;
    for (const char *what : {"clEnqueueNDRangeKernel 1 -2", "clFlush 1 -2", "clFlush 1 -36",
                             "clGetEventInfo 1 -5", "clGetEventInfo 1 -14", "clEnqueueReadBuffer 1 -2",
                             "clEnqueueReadBuffer 1 -5", "clEnqueueReadBuffer 1 -9999"}) {
        INFO(what);
        Rig rig;
        float value = 0;
        REQUIRE(rig.doubles() == KEEL_OK);
        REQUIRE(rig.read(value) == KEEL_OK);
        fail(what);
        keel_status status = rig.doubles();
        uint64_t ticket = 0;
        if (status == KEEL_OK) status = rig.side.table().flush(rig.side.ctx(), &ticket);
        if (status == KEEL_OK) status = rig.side.table().wait(rig.side.ctx(), ticket);
        if (status == KEEL_OK) status = rig.read(value);
        CHECK(status == KEEL_E_DEVICE_LOST);
        CHECK_FALSE(rig.side.error().empty());
    }
}

TEST_CASE("a run that loses its device says so, and goes on where another backend stands by") {
    if (no_device()) return;
    check_device_lost(driver);
}

TEST_CASE("a run without a device, without memory, without a kernel ends with an error that says so") {
    if (no_device()) return;
    check_refusals(driver);
}
