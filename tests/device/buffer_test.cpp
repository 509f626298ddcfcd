#include "device/tensor.hpp"
#include "support/error_text.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

TEST_CASE("a freed buffer is used again if it wastes at most a quarter of its size") {
    WrappingBackend w;
    const auto device = w.open();
    const keel_buffer *first = device->allocate(1000)->handle(); // freed immediately
    CHECK(device->pool_stats().held_bytes == 1000);
    {
        const BufferPtr again = device->allocate(750);
        CHECK(again->handle() == first);
        CHECK(again->size() == 1000);
        CHECK(device->pool_stats().reused == 1);
        CHECK(device->pool_stats().held_bytes == 0);
    }
    // the free buffer of 1000 bytes would waste too much memory
    CHECK(device->allocate(749)->handle() != first);
    CHECK(device->allocate(1001)->handle() != first);
    // another kind of buffer
    CHECK(device->allocate(1000, KEEL_BUFFER_HOST_VISIBLE)->handle() != first);
    CHECK(device->pool_stats().created == 4);
    CHECK(device->pool_stats().reused == 1);
    device->trim();
    CHECK(device->pool_stats().held_bytes == 0);
    CHECK(w.live().buffers == 0);
}

TEST_CASE("of several free buffers, the smallest one that fits is used") {
    WrappingBackend w;
    const auto device = w.open();
    const keel_buffer *small = nullptr;
    {
        const BufferPtr a = device->allocate(1100), b = device->allocate(1010);
        small = b->handle();
    }
    CHECK(device->allocate(1000)->handle() == small);
}

TEST_CASE("if a backend is out of memory, the pool is emptied and the allocation is tried again") {
    WrappingBackend w;
    w.memory_limit = 3000;
    const auto device = w.open();
    device->allocate(2000); // the buffer is in the pool after this line
    w.clear_calls();
    const BufferPtr big = device->allocate(2900);
    CHECK(w.count("buffer_create") == 2);
    CHECK(w.count("buffer_destroy") == 1);
    CHECK_THAT(error_text([&] { device->allocate(200); }, ErrorKind::resource),
               Contains("backend wrapping") && Contains("a buffer of 200 bytes") &&
                   Contains("out of memory"));
    // the pool was empty, so the allocation was tried only once
    CHECK(w.count("buffer_create") == 3);
    CHECK(device->mem_info().ours == 2900);
}

TEST_CASE(
    "HOST_VISIBLE becomes DEVICE if the backend lacks this kind, and other kinds are refused") {
    WrappingBackend w;
    const auto device = w.open();
    w.fail_nth(1, KEEL_E_UNSUPPORTED, "buffer_create");
    CHECK(device->allocate(64, KEEL_BUFFER_HOST_VISIBLE)->kind() == KEEL_BUFFER_DEVICE);
    error_text([&] { device->allocate(64, KEEL_BUFFER_RESERVE); }, ErrorKind::internal);
    error_text([&] { device->allocate(64, 99); }, ErrorKind::internal);
}

TEST_CASE("buffers can be found by handle until they are freed") {
    WrappingBackend w;
    const auto device = w.open();
    BufferPtr buffer = device->allocate(64);
    const keel_buffer *handle = buffer->handle();
    CHECK(device->find(handle) == buffer.get());
    buffer.reset();
    CHECK(device->find(handle) == nullptr);
    CHECK(device->find(nullptr) == nullptr);
}

TEST_CASE("a buffer keeps its device open, and at the end everything is destroyed") {
    WrappingBackend w;
    {
        BufferPtr buffer = w.open()->allocate(64);
        CHECK(w.live().contexts == 1);
    }
    CHECK(w.live().none());
    CHECK(w.calls().back().slot == "ctx_destroy");
}

TEST_CASE("reads and writes outside a buffer are refused before the backend gets them") {
    WrappingBackend w;
    const auto device = w.open();
    const BufferPtr buffer = device->allocate(16);
    char bytes[32] = {};
    w.clear_calls();
    error_text([&] { buffer->write(1, bytes, 16); }, ErrorKind::internal);
    error_text([&] { buffer->write(UINT64_MAX, bytes, 2); }, ErrorKind::internal);
    error_text([&] { buffer->write(17, bytes, 0); }, ErrorKind::internal);
    error_text([&] { buffer->read(16, bytes, 1); }, ErrorKind::internal);
    error_text([&] { buffer->commit(0, 16, true); }, ErrorKind::internal);
    CHECK(w.calls().empty());
    buffer->write(16, bytes, 0);
    CHECK(w.calls().empty());
}

TEST_CASE("only HOST_VISIBLE buffers are mapped, and only once") {
    WrappingBackend w;
    const auto device = w.open();
    CHECK(device->allocate(64)->map() == nullptr);
    const BufferPtr visible = device->allocate(64, KEEL_BUFFER_HOST_VISIBLE);
    const float value = 3;
    visible->write(0, &value, sizeof value);
    device->stream().wait();
    w.clear_calls();
    REQUIRE(visible->map() != nullptr);
    CHECK(*static_cast<float *>(visible->map()) == 3.0F);
    CHECK(w.count("buffer_map") == 1);
    WrappingBackend without;
    without.hide("buffer_map");
    CHECK(without.open()->allocate(64, KEEL_BUFFER_HOST_VISIBLE)->map() == nullptr);
}

TEST_CASE("reserved address space records which parts have memory") {
    WrappingBackend w;
    const auto device = w.open();
    const BufferPtr space = device->reserve(1000);
    REQUIRE(space != nullptr);
    using Parts = std::vector<std::pair<uint64_t, uint64_t>>;
    CHECK(space->resident(0, 1000).empty());
    space->commit(100, 100, true);
    space->commit(300, 100, true);
    CHECK(space->resident(0, 1000) == Parts{{100, 200}, {300, 400}});
    space->commit(200, 100, true); // closes the gap
    CHECK(space->resident(0, 1000) == Parts{{100, 400}});
    CHECK(space->resident(150, 250) == Parts{{150, 250}});
    space->commit(150, 50, false);
    CHECK(space->resident(0, 1000) == Parts{{100, 150}, {200, 400}});
    space->commit(0, 1000, true);
    CHECK(space->resident(0, 1000) == Parts{{0, 1000}});
    space->commit(0, 1000, false);
    CHECK(space->resident(0, 1000).empty());
    error_text([&] { space->commit(900, 101, true); }, ErrorKind::internal);
    WrappingBackend without;
    without.hide("buffer_commit");
    CHECK(without.open()->reserve(1000) == nullptr);
}

TEST_CASE("host memory is imported if the backend accepts it, and never pooled") {
    alignas(64) static float memory[16] = {5};
    WrappingBackend w;
    const auto device = w.open();
    {
        const BufferPtr imported = device->import_host(memory, sizeof memory);
        REQUIRE(imported != nullptr);
        const Tensor t(imported, 0, KEEL_DTYPE_F32, {16});
        CHECK(t.read<float>()[0] == 5.0F);
    }
    CHECK(w.live().buffers == 0);
    w.fail_nth(1, KEEL_E_UNSUPPORTED, "buffer_create");
    CHECK(device->import_host(memory, sizeof memory) == nullptr);
    w.fail_nth(1, KEEL_E_INTERNAL, "buffer_create");
    error_text([&] { device->import_host(memory, sizeof memory); }, ErrorKind::runtime);
    WrappingBackend without;
    without.device_flags = 0;
    CHECK(without.open()->import_host(memory, sizeof memory) == nullptr);
    CHECK(without.count("buffer_create") == 0);
}
