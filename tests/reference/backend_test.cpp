#include "reference/bench.hpp"

using namespace keel::test;

TEST_CASE("the reference has every function of the table") {
    const keel_backend &t = *keel::reference_backend();
#define KEEL_CHECK_SLOT(ID, slot, type) CHECK(t.slot != nullptr);
    KEEL_FOR_EACH_OP(KEEL_CHECK_SLOT)
#undef KEEL_CHECK_SLOT
    CHECK(t.h.struct_size == sizeof(keel_backend));
    CHECK(std::string(keel::reference_plugin()->id) == "reference");
    CHECK(keel::reference_plugin()->vtable == &t);
}

TEST_CASE("calls that break the rules are refused with a reason, and nothing is written") {
    Bench bench;
    auto a = args_of<keel_elementwise_args>();
    a.a = bench.floats({2, 3}, Values(6, 1.0));
    a.b = bench.floats({2, 3}, Values(6, 1.0));
    a.out = bench.blank({2, 3});
    const auto refused = [&](keel_status status, const char *reason) {
        CHECK(bench.backend().add(bench.ctx(), &a) == status);
        CHECK_THAT(bench.error(), Catch::Contains(reason));
        CHECK(std::isnan(bench.read(a.out)[0]));
    };
    a.features = 1;
    refused(KEEL_E_UNSUPPORTED, "feature bits");
    a.features = 0;
    const keel_tensor *right = a.b;
    a.b = nullptr;
    refused(KEEL_E_INVALID_ARG, "b is missing");
    a.b = bench.floats({3, 2}, Values(6, 1.0));
    refused(KEEL_E_INVALID_ARG, "differ in shape");
    a.b = bench.ints({2, 3}, Ints(6, 1));
    refused(KEEL_E_UNSUPPORTED, "i32");
    keel_tensor odd = *right;
    a.b = &odd;
    for (const int64_t stride : {int64_t{1} << 40, INT64_MAX, INT64_MIN, int64_t{-64}}) {
        odd.stride[0] = stride;
        refused(KEEL_E_INVALID_ARG, "does not fit into its buffer");
    }
    odd = *right;
    odd.offset = UINT64_MAX - 3;
    refused(KEEL_E_INVALID_ARG, "does not fit into its buffer");
    odd = *right;
    odd.buffer = nullptr;
    refused(KEEL_E_INVALID_ARG, "no buffer");
    odd = *right;
    odd.rank = 5;
    refused(KEEL_E_INVALID_ARG, "rank 5");
}

TEST_CASE("a plan is made without buffers, names its op, and cannot be used for another op") {
    Bench bench;
    keel_tensor shape = {};
    shape.h = KEEL_HEADER(keel_tensor);
    shape.dtype = KEEL_DTYPE_F32;
    shape.rank = 1;
    shape.shape[0] = 8;
    auto a = args_of<keel_elementwise_args>();
    a.a = a.b = a.out = &shape;
    keel_plan *plan = nullptr;
    REQUIRE(bench.backend().op_plan(bench.ctx(), KEEL_OP_ADD,
                                    reinterpret_cast<const keel_op_args *>(&a), &plan) == KEEL_OK);
    keel_plan_info info = {};
    info.h = KEEL_HEADER(keel_plan_info);
    REQUIRE(bench.backend().plan_info(bench.ctx(), plan, &info) == KEEL_OK);
    CHECK(std::string(info.kernel) == "add reference float64");
    auto real = args_of<keel_elementwise_args>();
    real.a = bench.floats({8}, Values(8, 1.0));
    real.b = real.a;
    real.out = bench.blank({8});
    real.plan = plan;
    CHECK(bench.backend().add(bench.ctx(), &real) == KEEL_OK);
    CHECK(bench.backend().scale(bench.ctx(), &real) == KEEL_E_INVALID_ARG);
    bench.backend().plan_destroy(bench.ctx(), plan);
    shape.dtype = KEEL_DTYPE_Q8_0;
    shape.shape[0] = 32;
    CHECK(bench.backend().op_plan(bench.ctx(), KEEL_OP_ADD,
                                  reinterpret_cast<const keel_op_args *>(&a),
                                  &plan) == KEEL_E_UNSUPPORTED);
    CHECK(plan == nullptr);
}

TEST_CASE("invalid cache contents are refused") {
    Bench bench;
    const auto with = [&](const std::function<void(BenchCache &)> &spoil) {
        BenchCache cache(bench, {6}, 4, 4, 1);
        spoil(cache);
        auto a = args_of<keel_attention_args>(KEEL_ATTENTION_CAUSAL);
        a.q = bench.floats({1, 1, 4}, {1, 2, 3, 4});
        a.kv = &cache.view;
        a.out = bench.blank({1, 1, 4});
        a.scale = 1;
        return bench.backend().attention(bench.ctx(), &a);
    };
    CHECK(with([](BenchCache &) {}) == KEEL_OK);
    CHECK(with([&](BenchCache &c) { c.view.lengths = bench.ints({1}, {17}); }) ==
          KEEL_E_INVALID_ARG);
    CHECK(with([&](BenchCache &c) { c.view.lengths = bench.ints({1}, {-1}); }) ==
          KEEL_E_INVALID_ARG);
    CHECK(with([&](BenchCache &c) {
              c.view.block_table = bench.ints({1, 4}, {0, -1, 0, 0});
          }) == KEEL_E_INVALID_ARG);
    CHECK(with([&](BenchCache &c) {
              c.view.block_table = bench.ints({1, 4}, {99, 0, 0, 0});
          }) == KEEL_E_INVALID_ARG);
    CHECK(with([&](BenchCache &c) {
              c.view.block_table = bench.ints({1, 1}, {0});
          }) == KEEL_E_INVALID_ARG);
    CHECK(with([&](BenchCache &c) { c.view.block_slots = 3; }) == KEEL_E_INVALID_ARG);
}

TEST_CASE("buffers are bounded, counted and given back") {
    Bench bench;
    const keel_backend &t = bench.backend();
    keel_mem_info info = {};
    info.h = KEEL_HEADER(keel_mem_info);
    keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc), 1000, KEEL_BUFFER_HOST_VISIBLE, 0,
                             nullptr};
    keel_buffer *buffer = nullptr;
    REQUIRE(t.buffer_create(bench.ctx(), &desc, &buffer) == KEEL_OK);
    t.mem_info(bench.ctx(), &info);
    CHECK(info.ours == 1000);
    uint64_t word = 1;
    CHECK(t.buffer_write(bench.ctx(), buffer, 993, &word, 8) == KEEL_E_INVALID_ARG);
    CHECK(t.buffer_read(bench.ctx(), buffer, UINT64_MAX, &word, 2) == KEEL_E_INVALID_ARG);
    CHECK(t.buffer_write(bench.ctx(), buffer, 992, &word, 8) == KEEL_OK);
    t.buffer_destroy(bench.ctx(), buffer);
    t.mem_info(bench.ctx(), &info);
    CHECK(info.ours == 0);
    desc.size = UINT64_MAX;
    CHECK(t.buffer_create(bench.ctx(), &desc, &buffer) == KEEL_E_OUT_OF_MEMORY);
    CHECK(buffer == nullptr);
}
