// Tests that a step with rows of several sequences gives each sequence the same result as a step of
// its own.
#include "run/step_runner.hpp"

#include "mini_run.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

namespace {

using Logits = std::vector<float>;

PipelineOptions two_sequences() {
    PipelineOptions options = mini_options();
    options.sequences = 4;
    options.max_logit_rows = 2;
    return options;
}

// A sequence on all engines that hold layers.
struct OnEngines : Sequence {
    explicit OnEngines(Pipeline &p) : Sequence(p) {
        for (const auto &engine : p.engines()) cache.add(*engine, *engine->policy_setup);
    }
    // Prepares a step that can be queued.
    void prepare(const std::vector<int32_t> &ids, uint32_t rows) {
        take_in(ids, StepKind::prefill_chunk, rows);
    }
    Logits read(uint32_t first_row = 0) {
        results.set_first_row(first_row);
        const auto rows = results.read_logits(256);
        cache.finish_step();
        return {rows.begin(), rows.end()};
    }
};

const std::vector<int32_t> first = {5, 17, 200}, second = {90, 3}, third = {41};

void check_rows(const pipeline::PipelineConfig &config) {
    Pipeline pipeline(config, two_sequences());
    StepRunner runner;
    OnEngines a(pipeline), b(pipeline), alone_a(pipeline), alone_b(pipeline);
    runner.step(alone_a, first, StepKind::prefill_chunk, 1);
    const Logits of_a = alone_a.read();
    runner.step(alone_b, second, StepKind::prefill_chunk, 1);
    const Logits of_b = alone_b.read();
    REQUIRE(of_a.size() == 256);
    REQUIRE_FALSE(is_close(of_a, of_b));

    a.prepare(first, 1);
    b.prepare(second, 1);
    const std::vector<const SequenceRows *> rows = {&a.step, &b.step};
    runner.run(rows);
    CHECK(is_close(a.read(0), of_a));
    CHECK(is_close(b.read(1), of_b));

    // The first sequence has no logits, so the first row belongs to the second sequence.
    runner.step(alone_b, third, StepKind::decode, 1);
    const Logits next = alone_b.read();
    a.prepare(second, 0);
    b.prepare(third, 1);
    runner.run(rows);
    CHECK(is_close(b.read(0), next));
    CHECK(a.read().empty());
}

} // namespace

TEST_CASE("rows of two sequences in one step get the logits of separate steps") {
    check_rows(mini_config({"model.context=96"}));
}

TEST_CASE("between two engines, each sequence keeps its rows of the residual stream") {
    check_rows(mini_hybrid(
        {"model.context=96", "hybrid.layers=[{range: 0-0, on: a}, {range: 1-1, on: b}]"}));
}

TEST_CASE("a step adds its tokens to the text and the cache") {
    Pipeline pipeline(mini_config({"model.context=96"}), two_sequences());
    StepRunner runner;
    OnEngines sequence(pipeline);
    runner.step(sequence, first, StepKind::prefill_end, 2);
    CHECK(sequence.text.size() == 3);
    CHECK(sequence.cache.first().tokens_seen() == 3);
    CHECK(sequence.cache.has_open_step());
    CHECK(sequence.results.rows() == 2);
    CHECK_FALSE(sequence.results.has_logits());
    CHECK(sequence.read().size() == 2 * 256);
}
