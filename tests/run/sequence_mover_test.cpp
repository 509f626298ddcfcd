// Tests of a sequence that moves to another engine, that stays because it cannot move, or whose
// text is read again by the other engine.
#include "run/sequence_mover.hpp"

#include "mini_run.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
using Why = BackendMove::Why;

namespace {

// A sequence on backend a that may move to backend b. One of the two fails on demand. If this is b,
// it takes 8 tokens in a step.
struct Moving {
    explicit Moving(const std::string &failing = "b")
        : pipeline(mini_hybrid({"model.context=96", "hybrid.prefill=a", "hybrid.decode=b"}),
                   options(failing)),
          sequence(pipeline), ahead(sequence), mover(sequence, runner, ahead),
          a(*pipeline.engines().find("a")), b(*pipeline.engines().find("b")) {
        sequence.cache.add(a, *a.policy_setup);
        ids.resize(10);
        std::iota(ids.begin(), ids.end(), 20);
    }
    PipelineOptions options(const std::string &failing) {
        if (failing == "b") cpu.backend.prefill_chunk = 8;
        return mini_options(with(cpu, failing));
    }
    void read_prompt() {
        runner.step(sequence, ids, StepKind::prefill_end, 0);
        sequence.cache.finish_step();
    }
    // Returns the logits after one more token.
    std::vector<float> next_logits() {
        const int32_t id = 7;
        runner.step(sequence, {&id, 1}, StepKind::decode, 1);
        const auto logits = sequence.results.read_logits(256);
        return {logits.begin(), logits.end()};
    }
    const std::vector<BackendMove> &moves() { return sequence.meter.read(sequence.cache).moves; }
    std::vector<int32_t> text() const {
        const auto tokens = sequence.text.tokens();
        return {tokens.begin(), tokens.end()};
    }

    FailingCpu cpu;
    Pipeline pipeline;
    Sequence sequence;
    StepRunner runner;
    AheadStep ahead;
    SequenceMover mover;
    Engine &a, &b;
    std::vector<int32_t> ids;
};

// Returns the logits after the ten tokens on a backend without moves.
const std::vector<float> &undisturbed() {
    static const std::vector<float> logits = [] {
        Moving m;
        m.read_prompt();
        return m.next_logits();
    }();
    return logits;
}

} // namespace

TEST_CASE("a move copies tokens, keys and values, and is recorded") {
    Moving m;
    m.read_prompt();
    CHECK(m.mover.move(m.a, Why::command)); // the sequence is already there
    CHECK(m.moves().empty());
    CHECK(m.mover.move(m.b, Why::phase, 3));
    CHECK(&m.mover.current_engine() == &m.b);
    REQUIRE(m.moves().size() == 1);
    const BackendMove &move = m.moves()[0];
    CHECK(move.from == "a");
    CHECK(move.to == "b");
    CHECK(move.why == Why::phase);
    CHECK(move.tokens == 10);
    CHECK(move.warmup_tokens == 3);
    CHECK(move.refused.empty());
    // 10 tokens in 2 layers with 2 heads of 16 + 16 elements in f16.
    CHECK(move.bytes == 10 * 2 * 2 * (16 + 16) * 2);
    CHECK(is_close(m.next_logits(), undisturbed()));
}

TEST_CASE("a sequence without tokens moves without a record") {
    Moving m;
    CHECK(m.mover.move(m.b, Why::phase));
    CHECK(&m.mover.current_engine() == &m.b);
    CHECK(m.moves().empty());
}

TEST_CASE("a backend without memory for the cache is refused, and runs no dummy token") {
    Moving m;
    m.read_prompt();
    m.cpu.backend.clear_calls();
    m.cpu.backend.max_buffer_bytes = 0;
    CHECK_FALSE(m.mover.move(m.b, Why::tokens, 3));
    CHECK(m.cpu.backend.count("matmul") == 0);
    CHECK(&m.mover.current_engine() == &m.a);
    REQUIRE(m.moves().size() == 1);
    CHECK_FALSE(m.moves()[0].refused.empty());
    CHECK(m.moves()[0].warmup_tokens == 0);
    CHECK(is_close(m.next_logits(), undisturbed()));
}

TEST_CASE(
    "after a move that fails halfway, the sequence reads its tokens again on the old engine") {
    bool was_read_again = false;
    for (uint64_t nth = 1; nth < 100; ++nth) { // fails each write to b
        INFO(nth);
        Moving m;
        m.read_prompt();
        m.sequence.text.set_pending(99);
        const uint64_t before = m.a.executor->stream().counters().ops;
        m.cpu.backend.fail_nth(nth, KEEL_E_INTERNAL, "buffer_write");
        const bool has_moved = m.mover.move(m.b, Why::tokens);
        CHECK(has_moved == !m.cpu.backend.fault_fired());
        CHECK(m.text() == m.ids);
        CHECK(m.sequence.text.pending() == 99);
        CHECK(m.sequence.cache.first().tokens_seen() == 10);
        if (has_moved) break;
        CHECK(&m.mover.current_engine() == &m.a);
        REQUIRE(m.moves().size() == 1);
        CHECK_FALSE(m.moves()[0].refused.empty());
        was_read_again = was_read_again || m.a.executor->stream().counters().ops > before;
        CHECK(is_close(m.next_logits(), undisturbed()));
    }
    CHECK(was_read_again);
}

TEST_CASE("after a lost device, the first tokens are read again on the next possible engine") {
    Moving m("a");
    m.read_prompt();
    m.cpu.backend.fail_nth(1, KEEL_E_DEVICE_LOST, "matmul");
    const std::string lost = error_text([&] { m.next_logits(); }, ErrorKind::runtime);
    REQUIRE(m.a.is_lost());
    const std::vector<Engine *> candidates = {&m.a, &m.b};
    Engine &engine = m.mover.reread(candidates, 10, Error(ErrorKind::runtime, lost));
    CHECK(&engine == &m.b);
    CHECK(m.cpu.backend.calls_after_loss() == 0); // the lost backend gets no further call
    CHECK(m.text() == m.ids); // the text does not contain the token of the lost step
    REQUIRE(m.moves().size() == 1);
    CHECK(m.moves()[0].why == Why::lost);
    CHECK(m.moves()[0].tokens == 10);
    CHECK(m.moves()[0].reread_tokens == 10);
    CHECK(m.moves()[0].to == "b");
    CHECK(is_close(m.next_logits(), undisturbed()));
}

TEST_CASE("if no other backend can continue, the error says so, and the text is kept") {
    Moving m("a");
    m.read_prompt();
    m.cpu.backend.fail_nth(1, KEEL_E_DEVICE_LOST, "matmul");
    const std::string lost = error_text([&] { m.next_logits(); }, ErrorKind::runtime);
    const std::vector<Engine *> candidates = {&m.a};
    CHECK_THAT(error_text([&] { m.mover.reread(candidates, 10, Error(ErrorKind::runtime, lost)); },
                          ErrorKind::runtime),
               Contains(lost) && Contains("at token 11 on device '") &&
                   Contains("no other backend can continue"));
    CHECK(m.text() == m.ids);
    CHECK(m.moves().empty());
}

TEST_CASE("a step that is run again is divided into steps of the new engine's size") {
    Moving m;
    REQUIRE(m.mover.move(m.b, Why::phase));
    m.cpu.backend.clear_calls();
    std::vector<int32_t> many(20, 33);
    m.mover.retake(many, StepKind::prefill_end, 1);
    CHECK(m.sequence.text.size() == 20); // read in steps of 8, 8 and 4 tokens
    CHECK(m.cpu.backend.count("embed") == 3);
    CHECK(m.sequence.results.rows() == 1);
    CHECK(m.sequence.step.ids.size() == 4);
    CHECK(m.sequence.step.kind == StepKind::prefill_end);
}
