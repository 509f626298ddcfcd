// The driver fails in each way that it can (fault_layer.cpp): every call says so with its status, what can go on goes on, and nothing hangs.
#include "conformance/side.hpp"
#include "support/driver_fault_runs.hpp"

#include <cstdlib>

using namespace keel;
using namespace keel::conformance;
using namespace keel::test;

namespace {

const FailingDriver driver = {"vulkan",
                              {"VK_LAYER_PATH=" KEEL_FAULT_LAYERS, "VK_INSTANCE_LAYERS=VK_LAYER_KEEL_fault",
                               "NODEVICE_SELECT=1", // Mesa's own layer does not bear a driver without devices
                               "XDG_CACHE_HOME=" KEEL_BINARY_DIR "/cache"},
                              "vkQueueSubmit",
                              -4, // VK_ERROR_DEVICE_LOST
                              -2, // VK_ERROR_OUT_OF_DEVICE_MEMORY
                              "vkAllocateMemory",
                              "vkEnumeratePhysicalDevices",
                              "vkCreateComputePipelines",
                              -13}; // VK_ERROR_UNKNOWN

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
    static const Library plugin(KEEL_VULKAN_PLUGIN);
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

    explicit Rig(const Params &params = {}) : side(library(), params) {
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
    keel_status plan() {
        keel_elementwise_args a = {};
        a.h = KEEL_HEADER(keel_elementwise_args);
        a.a = a.b = a.out = &t;
        keel_plan *plan = nullptr;
        const keel_status status =
            side.table().op_plan(side.ctx(), KEEL_OP_ADD, reinterpret_cast<const keel_op_args *>(&a), &plan);
        side.table().plan_destroy(side.ctx(), plan);
        return status;
    }
    keel_status read(float &value) { return side.table().buffer_read(side.ctx(), buffer, 0, &value, 4); }
    keel_status create(uint64_t bytes, keel_buffer **out) {
        keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
        desc.size = bytes;
        return side.table().buffer_create(side.ctx(), &desc, out);
    }
    // Every call says that the device is lost, at once.
    void check_lost() {
        float value = 0;
        uint64_t ticket = 0;
        keel_buffer *none = nullptr;
        CHECK(doubles() == KEEL_E_DEVICE_LOST);
        CHECK(read(value) == KEEL_E_DEVICE_LOST);
        CHECK(side.table().buffer_write(side.ctx(), buffer, 0, &value, 4) == KEEL_E_DEVICE_LOST);
        CHECK(side.table().flush(side.ctx(), &ticket) == KEEL_E_DEVICE_LOST);
        CHECK(side.table().wait(side.ctx(), 1) == KEEL_E_DEVICE_LOST);
        CHECK(side.table().poll(side.ctx(), 1) == KEEL_E_DEVICE_LOST);
        if (create(4096, &none) == KEEL_OK) side.destroy(none); // memory may still be had; it is of no use
    }
};

bool no_device() {
    fail("");
    if (device_count() != 0) return false;
    WARN("no Vulkan device here");
    return true;
}

} // namespace

TEST_CASE("a driver without devices, or one that cannot list them, has none") {
    if (no_device()) return;
    for (const char *what : {"vkEnumeratePhysicalDevices 1+ 0", "vkEnumeratePhysicalDevices 1+ -3"}) {
        fail(what);
        CHECK(device_count() == 0);
    }
    fail("vkCreateInstance 1+ -9"); // VK_ERROR_INCOMPATIBLE_DRIVER: no driver starts
    CHECK(device_count() == 0);
    fail("");
}

TEST_CASE("a device that does not open says which call failed") {
    if (no_device()) return;
    for (const char *what : {"vkCreateDevice 1 -3", "vkCreateDevice 1 -2"}) {
        fail(what);
        try {
            const Side side(library(), {});
            FAIL("it opened");
        } catch (const Unusable &unusable) {
            CHECK(holds(unusable.why, "vkCreateDevice"));
        }
    }
    fail("");
    CHECK(Rig().doubles() == KEEL_OK);
}

TEST_CASE("memory that is not there is refused with its size, and the context goes on") {
    if (no_device()) return;
    Rig rig;
    const uint64_t held = rig.side.bytes_held();
    keel_buffer *buffer = nullptr;
    for (const char *code : {"-1", "-2", "-10"}) { // no host memory, no device memory, too many objects
        fail("vkAllocateMemory 1 " + std::string(code));
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

TEST_CASE("what is beyond the driver's limit is refused by its name, buffers and weights alike") {
    if (no_device()) return;
    setenv("KEEL_DRIVER_LIMIT", "16777216", 1);
    Rig rig;
    unsetenv("KEEL_DRIVER_LIMIT");
    CHECK(rig.side.info().max_buffer_bytes == 16u << 20);
    keel_buffer *buffer = nullptr;
    CHECK(rig.create((16u << 20) + 1, &buffer) == KEEL_E_OUT_OF_MEMORY);
    CHECK(holds(rig.side.error(), "maxMemoryAllocationSize"));
    const std::vector<float> rows(5u << 20);
    keel_weight_source source = {KEEL_HEADER(keel_weight_source)};
    source.mapping = rows.data();
    source.mapping_bytes = 4 * rows.size();
    source.dtype = KEEL_DTYPE_F32;
    source.rows = 5 << 10;
    source.cols = 1 << 10;
    const keel_weight_source *sources[] = {&source, &source};
    keel_weight_desc desc = {KEEL_HEADER(keel_weight_desc)};
    desc.sources = sources;
    desc.n_sources = 2; // joined: they cannot be used in place
    desc.use = KEEL_USE_MATMUL;
    desc.max_m = 1;
    keel_weight *weight = nullptr;
    CHECK(rig.side.table().weight_prepare(rig.side.ctx(), &desc, &weight) == KEEL_E_OUT_OF_MEMORY);
    CHECK(weight == nullptr);
    CHECK(holds(rig.side.error(), "maxMemoryAllocationSize"));
    CHECK(rig.doubles() == KEEL_OK);
}

TEST_CASE("a kernel that is not made ready is named when it is planned, and may succeed the next time") {
    if (no_device()) return;
    Rig rig(Params{{"cache", "off"}});
    for (const char *what : {"vkCreateShaderModule 1 -1", "vkCreateComputePipelines 1 -2"}) {
        fail(what);
        CHECK(rig.plan() == KEEL_E_OUT_OF_MEMORY);
        CHECK(holds(rig.side.error(), "kernel elementwise"));
    }
    fail("vkCreateComputePipelines 1 -1000012000"); // VK_ERROR_INVALID_SHADER_NV
    CHECK(rig.plan() == KEEL_E_INTERNAL);
    CHECK(holds(rig.side.error(), "kernel elementwise"));
    fail("");
    CHECK(rig.plan() == KEEL_OK);
    CHECK(rig.doubles() == KEEL_OK);
}

TEST_CASE("a lost device is lost in every call that follows, and its context closes") {
    if (no_device()) return;
    for (const char *call : {"vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue"}) {
        INFO(call);
        Rig rig;
        float value = 0;
        REQUIRE(rig.doubles() == KEEL_OK);
        REQUIRE(rig.read(value) == KEEL_OK);
        fail(std::string(call) + " 1 -4");
        keel_status status = KEEL_OK;
        for (int i = 0; i < 3 && status == KEEL_OK;
             ++i) { // the counter is only looked at behind another call
            uint64_t ticket = 0;
            status = rig.doubles();
            if (status == KEEL_OK) status = rig.side.table().flush(rig.side.ctx(), &ticket);
            if (status == KEEL_OK) {
                status = rig.side.table().poll(rig.side.ctx(), ticket);
                if (status == KEEL_E_NOT_READY) status = KEEL_OK;
            }
            if (status == KEEL_OK) status = rig.read(value);
        }
        CHECK(status == KEEL_E_DEVICE_LOST);
        CHECK(holds(rig.side.error(), "lost"));
        rig.check_lost();
    }
}

TEST_CASE("a device that no longer answers counts as lost after wait_seconds") {
    if (no_device()) return;
    Rig rig(Params{{"wait_seconds", "1"}});
    REQUIRE(rig.doubles() == KEEL_OK);
    fail("vkWaitSemaphores 1+ 2"); // VK_TIMEOUT, at once and for ever
    float value = 0;
    CHECK(rig.read(value) == KEEL_E_DEVICE_LOST);
    CHECK(holds(rig.side.error(), "wait_seconds"));
    rig.check_lost();
}

TEST_CASE("a run that loses its device says so, and goes on where another backend stands by") {
    if (no_device()) return;
    check_device_lost(driver);
}

TEST_CASE("a run without a device, without memory, without a kernel ends with an error that says so") {
    if (no_device()) return;
    check_refusals(driver);
}
