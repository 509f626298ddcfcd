// Tests of hybrids in which one backend fails. The sequence must continue on another backend, or
// stay, or report clearly what happened. Nothing may hang.
#include "failing_cpu.hpp"
#include "hybrid_rig.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <utility>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

Greedy undisturbed() {
    static const Greedy once = greedy(one_cpu({}), hybrid_opening(), 14);
    return once;
}

const std::vector<std::string> writes_on_b = {"hybrid.prefill=a", "hybrid.decode=b"};

} // namespace

TEST_CASE("if a device is lost while it decodes, the text continues on another backend") {
    for (const auto &[slot, nth] :
         std::initializer_list<std::pair<std::string, uint64_t>>{{"matmul", 1},
                                                                 {"attention", 30},
                                                                 {"buffer_read", 3},
                                                                 {"flush", 4},
                                                                 {"wait", 1},
                                                                 {"buffer_write", 9},
                                                                 {"argmax_rows", 5},
                                                                 {"buffer_commit", 1}}) {
        INFO(slot << " " << nth);
        FailingCpu cpu;
        cpu.backend.asynchronous = nth % 2 == 1;
        {
            Pipeline pipeline(two(writes_on_b), with(cpu, "b"));
            Session session(pipeline);
            cpu.backend.fail_nth(nth, KEEL_E_DEVICE_LOST, slot);
            const Greedy survived = greedy(session, hybrid_opening(), 14);
            CHECK(survived.ids == undisturbed().ids);
            if (cpu.backend.fault_fired()) {
                REQUIRE_FALSE(survived.stats.moves.empty());
                const BackendMove &last = survived.stats.moves.back();
                // If the device was lost while the cache was moved, the sequence stayed. If the
                // device was lost while it decoded, the other backend read the text again.
                CHECK((last.why == BackendMove::Why::lost || !last.refused.empty()));
                CHECK(session.engine().name == "a");
                CHECK(pipeline.engines().find("b")->is_lost());
                session.reset();
                CHECK(greedy(session, hybrid_opening(), 3).ids.size() == 3);
            }
        }
        CHECK(cpu.backend.live().none());
        CHECK(cpu.backend.calls_after_loss() == 0);
    }
}

TEST_CASE("if a device is lost while it reads the prompt, another backend continues") {
    for (const uint64_t nth : {1, 5, 20}) {
        INFO(nth);
        FailingCpu cpu;
        Pipeline pipeline(two(writes_on_b), with(cpu, "a"));
        Session session(pipeline);
        cpu.backend.fail_nth(nth, KEEL_E_DEVICE_LOST, "matmul");
        const Greedy survived = greedy(session, hybrid_opening(), 14);
        REQUIRE(cpu.backend.fault_fired());
        CHECK(survived.ids == undisturbed().ids);
        CHECK(session.engine().name == "b");
        CHECK(survived.stats.moves.at(0).why == BackendMove::Why::lost);
    }
}

TEST_CASE("the tokens of a prompt that is read again are counted once") {
    FailingCpu cpu;
    cpu.backend.prefill_chunk = 8;
    Pipeline pipeline(two(writes_on_b), with(cpu, "a"));
    Session session(pipeline);
    const auto ids = pipeline.tokenizer()->encode(hybrid_opening());
    REQUIRE(ids.size() > 16);
    cpu.backend.fail_nth(40, KEEL_E_DEVICE_LOST,
                         // four products in each of six layers: this one is in the second chunk
                         "matmul");
    session.prefill(ids);
    REQUIRE(cpu.backend.fault_fired());
    CHECK(session.engine().name == "b");
    CHECK(session.stats().prefill_tokens == ids.size());
}

TEST_CASE("protected and pinned tokens stay protected when the text is read again") {
    FailingCpu cpu;
    const std::vector<std::string> policy = {"policy=sliding_window", "policy.budget.tokens=32",
                                             "policy.protect.prefix=4"};
    std::vector<std::string> sets = policy;
    sets.insert(sets.end(), writes_on_b.begin(), writes_on_b.end());
    Pipeline pipeline(two(sets), with(cpu, "b"));
    Session session(pipeline);
    const auto ids = pipeline.tokenizer()->encode(hybrid_opening() + hybrid_opening());
    session.protect_prefix(6, "a test");
    session.pin(10, 14, "a test");
    session.prefill(ids);
    for (int i = 0; i < 20; ++i) {
        if (i == 10) cpu.backend.fail_nth(3, KEEL_E_DEVICE_LOST, "matmul");
        session.decode(session.greedy());
    }
    CHECK(session.tokens() == std::ssize(ids) + 20);
    CHECK(session.engine().name == "a");
    CHECK(session.cache().protected_prefix() == 6);
    CHECK(session.cache().pinned_tokens() == 4);
    const auto kept = session.cache().cache().positions(0, 0);
    for (const int32_t token : {0, 5, 10, 13})
        CHECK(std::find(kept.begin(), kept.end(), token) != kept.end());
}

TEST_CASE(
    "without another backend, a lost device is an error with the step, and the text so far stays") {
    FailingCpu cpu;
    Pipeline pipeline(two({"hybrid.layers=[{range: 0-3, on: a}, {range: 4-5, on: b}]"}),
                      with(cpu, "b"));
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = 14;
    {
        Session session(pipeline);
        options.on_text = [&, calls = 0](std::string_view) mutable {
            if (++calls == 3) cpu.backend.fail_nth(2, KEEL_E_DEVICE_LOST, "matmul");
        };
        const GenerateResult result =
            generate(session, pipeline.tokenizer()->encode(hybrid_opening()), options);
        CHECK(result.reason == StopReason::device_lost);
        CHECK_FALSE(result.text.empty());
        CHECK(std::equal(result.ids.begin(), result.ids.end(), undisturbed().ids.begin()));
        CHECK_THAT(result.detail, Contains("layer 4") && Contains("at token ") &&
                                      Contains("on device '") &&
                                      Contains("no other backend can continue"));
        CHECK(session.is_broken());
    }
    CHECK_THAT(error_text([&] { Session session(pipeline); }, ErrorKind::runtime),
               Contains("lost"));
}

TEST_CASE("if the next backend lacks memory for the text, the one after it reads the text") {
    FailingCpu small, lost;
    PipelineOptions options;
    options.device = [&](const std::string &name) {
        return name == "a" ? small.open() : name == "b" ? lost.open() : nullptr;
    };
    const std::string cpu = "{plugin: cpu, params: {threads: 1}}";
    Pipeline pipeline(
        tiny_config({"hybrid.backends={a: " + cpu + ", b: " + cpu + ", c: " + cpu + "}",
                     "hybrid.prefill=a", "hybrid.decode=b"}),
        options);
    Session session(pipeline);
    session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
    std::vector<int32_t> ids;
    for (int i = 0; i < 14; ++i) {
        if (i == 4) {
            small.backend.max_buffer_bytes = 0;
            lost.backend.fail_nth(1, KEEL_E_DEVICE_LOST, "matmul");
        }
        ids.push_back(session.greedy());
        session.decode(ids.back());
    }
    REQUIRE(lost.backend.fault_fired());
    CHECK(ids == undisturbed().ids);
    CHECK(session.engine().name == "c");
    CHECK(session.stats().moves.back().to == "c");
}

TEST_CASE("if both devices are lost, the run ends with an error") {
    FailingCpu first, second;
    PipelineOptions options;
    options.device = [&](const std::string &name) {
        return name == "a" ? first.open() : second.open();
    };
    Pipeline pipeline(two(writes_on_b), options);
    Session session(pipeline);
    session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
    session.decode(session.greedy());
    second.backend.fail_nth(1, KEEL_E_DEVICE_LOST, "matmul");
    first.backend.fail_nth(2, KEEL_E_DEVICE_LOST, "matmul");
    CHECK_THAT(error_text([&] { session.decode(session.greedy()); }, ErrorKind::runtime),
               Contains("no other backend can continue"));
    CHECK(session.is_broken());
}

TEST_CASE("a backend without memory for the cache is not switched to, and this is reported") {
    for (const std::string warmup : {"0", "4"}) {
        INFO(warmup);
        FailingCpu cpu;
        Pipeline pipeline(two({"hybrid.switch.on=tokens", "hybrid.switch.after_tokens=6",
                               "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=" + warmup}),
                          with(cpu, "b"));
        Session session(pipeline);
        session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
        const uint64_t products = cpu.backend.count("matmul");
        // The moved cache takes 15 buffers, and the warm-up's cache does too. If the warm-up came
        // first, its tokens would be computed before buffer 20 fails.
        cpu.backend.fail_nth(warmup == "0" ? 2 : 20, KEEL_E_OUT_OF_MEMORY, "buffer_create");
        session.reset();
        const Greedy stayed = greedy(session, hybrid_opening(), 14);
        CHECK(cpu.backend.fault_fired());
        CHECK(cpu.backend.count("matmul") == products); // no product belongs to a warm-up
        CHECK(stayed.ids == undisturbed().ids);
        CHECK(stayed.logits == undisturbed().logits);
        CHECK(session.engine().name == "a");
        REQUIRE(stayed.stats.moves.size() == 1);
        CHECK_THAT(stayed.stats.moves[0].refused, Contains("out of memory"));
        CHECK_THAT(move_text(stayed.stats.moves[0]), Contains("refused, decode stays on a"));
    }
}

TEST_CASE("whichever call fails during a switch, the text is the same") {
    for (const keel_status status :
         std::initializer_list<keel_status>{KEEL_E_DEVICE_LOST, KEEL_E_INTERNAL}) {
        uint64_t fired = 0;
        for (const uint64_t nth : {1, 2, 3, 4, 5, 7, 9, 12, 16, 20, 24, 28, 40, 60}) {
            INFO("call " << nth << " with status " << status);
            FailingCpu cpu;
            Pipeline pipeline(two({"hybrid.switch.on=tokens", "hybrid.switch.after_tokens=6",
                                   "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=0"}),
                              with(cpu, "b"));
            Session session(pipeline);
            Greedy out;
            session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
            bool failed = false;
            try {
                for (int i = 0; i < 14; ++i) {
                    out.ids.push_back(session.greedy());
                    if (i == 5) cpu.backend.fail_nth(nth, status);
                    session.decode(out.ids.back());
                }
                // an op that fails in another way is not a fault of the switch
            } catch (const Error &error) {
                failed = true;
                CHECK(status != KEEL_E_DEVICE_LOST);
                CHECK_THAT(error.what(), Contains("backend wrapping"));
            }
            fired += cpu.backend.fault_fired() ? 1 : 0;
            if (!failed) CHECK(out.ids == undisturbed().ids);
        }
        CHECK(fired > 8);
    }
}

TEST_CASE("a backend that fails during its warm-up is not switched to") {
    FailingCpu cpu;
    Pipeline pipeline(two({"hybrid.switch.on=tokens", "hybrid.switch.after_tokens=8",
                           "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=4"}),
                      with(cpu, "b"));
    Session session(pipeline);
    cpu.backend.fail_nth(20, KEEL_E_DEVICE_LOST, "matmul");
    const Greedy stayed = greedy(session, hybrid_opening(), 14);
    CHECK(cpu.backend.fault_fired());
    CHECK(stayed.ids == undisturbed().ids);
    CHECK(session.engine().name == "a");
    REQUIRE(stayed.stats.moves.size() == 1);
    CHECK_THAT(stayed.stats.moves[0].refused, Contains("lost"));
}

// ---- the fallback -------------------------------------------------------------------------------

namespace {

bool is_gate(keel_op op, const keel_op_args *) { return op == KEEL_OP_SILU_MUL; }

} // namespace

TEST_CASE("if a fallback is lost, the text continues on a backend that needs none") {
    for (const uint64_t nth : {1, 30}) {
        INFO(nth);
        FailingCpu picky, fallback;
        picky.backend.refuse_plan = is_gate;
        PipelineOptions options = with(picky, "b");
        options.fallback = [&] { return fallback.open(); };
        Pipeline pipeline(two(writes_on_b), options);
        Session session(pipeline);
        fallback.backend.fail_nth(nth, KEEL_E_DEVICE_LOST, "silu_mul");
        const Greedy survived = greedy(session, hybrid_opening(), 14);
        REQUIRE(fallback.backend.fault_fired());
        CHECK(survived.ids == undisturbed().ids);
        CHECK(session.engine().name == "a");
        REQUIRE_FALSE(survived.stats.moves.empty());
        CHECK(survived.stats.moves.back().why == BackendMove::Why::lost);
        CHECK_FALSE(pipeline.engines().find("b")->device().is_lost());
        CHECK(pipeline.engines().find("b")->is_lost());
        CHECK(fallback.backend.calls_after_loss() == 0);
        session.reset();
        CHECK(greedy(session, hybrid_opening(), 14).ids == undisturbed().ids);
    }
}

TEST_CASE("if a fallback is lost and no other backend exists, the text ends and stays") {
    FailingCpu picky, fallback;
    picky.backend.refuse_plan = is_gate;
    PipelineOptions options = with(picky, "cpu");
    options.fallback = [&] { return fallback.open(); };
    Pipeline pipeline(one_cpu({}), options);
    GenerateOptions writing = generate_options(pipeline.config());
    writing.max_tokens = 14;
    writing.on_text = [&, calls = 0](std::string_view) mutable {
        if (++calls == 3) fallback.backend.fail_nth(2, KEEL_E_DEVICE_LOST, "silu_mul");
    };
    Session session(pipeline);
    const GenerateResult result =
        generate(session, pipeline.tokenizer()->encode(hybrid_opening()), writing);
    REQUIRE(fallback.backend.fault_fired());
    CHECK(result.reason == StopReason::device_lost);
    CHECK_FALSE(result.text.empty());
    CHECK(result.ids.size() >= 3);
    CHECK_THAT(result.detail, Contains("silu_mul") && Contains("on device '") &&
                                  Contains("no other backend can continue"));
    CHECK(session.is_broken());
    CHECK(fallback.backend.calls_after_loss() == 0);
}
