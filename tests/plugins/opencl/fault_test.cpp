// Tests in which the driver fails in every possible way (fault_layer.cpp). Every call must return
// the right status, work that can continue must continue, and nothing may hang.
#include "failing_driver.hpp"

using namespace keel;
using namespace keel::conformance;
using namespace keel::test;

namespace {

struct Rig : OneNumber {
    explicit Rig(const Params &params = {}) : OneNumber(library(), params) {}
};

} // namespace

TEST_CASE("if there is no platform, or only platforms without devices, there is no device") {
    need_device(library());
    check_no_devices(library(),
                     {"clGetPlatformIDs 1+ -1001", "clGetDeviceIDs 1+ -1", "clGetDeviceIDs 1+ 0"});
}

TEST_CASE("if PoCL has no device because it cannot write its cache, the error says so") {
    need_device(library());
    const ProcessResult result =
        run_text(driver, "", backend_of(driver), {"POCL_CACHE_DIR=/dev/null/no"});
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK(holds(result.err, "finds no device on this machine: PoCL"));
    CHECK(holds(result.err, "cannot write its cache in '/dev/null/no'"));
}

TEST_CASE("a device that does not open is named") {
    need_device(library());
    check_does_not_open(library(), {"clCreateContext 1 -6"}, "CL_OUT_OF_HOST_MEMORY");
    CHECK(Rig().doubles() == KEEL_OK);
}

TEST_CASE("an allocation that fails is reported with its size, and the context can continue") {
    need_device(library());
    Rig rig;
    // Allocation failure, out of resources, out of host memory.
    check_memory_refusals(rig, "clCreateBuffer", {"-4", "-5", "-6"});
}

TEST_CASE("a kernel that does not compile is reported with its options, and is tried again later") {
    need_device(library());
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

TEST_CASE("after a device is lost, every call that waits says so, and the context closes") {
    need_device(library());
    for (const char *what :
         {"clEnqueueNDRangeKernel 1 -2", "clFlush 1 -2", "clFlush 1 -36", "clGetEventInfo 1 -5",
          "clGetEventInfo 1 -14", "clEnqueueReadBuffer 1 -2", "clEnqueueReadBuffer 1 -5",
          "clEnqueueReadBuffer 1 -9999"}) {
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

TEST_CASE("a run that loses its device reports it, and continues if another backend can") {
    need_device(library());
    check_device_lost(driver);
}

TEST_CASE(
    "a run without a device, without memory or without a kernel ends with an error that says so") {
    need_device(library());
    check_refusals(driver);
}
