// Tests in which the driver fails in every possible way (fault_layer.cpp). Every call must return
// the right status, work that can continue must continue, and nothing may hang.
#include "failing_driver.hpp"

using namespace keel;
using namespace keel::conformance;
using namespace keel::test;

namespace {

struct Rig : OneNumber {
    explicit Rig(const Params &params = {}) : OneNumber(library(), params) {}
    keel_status plan() { return plan_doubles(side, buffer); }
};

} // namespace

TEST_CASE("a driver without devices, or one that cannot list them, has no device") {
    need_device(library());
    check_no_devices(library(),
                     {"vkEnumeratePhysicalDevices 1+ 0", "vkEnumeratePhysicalDevices 1+ -3",
                      "vkCreateInstance 1+ -9"}); // VK_ERROR_INCOMPATIBLE_DRIVER: no driver starts
}

TEST_CASE("the error for a device that does not open names the failed call") {
    need_device(library());
    check_does_not_open(library(), {"vkCreateDevice 1 -3", "vkCreateDevice 1 -2"},
                        "vkCreateDevice");
    CHECK(Rig().doubles() == KEEL_OK);
}

TEST_CASE("an allocation that fails is reported with its size, and the context can continue") {
    need_device(library());
    Rig rig;
    // No host memory, no device memory, too many objects.
    check_memory_refusals(rig, "vkAllocateMemory", {"-1", "-2", "-10"});
}

TEST_CASE("buffers and weights above the driver's limit are refused with the limit's name") {
    need_device(library());
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
    desc.n_sources = 2; // joined sources cannot be used in place
    desc.use = KEEL_USE_MATMUL;
    desc.max_m = 1;
    keel_weight *weight = nullptr;
    CHECK(rig.side.table().weight_prepare(rig.side.ctx(), &desc, &weight) == KEEL_E_OUT_OF_MEMORY);
    CHECK(weight == nullptr);
    CHECK(holds(rig.side.error(), "maxMemoryAllocationSize"));
    CHECK(rig.doubles() == KEEL_OK);
}

TEST_CASE("a kernel that is not made is reported in op_plan, and is tried again later") {
    need_device(library());
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

TEST_CASE("after a device is lost, every later call says so, and the context closes") {
    need_device(library());
    for (const char *call : {"vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue"}) {
        INFO(call);
        Rig rig;
        float value = 0;
        REQUIRE(rig.doubles() == KEEL_OK);
        REQUIRE(rig.read(value) == KEEL_OK);
        fail(std::string(call) + " 1 -4");
        keel_status status = KEEL_OK;
        for (int i = 0; i < 3 && status == KEEL_OK;
             ++i) { // the counter is read only after another call
            uint64_t ticket = 0;
            status = rig.doubles();
            if (status == KEEL_OK) status = rig.side.table().flush(rig.side.ctx(), &ticket);
            // If a poll finds all work done, there is nothing to wait for.
            if (status == KEEL_OK && std::string(call) != "vkWaitSemaphores") {
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

TEST_CASE("a device that does not answer counts as lost after wait_seconds") {
    need_device(library());
    Rig rig(Params{{"wait_seconds", "1"}});
    REQUIRE(rig.doubles() == KEEL_OK);
    fail("vkWaitSemaphores 1+ 2"); // VK_TIMEOUT, immediately and for all later calls
    float value = 0;
    CHECK(rig.read(value) == KEEL_E_DEVICE_LOST);
    CHECK(holds(rig.side.error(), "wait_seconds"));
    rig.check_lost();
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
