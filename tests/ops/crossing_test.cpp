#include "ops/executor.hpp"
#include "platform/memory.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <numeric>
#include <utility>

using namespace keel;
using namespace keel::test;

namespace {

// A pipeline device that lacks an op, and a fallback device that has the op.
struct Pair {
    Pair(const std::string &missing, bool shared) {
        first.hide(missing);
        first.asynchronous = second.asynchronous = true;
        if (!shared) first.hide("buffer_map");
        device = first.open();
        executor = std::make_unique<Executor>(device, Executor::Options{false, second.open(), {}});
    }
    Tensor tensor(std::initializer_list<int64_t> dims, float start = 0) {
        const Tensor t = Tensor::allocate(*device, KEEL_DTYPE_F32, dims, KEEL_BUFFER_HOST_VISIBLE);
        std::vector<float> values(t.bytes() / 4);
        std::iota(values.begin(), values.end(), start);
        t.write(values.data());
        return t;
    }
    WrappingBackend first, second;
    std::shared_ptr<Device> device;
    std::unique_ptr<Executor> executor;
};

keel_elementwise_args elementwise(const Tensor &a, const Tensor &out, float factor = 0) {
    keel_elementwise_args args = {KEEL_HEADER(keel_elementwise_args)};
    args.a = a.c();
    args.out = out.c();
    args.factor = factor;
    return args;
}

} // namespace

TEST_CASE("strided outputs and the gaps between their rows are right after a crossing") {
    for (const bool shared : {true, false}) {
        INFO((shared ? "shared" : "copied"));
        Pair p("add", shared);
        const Tensor all = p.tensor({3, 6}), a = all.columns(0, 2), b = all.columns(2, 2),
                     out = all.columns(4, 2);
        keel_elementwise_args args = elementwise(a, out);
        args.b = b.c();
        const OpHandle op = p.executor->plan(KEEL_OP_ADD, args, {});
        CHECK(op->rung() == Rung::fallback);
        p.executor->run(*op, args);
        CHECK(all.read<float>() ==
              std::vector<float>{0, 1, 2, 3, 2, 4, 6, 7, 8, 9, 14, 16, 12, 13, 14, 15, 26, 28});
        // The three views are in one region. It is copied to the fallback once and back once.
        const uint64_t bytes = shared ? 0 : 2 * 3 * 6 * 4;
        CHECK(op->crossing_bytes() == bytes);
        CHECK(p.executor->crossed_bytes() == bytes);
    }
}

TEST_CASE("an in-place op is also in place on the fallback") {
    for (const bool shared : {true, false}) {
        INFO((shared ? "shared" : "copied"));
        Pair p("scale", shared);
        const Tensor all = p.tensor({2, 4}), x = all.columns(1, 2);
        const OpHandle op = p.executor->plan(KEEL_OP_SCALE, elementwise(x, x, 10), {});
        p.executor->run(*op, elementwise(x, x, 10));
        p.executor->run(*op, elementwise(x, x, 10));
        CHECK(all.read<float>() == std::vector<float>{0, 100, 200, 3, 4, 500, 600, 7});
    }
}

TEST_CASE("two outputs whose rows alternate do not overwrite each other") {
    for (const bool shared : {true, false}) {
        INFO((shared ? "shared" : "copied"));
        Pair p("top_k_rows", shared);
        const Tensor x = p.tensor({2, 5}), both = p.tensor({2, 4}, 50);
        const Tensor values = both.columns(0, 2),
                     index = Tensor(both.buffer(), 0, KEEL_DTYPE_I32, {2, 4}).columns(2, 2);
        keel_rows_args args = {KEEL_HEADER(keel_rows_args)};
        args.x = x.c();
        args.values = values.c();
        args.index = index.c();
        const OpHandle op = p.executor->plan(KEEL_OP_TOP_K_ROWS, args, {});
        p.executor->run(*op, args);
        const std::vector<float> found = both.read<float>();
        const std::vector<int32_t> places =
            Tensor(both.buffer(), 0, KEEL_DTYPE_I32, {2, 4}).read<int32_t>();
        CHECK(found[0] == 4.0F);
        CHECK(found[1] == 3.0F);
        CHECK(found[4] == 9.0F);
        CHECK(found[5] == 8.0F);
        CHECK(std::vector<int32_t>{places[2], places[3], places[6], places[7]} ==
              std::vector<int32_t>{4, 3, 4, 3});
    }
}

TEST_CASE("plain inputs are copied to the fallback and plain outputs back, each once") {
    Pair p("scale", false);
    const Tensor x = p.tensor({4, 8}), y = p.tensor({4, 8}, 100);
    const OpHandle op = p.executor->plan(KEEL_OP_SCALE, elementwise(x, y, 2), {});
    CHECK(op->crossing_bytes() == 2 * 4 * 8 * 4);
    p.first.clear_calls();
    p.executor->run(*op, elementwise(x, y, 2));
    CHECK(p.first.count("buffer_read") == 1);
    CHECK(p.first.count("buffer_write") == 1);
    CHECK(p.executor->crossed_bytes() == op->crossing_bytes());
    CHECK(y.read<float>()[31] == 62.0F);
}

TEST_CASE("the offset of a staged tensor keeps its alignment") {
    Pair p("scale", false);
    const Tensor all = p.tensor({100}), x = all.rows(3, 7), y = all.rows(21, 7);
    const OpHandle op = p.executor->plan(KEEL_OP_SCALE, elementwise(x, y, 3), {});
    p.executor->run(*op, elementwise(x, y, 3));
    const std::vector<float> found = all.read<float>();
    for (size_t i = 0; i < 100; ++i)
        CHECK(found[i] ==
              (i >= 21 && i < 28 ? 3.0F * static_cast<float>(i - 18) : static_cast<float>(i)));
}

TEST_CASE("tensors without elements are not copied") {
    for (const bool shared : {true, false}) {
        Pair p("scale", shared);
        const Tensor all = p.tensor({4, 8}), none = all.rows(2, 0);
        const OpHandle op = p.executor->plan(KEEL_OP_SCALE, elementwise(all, all, 2), {});
        p.executor->run(*op, elementwise(none, none, 2));
        CHECK(p.executor->crossed_bytes() == 0);
        CHECK(all.read<float>()[31] == 31.0F);
    }
}

TEST_CASE("shared memory is imported once, and released before its device destroys it") {
    Pair p("scale", true);
    OpHandle op;
    {
        const Tensor x = p.tensor({64});
        op = p.executor->plan(KEEL_OP_SCALE, elementwise(x, x, 2), {});
        for (int i = 0; i < 3; ++i) p.executor->run(*op, elementwise(x, x, 2));
        CHECK(x.read<float>()[63] == 63.0F * 8);
        CHECK(p.second.live().buffers == 1);
        CHECK(p.second.count("buffer_create") == 1);
    }
    CHECK(p.second.live().buffers == 1); // the memory still exists, because it is in the pool
    p.device->trim();
    CHECK(p.second.live().buffers == 0);
    const Tensor y = p.tensor({64}, 1); // probably at the same address
    p.executor->run(*op, elementwise(y, y, 2));
    CHECK(y.read<float>()[63] == 128.0F);
    CHECK(p.executor->crossed_bytes() == 0);
    CHECK(p.executor->placement() == KEEL_BUFFER_HOST_VISIBLE);
}

TEST_CASE("memory that cannot be imported is copied") {
    Pair p("scale", true);
    // a DEVICE buffer is not mapped
    const Tensor hidden = Tensor::allocate(*p.device, KEEL_DTYPE_F32, {16});
    const std::vector<float> ones(16, 1.0F);
    hidden.write(ones.data());
    const OpHandle op = p.executor->plan(KEEL_OP_SCALE, elementwise(hidden, hidden, 2), {});
    CHECK(op->crossing_bytes() == 2 * 64);
    p.executor->run(*op, elementwise(hidden, hidden, 2));
    CHECK(hidden.read<float>() == std::vector<float>(16, 2.0F));
    CHECK(p.executor->crossed_bytes() == 2 * 64);
    const Tensor visible = p.tensor({16}, 1);
    p.second.fail_nth(1, KEEL_E_UNSUPPORTED, "buffer_create"); // this is the import
    p.executor->run(*op, elementwise(visible, visible, 2));
    CHECK(visible.read<float>()[15] == 32.0F);
}

TEST_CASE("of reserved address space, only parts with memory are copied") {
    Pair p("scale", false);
    const BufferPtr space = p.device->reserve(4096);
    REQUIRE(space != nullptr);
    space->commit(1024, 1024, true);
    const Tensor all(space, 0, KEEL_DTYPE_F32, {1024}), held = all.rows(256, 256);
    const std::vector<float> ones(256, 1.0F);
    held.write(ones.data());
    const OpHandle op = p.executor->plan(KEEL_OP_SCALE, elementwise(all, all, 2), {});
    CHECK(op->crossing_bytes() == 2 * 1024);
    p.executor->run(*op, elementwise(all, all, 2));
    CHECK(p.executor->crossed_bytes() == 2 * 1024);
    CHECK(held.read<float>() == std::vector<float>(256, 2.0F));
}

TEST_CASE("each device's queued work is done before the other device reads, in both directions") {
    Pair p("scale", true);
    const Tensor x = p.tensor({8}, 1), one = p.tensor({8}, 1);
    keel_elementwise_args add = elementwise(x, x);
    add.b = one.c();
    const OpHandle scale = p.executor->plan(KEEL_OP_SCALE, elementwise(x, x, 10), {}),
                   sum = p.executor->plan(KEEL_OP_ADD, add, {});
    p.executor->run(*sum, add);
    p.executor->run(*scale, elementwise(x, x, 10));
    p.executor->run(*sum, add);
    CHECK(x.read<float>() == std::vector<float>{21, 42, 63, 84, 105, 126, 147, 168});
}

TEST_CASE(
    "a plan counts the bytes that its calls copy, for all functions and flags of the backends") {
    const Tensor like = Tensor::shape(KEEL_DTYPE_F32, {4, 8}); // a tensor of a plan has no buffer
    const uint64_t all = 2 * 4 * 8 * 4;
    const auto crosses = [&](Pair &p) {
        const OpHandle op = p.executor->plan(KEEL_OP_SCALE, elementwise(like, like, 2), {});
        const uint64_t planned = op->crossing_bytes();
        const Tensor x =
            Tensor::allocate(*p.device, KEEL_DTYPE_F32, {4, 8}, p.executor->placement());
        const std::vector<float> ones(32, 1.0F);
        x.write(ones.data());
        p.executor->run(*op, elementwise(x, x, 2));
        CHECK(x.read<float>() == std::vector<float>(32, 2.0F));
        return std::pair(planned, p.executor->crossed_bytes());
    };
    {
        INFO("shared");
        Pair p("scale", true);
        CHECK(crosses(p) == std::pair<uint64_t, uint64_t>(0, 0));
        CHECK(p.executor->placement() == KEEL_BUFFER_HOST_VISIBLE);
    }
    {
        INFO("a backend that maps buffers, on a device that has none to map");
        Pair p("scale", true);
        p.first.has_host_visible = false;
        CHECK(crosses(p) == std::pair(all, all));
        CHECK(p.executor->placement() == KEEL_BUFFER_DEVICE);
    }
    {
        INFO("one that imports whole pages only");
        Pair p("scale", true);
        p.second.import_unit = page_size();
        CHECK(crosses(p) == std::pair(all, all));
    }
}
