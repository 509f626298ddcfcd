// The driver fails in each way that it can (fault_layer.cpp): every call says so with its status,
// what can go on goes on, and nothing hangs.
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

TEST_CASE("a driver without devices, or one that cannot list them, has none") {
    need_device(library());
    check_no_devices(library(),
                     {"vkEnumeratePhysicalDevices 1+ 0", "vkEnumeratePhysicalDevices 1+ -3",
                      "vkCreateInstance 1+ -9"}); // VK_ERROR_INCOMPATIBLE_DRIVER: none starts
}

TEST_CASE("a device that does not open says which call failed") {
    need_device(library());
    check_does_not_open(library(), {"vkCreateDevice 1 -3", "vkCreateDevice 1 -2"},
                        "vkCreateDevice");
    CHECK(Rig().doubles() == KEEL_OK);
}

TEST_CASE("memory that is not there is refused with its size, and the context goes on") {
    need_device(library());
    Rig rig;
    // no host memory, no device memory, too many objects
    check_memory_refusals(rig, "vkAllocateMemory", {"-1", "-2", "-10"});
}

TEST_CASE("what is beyond the driver's limit is refused by its name, buffers and weights alike") {
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
    desc.n_sources = 2; // joined: they cannot be used in place
    desc.use = KEEL_USE_MATMUL;
    desc.max_m = 1;
    keel_weight *weight = nullptr;
    CHECK(rig.side.table().weight_prepare(rig.side.ctx(), &desc, &weight) == KEEL_E_OUT_OF_MEMORY);
    CHECK(weight == nullptr);
    CHECK(holds(rig.side.error(), "maxMemoryAllocationSize"));
    CHECK(rig.doubles() == KEEL_OK);
}

TEST_CASE(
    "a kernel that is not made ready is named when it is planned, and may succeed the next time") {
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

TEST_CASE("a lost device is lost in every call that follows, and its context closes") {
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
             ++i) { // the counter is only looked at behind another call
            uint64_t ticket = 0;
            status = rig.doubles();
            if (status == KEEL_OK) status = rig.side.table().flush(rig.side.ctx(), &ticket);
            // A poll that finds all done leaves nothing to wait for.
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

TEST_CASE("a device that no longer answers counts as lost after wait_seconds") {
    need_device(library());
    Rig rig(Params{{"wait_seconds", "1"}});
    REQUIRE(rig.doubles() == KEEL_OK);
    fail("vkWaitSemaphores 1+ 2"); // VK_TIMEOUT, at once and for ever
    float value = 0;
    CHECK(rig.read(value) == KEEL_E_DEVICE_LOST);
    CHECK(holds(rig.side.error(), "wait_seconds"));
    rig.check_lost();
}

TEST_CASE("a run that loses its device says so, and goes on where another backend stands by") {
    need_device(library());
    check_device_lost(driver);
}

TEST_CASE(
    "a run without a device, without memory, without a kernel ends with an error that says so") {
    need_device(library());
    check_refusals(driver);
}
