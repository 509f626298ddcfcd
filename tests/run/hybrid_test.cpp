// End-to-end tests on models/tiny of backends that take turns or hold different layers.
#include "config/config_writer.hpp"
#include "hybrid_rig.hpp"
#include "run/explain.hpp"
#include "run/session_file.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

std::string long_prompt() {
    std::string text;
    for (int i = 0; i < 8; ++i) text += hybrid_opening();
    return text;
}

const std::vector<std::vector<std::string>> policies = {
    {},
    {"policy=sliding_window", "policy.budget.tokens=64", "policy.protect.prefix=4"},
    {"policy=sliding_window", "policy.budget.tokens=64", "policy.protect.prefix=4",
     "policy.positions=rerotated"},
    {"policy=sliding_window", "policy.budget.tokens=64", "policy.protect.prefix=4",
     "policy.positions=rerotated", "kv.dtype=q8_0"},
    {"policy=snapkv", "policy.budget.tokens=64"},
    {"policy=h2o", "policy.budget.tokens=64"},
    {"policy=expected_attention", "policy.budget.tokens=64"},
};

void check_same(const Greedy &a, const Greedy &b) {
    CHECK(a.ids == b.ids);
    CHECK(a.logits == b.logits); // bitwise equal
    CHECK(a.stats.evictions == b.stats.evictions);
    CHECK(a.stats.evicted_tokens == b.stats.evicted_tokens);
    CHECK(a.stats.kv_bytes == b.stats.kv_bytes);
}

} // namespace

TEST_CASE("prefill and decode can be on two backends, for every KV dtype") {
    for (const std::string dtype : {"f32", "f16", "bf16", "q8_0", "q4_0"}) {
        INFO(dtype);
        const Greedy one = greedy(one_cpu({"kv.dtype=" + dtype}), hybrid_opening(), 16);
        Pipeline pipeline(two({"kv.dtype=" + dtype, "hybrid.prefill=a", "hybrid.decode=b"}));
        Session session(pipeline);
        CHECK(session.engine().name == "a");
        const Greedy split = greedy(session, hybrid_opening(), 16);
        CHECK(session.engine().name == "b");
        check_same(split, one);
        REQUIRE(split.stats.moves.size() == 1);
        const BackendMove &move = split.stats.moves[0];
        CHECK(move.from == "a");
        CHECK(move.to == "b");
        CHECK(move.why == BackendMove::Why::phase);
        CHECK(move.tokens == static_cast<int64_t>(split.stats.prefill_tokens));
        CHECK(move.bytes ==
              static_cast<uint64_t>(move.tokens) * pipeline.kv_shape().bytes_per_token());
        // A second prompt goes back to the backend that reads prompts.
        session.prefill(pipeline.tokenizer()->encode(" And then"));
        CHECK(session.engine().name == "a");
        session.reset();
        check_same(greedy(session, hybrid_opening(), 16), one);
    }
}

TEST_CASE("a switch after some tokens does not change the text, under every policy") {
    for (const auto &policy : policies) {
        INFO(policy.size() << (policy.empty() ? "" : policy[0]));
        const Greedy one = greedy(one_cpu(policy), long_prompt(), 40);
        for (const std::string warmup : {"0", "5"}) {
            std::vector<std::string> sets = policy;
            sets.insert(sets.end(),
                        {"hybrid.switch.on=tokens", "hybrid.switch.after_tokens=20",
                         "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=" + warmup});
            const Greedy switched = greedy(two(sets), long_prompt(), 40);
            check_same(switched, one);
            REQUIRE(switched.stats.moves.size() == 1);
            const BackendMove &move = switched.stats.moves[0];
            CHECK(move.why == BackendMove::Why::tokens);
            CHECK(move.refused.empty());
            CHECK(move.tokens == static_cast<int64_t>(switched.stats.prefill_tokens) + 19);
            CHECK(move.warmup_tokens == (warmup == "5" ? 5 : 0));
            CHECK_THAT(move_text(move),
                       Contains("a -> b after ") && Contains("switch.after_tokens"));
        }
    }
}

TEST_CASE("each backend can have its own dtypes of keys and values") {
    const std::string exact_products = "backend.params.compute=exact";
    Pipeline pipeline(tiny_config(
        {"hybrid.backends={a: {plugin: cpu, kv: f32, params: {compute: exact}}, b: {plugin: cpu, "
         "kv: {key_dtype: q8_0, value_dtype: bf16}, params: {compute: exact}}}",
         "hybrid.prefill=a", "hybrid.decode=b"}));
    CHECK(pipeline.engines().find("a")->kv_shape.key_dtype == KEEL_DTYPE_F32);
    CHECK(pipeline.engines().find("b")->kv_shape.key_dtype == KEEL_DTYPE_Q8_0);
    CHECK(pipeline.engines().find("b")->kv_shape.value_dtype == KEEL_DTYPE_BF16);
    // Products are exact here, so the rounding of the caches can be compared. All runs get the same
    // tokens, so that their logits can be compared whatever the texts are.
    const std::vector<int32_t> text =
        greedy(one_cpu({"kv.dtype=f32", exact_products}), hybrid_opening(), 12).ids;
    const auto exact = logits_of(one_cpu({"kv.dtype=f32", exact_products}), hybrid_opening(), text);
    const auto coarse =
        logits_of(one_cpu({"kv.key_dtype=q8_0", "kv.value_dtype=bf16", exact_products}),
                  hybrid_opening(), text);
    Session session(pipeline);
    const auto mixed = logits_of(session, hybrid_opening(), text);
    CHECK(session.engine().name == "b");
    REQUIRE(worst_gap(coarse, exact) > 0);
    // the moved keys are rounded once, as in the other cache
    CHECK(worst_gap(mixed, exact) < 1.5 * worst_gap(coarse, exact));
    TempFolder folder;
    CHECK_THAT(error_text([&] { save_session(session, folder.path() / "s"); }),
               Contains("different types"));
}

TEST_CASE("a cache with rotated keys can move between dtypes of keys") {
    for (const std::string kinds : {"{a: {plugin: cpu, kv: f16}, b: {plugin: cpu, kv: q8_0}}",
                                    "{a: {plugin: cpu, kv: q4_0}, b: {plugin: cpu, kv: f32}}"}) {
        INFO(kinds);
        Pipeline pipeline(tiny_config(
            {"hybrid.backends=" + kinds, "hybrid.switch.on=[tokens, command]",
             "hybrid.switch.after_tokens=10", "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=0",
             "policy=sliding_window", "policy.budget.tokens=48", "policy.protect.prefix=4",
             "policy.positions=rerotated"}));
        Session session(pipeline);
        session.prefill(pipeline.tokenizer()->encode(long_prompt()));
        std::vector<int32_t> ids;
        std::vector<std::vector<float>> logits;
        for (int i = 0; i < 40; ++i) {
            if (i == 25)
                CHECK(session.switch_to(*pipeline.engines().find("a")) == Session::Switch::done);
            ids.push_back(session.greedy());
            session.decode(ids.back());
            logits.emplace_back(session.logits().begin(), session.logits().end());
            const KvCache &cache = session.cache().cache();
            CHECK(cache.max_length() <= 48 + 6 + 1);
            // Distances follow the slots, on whichever backend the keys are.
            const auto positions = cache.positions(3, 0);
            CHECK(positions.back() - positions[5] == std::ssize(positions) - 6);
        }
        CHECK(session.stats().evictions > 3);
        CHECK(session.stats().moves.size() == 2);
        // The other backend reads what this backend wrote: the error is not larger than the error
        // of the coarser dtype alone.
        const std::string coarser = kinds.find("q4_0") != std::string::npos ? "q4_0" : "q8_0";
        const auto stays = [&](const std::string &dtype) {
            return logits_of(
                one_cpu({"kv.dtype=" + dtype, "policy=sliding_window", "policy.budget.tokens=48",
                         "policy.protect.prefix=4", "policy.positions=rerotated"}),
                long_prompt(), ids);
        };
        const auto exact = stays("f32"), coarse = stays(coarser);
        INFO("coarse " << worst_gap(coarse, exact) << ", moved " << worst_gap(logits, exact));
        CHECK(worst_gap(logits, exact) < 1.5 * worst_gap(coarse, exact));
    }
}

TEST_CASE("the new backend runs the dummy tokens before the switch, and the text is unchanged") {
    Pipeline pipeline(two({"hybrid.switch.on=tokens", "hybrid.switch.after_tokens=6",
                           "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=4"}));
    Session session(pipeline);
    Executor &b = *pipeline.engines().find("b")->executor;
    int before = 0, afterwards = 0, before_by_then = -1;
    pipeline.engines().set_observer(
        [&](Executor &executor, const PlannedOp &op, const keel_op_args *, bool after) {
            if (after || &executor != &b || op.op() != KEEL_OP_EMBED) return;
            ++(session.engine().name == "a" ? before : afterwards);
        });
    session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
    std::vector<int32_t> ids;
    for (int i = 0; i < 12; ++i) {
        if (i == 5) before_by_then = before;
        ids.push_back(session.greedy());
        session.decode(ids.back());
    }
    pipeline.engines().set_observer({});
    CHECK(before_by_then == 0); // the two backends do not compute a step together
    CHECK(before == 4);
    CHECK(afterwards == 7);
    CHECK(session.stats().moves.at(0).warmup_tokens == 4);
    CHECK(session.engine().name == "b");
    CHECK(ids == greedy(one_cpu({}), hybrid_opening(), 12).ids);
}

TEST_CASE("a warm-up ends when its cache is full") {
    const Greedy switched =
        greedy(two({"hybrid.switch.on=tokens", "hybrid.switch.after_tokens=4", "hybrid.switch.to=b",
                    "hybrid.switch.warmup_tokens=1000", "model.context=64"}),
               "Once upon a time", 8);
    CHECK(switched.ids == greedy(one_cpu({}), "Once upon a time", 8).ids);
    CHECK(switched.stats.moves.at(0).warmup_tokens == 64);
}

TEST_CASE("a fork switches like its parent") {
    PipelineOptions options;
    options.sequences = 2;
    Pipeline pipeline(two({"hybrid.switch.on=tokens", "hybrid.switch.after_tokens=10",
                           "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=4"}),
                      options);
    Session session(pipeline);
    session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
    std::vector<int32_t> ids;
    const auto write = [](Session &s, std::vector<int32_t> &text, size_t upto) {
        while (text.size() < upto) {
            text.push_back(s.greedy());
            s.decode(text.back());
        }
    };
    write(session, ids, 8);
    CHECK(session.engine().name == "a");
    const std::unique_ptr<Session> fork = session.fork();
    std::vector<int32_t> forked = ids;
    write(session, ids, 16);
    write(*fork, forked, 16);
    for (Session *s : {&session, fork.get()}) {
        CHECK(s->engine().name == "b");
        REQUIRE(s->stats().moves.size() == 1);
        CHECK(s->stats().moves[0].warmup_tokens == 4);
    }
    const Greedy one = greedy(one_cpu({}), hybrid_opening(), 16);
    CHECK(ids == one.ids);
    CHECK(forked == one.ids);
}

TEST_CASE("switching to the current backend does not change the config's switch") {
    Pipeline pipeline(two({"hybrid.switch.on=[tokens, command]", "hybrid.switch.after_tokens=6",
                           "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=4"}));
    Session session(pipeline);
    session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
    for (int i = 0; i < 8; ++i) {
        if (i == 2)
            CHECK(session.switch_to(*pipeline.engines().find("a")) == Session::Switch::there);
        session.decode(session.greedy());
    }
    CHECK(session.engine().name == "b");
    REQUIRE(session.stats().moves.size() == 1);
    CHECK(session.stats().moves[0].why == BackendMove::Why::tokens);
}

TEST_CASE("another instruction set is another backend") {
    const Greedy one = greedy(one_cpu({}), hybrid_opening(), 16);
    const Greedy split =
        greedy(tiny_config({"hybrid.backends={plain: {plugin: cpu, params: {isa: scalar, threads: "
                            "1}}, quick: cpu, ref: reference}",
                            "hybrid.prefill=quick", "hybrid.decode=plain"}),
               hybrid_opening(), 16);
    CHECK(split.ids == one.ids);
}

TEST_CASE("memory pressure switches immediately") {
    const auto monitor = std::make_shared<ScriptedMonitor>();
    PipelineOptions options;
    options.monitor = monitor;
    Pipeline pipeline(
        two({"hybrid.switch.on=pressure", "hybrid.switch.to=b", "hybrid.switch.available_mib=64"}),
        options);
    const Greedy one = greedy(one_cpu({}), hybrid_opening(), 8);
    {
        Session session(pipeline);
        const Greedy calm = greedy(session, hybrid_opening(), 8);
        check_same(calm, one);
        CHECK(calm.stats.moves.empty());
    }
    monitor->available = 1 << 20;
    Session session(pipeline);
    const Greedy pressed = greedy(session, hybrid_opening(), 8);
    check_same(pressed, one);
    REQUIRE(pressed.stats.moves.size() == 1);
    CHECK(pressed.stats.moves[0].why == BackendMove::Why::pressure);
    CHECK(session.engine().name == "b");
}

TEST_CASE("a switch by a call works with and without a warm-up") {
    const Greedy one = greedy(one_cpu({}), hybrid_opening(), 12);
    Pipeline warm(two({"hybrid.switch.on=command", "hybrid.switch.warmup_tokens=3"})),
        cold(two({"hybrid.switch.on=command", "hybrid.switch.warmup_tokens=0"})),
        fixed(two({"hybrid.prefill=a", "hybrid.decode=b"}));
    for (Pipeline *pipeline : {&warm, &cold}) {
        Session session(*pipeline);
        Engine &b = *pipeline->engines().find("b");
        session.prefill(pipeline->tokenizer()->encode(hybrid_opening()));
        std::vector<int32_t> ids;
        for (int i = 0; i < 12; ++i) {
            if (i == 4) CHECK(session.switch_to(b) == Session::Switch::done);
            ids.push_back(session.greedy());
            session.decode(ids.back());
        }
        CHECK(ids == one.ids);
        CHECK(session.engine().name == "b");
        CHECK(session.switch_to(b) == Session::Switch::there);
        REQUIRE(session.stats().moves.size() == 1);
        CHECK(session.stats().moves[0].why == BackendMove::Why::command);
        CHECK(session.stats().moves[0].warmup_tokens == (pipeline == &warm ? 3 : 0));
        session.reset();
        CHECK(session.engine().name == "a");
        CHECK(session.switch_to(b) == Session::Switch::done); // there is nothing to move
    }
    Session session(fixed);
    CHECK_THAT(error_text([&] { session.switch_to(*fixed.engines().find("a")); }, ErrorKind::usage),
               Contains("hybrid.switch.on"));
}

TEST_CASE("a session can be saved on any backend, and a fork moves independently") {
    TempFolder folder;
    const Greedy one = greedy(one_cpu({}), hybrid_opening(), 10);
    Pipeline pipeline(
        [] {
            auto config = two({"hybrid.prefill=a", "hybrid.decode=b"});
            return config;
        }(),
        [] {
            PipelineOptions options;
            options.sequences = 2;
            return options;
        }());
    Session session(pipeline);
    session.prefill(pipeline.tokenizer()->encode(hybrid_opening()));
    std::vector<int32_t> ids;
    for (int i = 0; i < 5; ++i) {
        ids.push_back(session.greedy());
        session.decode(ids.back());
    }
    const auto fork = session.fork();
    CHECK(fork->engine().name == "b");
    session.set_pending(session.greedy());
    save_session(session, folder.path() / "s");
    Session again(pipeline);
    load_session(again, folder.path() / "s");
    std::vector<int32_t> forked = ids;
    for (int i = 0; i < 5;
         // one after the other, because all steps of a pipeline store their results in the same
         // memory
         ++i) {
        ids.push_back(i == 0 ? *again.pending() : again.greedy());
        again.decode(ids.back());
    }
    for (int i = 0; i < 5; ++i) {
        forked.push_back(fork->greedy());
        fork->decode(forked.back());
    }
    CHECK(ids == one.ids);
    CHECK(forked == one.ids);
}

TEST_CASE("layers on two backends give the results of one backend") {
    for (const auto &policy : policies) {
        INFO(policy.size() << (policy.empty() ? "" : policy[0]));
        for (const std::string layers :
             {"[{range: 0-2, on: a}, {range: 3-5, on: b}]",
              "[{range: 0, on: b}, {range: 1-3, on: a}, {range: 4-5, on: b}]"}) {
            std::vector<std::string> sets = policy;
            sets.push_back("hybrid.layers=" + layers);
            const Greedy one = greedy(one_cpu(policy), long_prompt(), 24);
            const Greedy split = greedy(two(sets), long_prompt(), 24);
            check_same(split, one);
        }
    }
    Pipeline pipeline(
        two({"hybrid.layers=[{range: 0-3, on: a}, {range: 4-5, on: b}]", "kv.max_mib=3"}));
    CHECK(pipeline.engines()[0]->kv_shape.layers == 4);
    CHECK(pipeline.engines()[1]->kv_shape.layers == 2);
    CHECK(pipeline.engines()[0]->kv_shape.max_bytes + pipeline.engines()[1]->kv_shape.max_bytes ==
          3u << 20);
    CHECK(pipeline.engines()[1]->weights->part() == LayerRange{4, 6});
    CHECK_THAT(explain_pipeline(pipeline), Contains("layers 0 to 3: a") &&
                                               Contains("layers 4 to 5: b") &&
                                               Contains("bytes that cross per token: 2048"));
    const Greedy whole = greedy(one_cpu({}), hybrid_opening(), 2);
    Session session(pipeline);
    CHECK(greedy(session, hybrid_opening(), 2).stats.kv_bytes == whole.stats.kv_bytes);
    TempFolder folder;
    CHECK_THAT(error_text([&] { save_session(session, folder.path() / "s"); }),
               Contains("several backends"));
}
