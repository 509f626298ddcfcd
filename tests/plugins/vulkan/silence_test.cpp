// Tests of a device that does not answer in time. Only time without any progress counts. If a
// device was only slow, its memory must not be freed.
#include "failing_driver.hpp"

using namespace keel;
using namespace keel::conformance;
using namespace keel::test;

TEST_CASE("several long submissions one after the other do not count as silence") {
    need_device(library());
    Side side(library(), {{"wait_seconds", "2"}});
    float value = 1;
    keel_buffer *buffer = side.upload(&value, 4);
    fail("vkWaitSemaphores 1 1"); // VK_NOT_READY: the device is slow from now on
    for (int i = 0; i < 7; ++i) {
        uint64_t ticket = 0;
        REQUIRE(doubles(side, buffer) == KEEL_OK);
        REQUIRE(side.table().flush(side.ctx(), &ticket) == KEEL_OK);
    }
    CHECK(side.table().buffer_read(side.ctx(), buffer, 0, &value, 4) == KEEL_OK);
    CHECK(value == 128);
    CHECK(side.host().logged("first work of") ==
          1); // drivers compile kernels then, and the user must be told so
    fail("");
    side.destroy(buffer);
}

TEST_CASE("work that runs after a wait was given up ends before its memory is freed") {
    need_device(library());
    constexpr int64_t n = 1 << 20;
    constexpr uint64_t bytes = 4 * n;
    const std::vector<float> ones(n, 1.0F);
    auto *memory = static_cast<float *>(std::aligned_alloc(1 << 16, bytes));
    {
        Side side(library(), {{"wait_seconds", "1"}});
        keel_buffer *buffer = side.upload(ones.data(), bytes), *import = nullptr;
        keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
        desc.size = bytes;
        desc.kind = KEEL_BUFFER_IMPORT;
        desc.host = memory;
        const bool imports = side.table().buffer_create(side.ctx(), &desc, &import) == KEEL_OK;
        REQUIRE(doubles(side, buffer, n) == KEEL_OK);
        REQUIRE(side.finish() == KEEL_OK); // all kernels are compiled
        for (int i = 0; i < 20; ++i) {     // takes about a second
            REQUIRE(doubles(side, buffer, n) == KEEL_OK);
            if (imports) REQUIRE(doubles(side, import, n) == KEEL_OK);
        }
        fail("vkWaitSemaphores 1+ 2"); // VK_TIMEOUT, immediately
        float value = 0;
        CHECK(side.table().buffer_read(side.ctx(), buffer, 0, &value, 4) == KEEL_E_DEVICE_LOST);
        CHECK(side.error().find("wait_seconds") != std::string::npos);
        fail("");
        side.destroy(import); // waits until the host owns the memory again
        for (int64_t i = 0; i < n; ++i) memory[i] = 1;
        side.destroy(buffer);
    }
    int64_t touched = 0;
    for (int64_t i = 0; i < n; ++i) touched += memory[i] != 1;
    CHECK(touched == 0);
    std::free(memory);
}

TEST_CASE("if a device never answers, its memory is not freed, and the context still closes") {
    need_device(library());
    {
        const DeviceKeeps keeps;
        Side side(library(), {{"wait_seconds", "1"}});
        const float one = 1;
        keel_buffer *buffer = side.upload(&one, 4);
        REQUIRE(doubles(side, buffer) == KEEL_OK);
        fail("vkWaitSemaphores 1+ 2");
        float value = 0;
        CHECK(side.table().buffer_read(side.ctx(), buffer, 0, &value, 4) == KEEL_E_DEVICE_LOST);
        side.destroy(buffer);
    }
    fail("");
    Side next(library(), {}); // the driver still works for other contexts
    float value = 3;
    keel_buffer *buffer = next.upload(&value, 4);
    REQUIRE(doubles(next, buffer) == KEEL_OK);
    next.read(buffer, &value, 4);
    CHECK(value == 6);
    next.destroy(buffer);
}
