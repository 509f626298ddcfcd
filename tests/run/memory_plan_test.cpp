// Tests of the memory that a pipeline needs, with numbers that follow from the model's shapes, and
// of pipelines that do not fit the memory.
#include "run/memory_plan.hpp"

#include "mini_run.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

// Each layer has 12288 weights of attention (64 x 64 for q and for the output, 32 x 64 for k and
// for v), 18432 of the feed-forward (3 matrices of 96 x 64) and 128 of norms. Embedding and output
// have 256 x 64 each, the last norm has 64. The sum is 94528 weights of 4 bytes.
constexpr uint64_t model_bytes = 378112;
// Bytes of the keys and values of a token: 2 layers, 2 KV heads, 16 elements each, in f16.
constexpr uint64_t kv_token_bytes = 2 * 2 * (16 + 16) * 2;
static_assert(kv_token_bytes == 256);
// Bytes of a token in the RoPE tables: 8 cosines and 8 sines in f32.
constexpr uint64_t rope_token_bytes = 64;
// Activations of a prefill step of 512 tokens, in f32. For each token: 64 + 64 (residual stream,
// normalized), 128 (q, k and v), 64 (attention), 192 (gate and up) and 96 (their product) elements.
constexpr uint64_t chunk_bytes = 512 * 608 * 4;

// A pipeline that reads no weights, with a plan for the memory that a test sets.
struct Planned {
    explicit Planned(std::initializer_list<std::string> sets, uint32_t batch = 1)
        : Planned(mini_config(sets), batch) {}
    explicit Planned(const pipeline::PipelineConfig &config, uint32_t batch = 1)
        : pipeline(config, options(batch)),
          plan(pipeline.config(), pipeline.source(), pipeline.engines(), batch, memory) {}
    static PipelineOptions options(uint32_t batch) {
        PipelineOptions options = mini_options();
        options.check_only = true;
        options.batch = batch;
        // the memory is unknown, so nothing is refused
        options.memory = [] { return MemoryInfo{}; };
        return options;
    }
    // Returns the context that fits into `bytes` bytes.
    int64_t fitted(uint64_t bytes) {
        available = bytes;
        const int64_t before = pipeline.context();
        const bool is_lowered = plan.fit_context();
        CHECK(is_lowered == (pipeline.context() < before));
        return pipeline.context();
    }
    bool fits(uint64_t bytes) {
        available = bytes;
        try {
            plan.fit_context();
            return true;
        } catch (const Error &) {
            return false;
        }
    }
    std::string refusal(uint64_t bytes) {
        available = bytes;
        return error_text([&] { plan.fit_context(); }, ErrorKind::resource);
    }

    Planned(const Planned &) = delete;

    uint64_t available = 0;
    std::function<MemoryInfo()> memory = [this] {
        return MemoryInfo{uint64_t{1} << 40, available, "a test"};
    };
    Pipeline pipeline;
    MemoryPlan plan;
};

} // namespace

TEST_CASE("the bytes of weights and cache in a refusal follow from the shapes") {
    const auto refused = [](std::initializer_list<std::string> sets, uint32_t batch = 1) {
        return Planned(sets, batch).refusal(model_bytes + 1);
    };
    static_assert(512 * kv_token_bytes == 128 * 1024);
    CHECK_THAT(refused({"model.context=512"}),
               Contains("model.context: 512 tokens need ") &&
                   Contains("(weights 369.2 KiB, KV cache 128.0 KiB, workspace "));
    CHECK_THAT(refused({"model.context=512", "kv.dtype=f32"}), Contains("KV cache 256.0 KiB"));
    CHECK_THAT(refused({"model.context=512"}, 3), Contains("KV cache 384.0 KiB"));
    // The matrices, 94208 of the weights, are in f16. The norms stay in f32.
    CHECK_THAT(Planned({"model.context=512", "model.weights=f16"}).refusal(94208 * 2 + 320 * 4 + 1),
               Contains("weights 185.2 KiB"));
    // Caches consist of whole blocks: 65 tokens take 2 blocks of 64.
    CHECK_THAT(refused({"model.context=65"}), Contains("KV cache 32.0 KiB"));
    // A budget of 256 slots, a slack of an eighth of it, and a prefill step of 512 tokens: 800
    // slots, which is 13 blocks of 64.
    CHECK_THAT(refused({"model.context=4096", "policy=sliding_window", "policy.budget.tokens=256"}),
               Contains("KV cache 208.0 KiB"));
}

TEST_CASE(
    "backends that take turns hold all weights and two caches, and divided layers are held once") {
    const auto refused = [](std::initializer_list<std::string> sets, uint64_t weights) {
        return Planned(mini_hybrid(sets)).refusal(weights + 1);
    };
    CHECK_THAT(
        refused({"model.context=512", "hybrid.prefill=a", "hybrid.decode=b"}, 2 * model_bytes),
        Contains("(weights 738.5 KiB, KV cache 256.0 KiB"));
    CHECK_THAT(
        refused({"model.context=512", "hybrid.layers=[{range: 0-0, on: a}, {range: 1-1, on: b}]"},
                model_bytes),
        Contains("(weights 369.2 KiB, KV cache 128.0 KiB"));
}

TEST_CASE("a default context is lowered to a multiple of 256 tokens that fits") {
    CHECK(Planned({}).fitted(uint64_t{1} << 30) == 8192);
    // An eighth of the 4 MiB is left to other programs. Weights and activations leave 2046720
    // bytes. A token takes 320 bytes in cache and RoPE tables, and less than 320 bytes in other
    // tables.
    constexpr uint64_t rest = (4 << 20) * 7 / 8 - model_bytes - chunk_bytes;
    static_assert(rest == 2046720);
    const int64_t context = Planned({}).fitted(4 << 20);
    CHECK(context % 256 == 0);
    CHECK(context <= 6144); // 6396 tokens at most
    CHECK(context >= 2816); // 3198 tokens at least
    // A policy that keeps at most 800 slots needs less memory.
    CHECK(Planned({"policy=sliding_window", "policy.budget.tokens=256"}).fitted(4 << 20) > context);
}

TEST_CASE("a configured context may use all memory, and a default context leaves an eighth") {
    Planned asked({"model.context=4096"});
    uint64_t least = model_bytes, most = 16 << 20;
    while (most - least > 1) {
        const uint64_t middle = least + (most - least) / 2;
        (asked.fits(middle) ? most : least) = middle;
    }
    CHECK(most > model_bytes + chunk_bytes + 4096 * (kv_token_bytes + rope_token_bytes));
    CHECK(most < model_bytes + chunk_bytes + 4096 * 2 * (kv_token_bytes + rope_token_bytes));
    CHECK(asked.pipeline.context() == 4096); // a context that the config sets is not lowered
    CHECK(Planned({}).fitted(most) < 4096);
    CHECK(Planned({}).fitted(most * 8 / 7 + 8) >= 4096);
}

TEST_CASE("unknown memory refuses nothing, and weights that do not fit are refused by the loader") {
    Planned p({"model.context=512"});
    p.memory = [] { return MemoryInfo{}; };
    CHECK_FALSE(p.plan.fit_context());
    Planned heavy({"model.context=512"});
    CHECK(heavy.fits(model_bytes - 1));
    CHECK_FALSE(heavy.fits(model_bytes));
}

TEST_CASE("tables that do not fit are refused before anything is allocated") {
    Planned p({});
    p.available = 8192 * rope_token_bytes;
    CHECK_THAT(error_text([&] { p.plan.check_tables(); }, ErrorKind::resource),
               Contains("RoPE and cache tables for 8192 tokens") &&
                   Contains("lower model.context"));
    CHECK(p.pipeline.context() == 8192);
    p.available = 16 << 20;
    CHECK_NOTHROW(p.plan.check_tables());
}

TEST_CASE("kv.max_mib must hold at least a block of each head") {
    // 64 slots of 16 + 16 elements in f16, for 2 heads in 2 layers: 16384 bytes, which is 0.015625
    // MiB.
    CHECK_THAT(error_text([] { Planned p({"kv.max_mib=0.015"}); }),
               Contains("a block of 64 slots for each head in each layer, which takes 0.016 MiB") &&
                   Contains("found 0.015"));
    CHECK_NOTHROW(Planned({"kv.max_mib=0.016"}));
}

TEST_CASE(
    "weights are prepared for the largest step: a chunk, and a token of each other sequence") {
    const auto most_rows = [](std::initializer_list<std::string> sets, uint32_t batch = 1) {
        const Planned p(sets, batch);
        return p.plan.load_options(p.pipeline.engine()).max_m;
    };
    CHECK(most_rows({}) == 512);
    CHECK(most_rows({"model.context=64"}) == 64);
    CHECK(most_rows({"model.context=64"}, 128) == 64 + 127);
    Planned p({});
    p.available = 12345;
    const LoadOptions load = p.plan.load_options(p.pipeline.engine());
    REQUIRE(load.memory);
    CHECK(load.memory->available == 12345);
    CHECK(load.dtype == KEEL_DTYPE_NONE);
}

TEST_CASE("the memory of a batch counts the rows of its step and the logits of each sequence") {
    const Planned p({});
    const auto work = [&](uint32_t batch) {
        return memory_need(p.pipeline.source(), KEEL_DTYPE_NONE, KEEL_DTYPE_F16, KEEL_DTYPE_F16,
                           1024, 512, all_weight_dtypes, batch)
            .work;
    };
    constexpr uint64_t row_bytes = 608 * 4, logit_bytes = 256 * 4;
    CHECK(work(8) == work(1) + 7 * (row_bytes + logit_bytes));
}
