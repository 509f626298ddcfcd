// Tests that operations of a sequence's cache apply to all stages, and that the smallest stage
// decides.
#include "run/sequence_cache.hpp"

#include "mini_run.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

// Layer 0 is on backend a, layer 1 on backend b. Backend b takes 8 prompt tokens in a step.
struct TwoStages {
    explicit TwoStages(std::initializer_list<std::string> sets = {"model.context=96"})
        : pipeline(config(sets), options()), cache(pipeline) {
        for (const auto &engine : pipeline.engines()) cache.add(*engine, *engine->policy_setup);
    }
    static pipeline::PipelineConfig config(std::initializer_list<std::string> sets) {
        std::vector<std::string> all = {"model.path=" + mini_model(),
                                        "hybrid.backends={a: {plugin: cpu, params: {threads: 1}}, "
                                        "b: {plugin: cpu, params: {threads: 1}}}",
                                        "hybrid.layers=[{range: 0-0, on: a}, {range: 1-1, on: b}]"};
        all.insert(all.end(), sets.begin(), sets.end());
        return pipeline::config_from_overrides(all);
    }
    PipelineOptions options() {
        cpu.backend.prefill_chunk = 8;
        return mini_options(with(cpu, "b"));
    }
    // Makes slots for n tokens, like a step.
    void append(int64_t n, StepKind kind = StepKind::prefill_chunk) {
        cache.make_room(n, kind);
        step.ids.assign(static_cast<size_t>(n), 7);
        cache.append(step, kind);
        cache.finish_step();
    }
    std::vector<int64_t> lengths() const {
        std::vector<int64_t> all;
        for (const Stage &stage : cache.stages()) all.push_back(stage.cache->tokens_seen());
        return all;
    }

    FailingCpu cpu;
    Pipeline pipeline;
    SequenceCache cache;
    SequenceRows step;
};

using Lengths = std::vector<int64_t>;

struct Bytes final : StateWriter {
    std::vector<std::byte> bytes;
    void write(const void *data, size_t n) override {
        const auto *p = static_cast<const std::byte *>(data);
        bytes.insert(bytes.end(), p, p + n);
    }
};

} // namespace

TEST_CASE("a chunk of a prompt is as long as the shortest step of all stages") {
    const TwoStages s;
    CHECK(s.cache.first_engine().name == "a");
    CHECK(s.cache.last_engine().name == "b");
    CHECK(s.cache.next_chunk(100) == 8);
    CHECK(s.cache.next_chunk(5) == 5);
}

TEST_CASE("a step has slots in all stages, and is open until it is finished") {
    TwoStages s;
    s.append(3);
    CHECK(s.step.positions == std::vector<int32_t>{0, 1, 2});
    s.step.ids = {5, 6};
    s.cache.append(s.step, StepKind::prefill_end);
    CHECK(s.step.positions == std::vector<int32_t>{3, 4});
    REQUIRE(s.step.stages.size() == 2);
    CHECK(s.step.stages[0].engine->name == "a");
    CHECK(s.step.stages[1].caches == &s.cache.stages()[1].cache->caches());
    CHECK(s.step.stages[0].tap == nullptr); // the policy collects nothing
    CHECK(s.lengths() == Lengths{5, 5});
    CHECK(s.cache.has_open_step());
    s.cache.finish_step();
    CHECK_FALSE(s.cache.has_open_step());
    s.cache.finish_step(); // does nothing
    s.cache.append(s.step, StepKind::decode);
    s.cache.forget_open_step();
    CHECK_FALSE(s.cache.has_open_step());
}

TEST_CASE("tokens beyond the context are refused with the key, and nothing changes") {
    TwoStages s;
    s.append(90);
    std::string why;
    CHECK(s.cache.can_take(6, false));
    CHECK_FALSE(s.cache.can_take(7, false, &why));
    CHECK_THAT(why, Contains("model.context"));
    CHECK_THAT(error_text([&] { s.cache.make_room(7, StepKind::decode); }, ErrorKind::resource),
               Contains("model.context"));
    CHECK(s.lengths() == Lengths{90, 90});
}

TEST_CASE("bytes are summed over the stages, and tokens are taken back in all stages") {
    TwoStages s;
    CHECK(s.cache.bytes_in_use() == 0);
    s.append(10);
    // Bytes of a block of 64 slots with 16 + 16 elements in f16, for 2 heads in each of the two
    // layers.
    constexpr uint64_t block = 64 * (16 + 16) * 2;
    CHECK(s.cache.bytes_in_use() == 2 * 2 * block);
    s.append(60);
    CHECK(s.cache.bytes_in_use() == 2 * 2 * 2 * block);
    CHECK(s.cache.held_peak_bytes() >= s.cache.bytes_in_use());
    REQUIRE(s.cache.can_truncate(65));
    s.cache.truncate(65);
    CHECK(s.lengths() == Lengths{5, 5});
    CHECK(s.cache.bytes_in_use() == 2 * 2 * block);
    s.cache.reset();
    CHECK(s.lengths() == Lengths{0, 0});
    CHECK(s.cache.bytes_in_use() == 0);
}

TEST_CASE("the acting stage is the first one whose policy evicts") {
    PipelineOptions options = mini_options();
    options.several_policies = true;
    Pipeline pipeline(mini_config(), options);
    PolicySetup &window = pipeline.policies().add(
        mini_config({"policy=sliding_window", "policy.budget.tokens=64"}).policy);
    SequenceCache cache(pipeline);
    cache.add(pipeline.engine(), pipeline.policy_setup());
    CHECK(&cache.acting() == &cache.first());
    cache.add(pipeline.engine(), window);
    CHECK(&cache.acting() == cache.stages()[1].cache.get());
}

TEST_CASE("a policy evicts in all stages when the step is finished") {
    TwoStages s({"model.context=96", "policy=sliding_window", "policy.budget.tokens=32",
                 "policy.budget.slack=0", "policy.protect.prefix=2"});
    s.cache.pin(10, 12, "a test");
    s.append(32);
    s.append(8);
    for (const Stage &stage : s.cache.stages()) {
        CHECK(stage.cache->cache().max_length() == 32);
        const auto kept = stage.cache->cache().positions(0, 1);
        CHECK(std::vector(kept.begin(), kept.begin() + 5) ==
              std::vector<int32_t>{0, 1, 10, 11, 12});
    }
    CHECK(s.lengths() == Lengths{40, 40});
    CHECK_FALSE(s.cache.can_truncate(40 - 5)); // some of these tokens were evicted
}

TEST_CASE("a fork has its own caches on the same engines") {
    TwoStages s;
    s.append(10);
    std::vector<Stage> copies = s.cache.fork();
    REQUIRE(copies.size() == 2);
    SequenceCache fork(s.pipeline);
    fork.assign(std::move(copies));
    CHECK(fork.last_engine().name == "b");
    CHECK(fork.first().tokens_seen() == 10);
    s.cache.truncate(4);
    CHECK(fork.first().tokens_seen() == 10);
}

TEST_CASE("a replaced stage frees its old cache") {
    Pipeline pipeline(mini_hybrid({"hybrid.prefill=a", "hybrid.decode=b"}), mini_options());
    Engine &a = *pipeline.engines().find("a"), &b = *pipeline.engines().find("b");
    SequenceCache cache(pipeline);
    cache.add(a, *a.policy_setup);
    CacheManager *old = &cache.first();
    auto fresh = std::make_unique<CacheManager>(*b.policy_setup, b.placement());
    CacheManager *now = fresh.get();
    CHECK(cache.replace(b, std::move(fresh)).get() == old);
    CHECK(&cache.first() == now);
    CHECK(&cache.first_engine() == &b);
}

TEST_CASE("a saved cache is loaded only if it has as many tokens as the text") {
    TwoStages s;
    s.append(10);
    Bytes saved;
    s.cache.save(saved);
    TwoStages other;
    StateReader reader(saved.bytes, "a file");
    other.cache.load(reader, 10);
    CHECK(other.lengths() == Lengths{10, 10});
    StateReader again(saved.bytes, "a file");
    CHECK_THAT(error_text([&] { other.cache.load(again, 11); }),
               Contains("a file: the cache has seen 10 tokens, but the text has 11"));
}
