// Tests of models whose layers have attention windows. Their logits must equal those of a cache
// that keeps all tokens. They must hold only their window. Forks, saves and moves must include both
// caches.
#include "windowed_rig.hpp"

#include "run/memory_need.hpp"
#include "run/session_file.hpp"
#include "support/error_text.hpp"
#include "support/texts_at_once.hpp"

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

std::unique_ptr<Pipeline> open(const Sets &sets, PipelineOptions options = {}) {
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets), options);
}

// Returns the bytes that a sequence of `tokens` tokens holds if the policy keeps all tokens.
uint64_t held_bytes_of(const Pipeline &p, int64_t tokens) {
    const KvShape &main = p.policy_setup().shape(), &windowed = p.engine().windowed.shape;
    return main.bytes_of(main.held_slots(tokens)) + windowed.bytes_of(windowed.held_slots(tokens));
}

uint64_t uncut_bytes(const Pipeline &p, int64_t tokens) {
    KvShape shape = p.kv_shape();
    shape.layers = static_cast<uint32_t>(p.model().layers);
    return shape.bytes_of(tokens);
}

std::vector<int32_t> greedy_text(Session &session, int64_t prompt, int64_t tokens) {
    session.prefill(some_tokens(prompt));
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i) {
        ids.push_back(session.greedy(true));
        session.decode(ids.back());
    }
    return ids;
}

} // namespace

TEST_CASE("Layers that hold only their window give the logits of a full cache") {
    for (const std::string shape : {"gemma3", "gemma2", "mistral"}) {
        INFO(shape);
        const auto pipeline = open(windowed_sets(shape, "cpu"));
        Session session(*pipeline);
        UncutRun uncut(*pipeline);
        CHECK(gap_to_uncut(session, uncut, {70, 130, 64, 140}, 150) < 1e-5);
        CHECK(session.kv_bytes() == held_bytes_of(*pipeline, session.tokens()));
        CHECK(session.kv_bytes() < uncut_bytes(*pipeline, session.tokens()));
    }
    for (const std::string kv : {"f16", "q8_0"}) {
        INFO(kv);
        const auto pipeline =
            open(windowed_sets("gemma3", "cpu", {"kv.dtype=" + kv, "backend.params.compute=fast"}));
        Session session(*pipeline);
        UncutRun uncut(*pipeline);
        CHECK(gap_to_uncut(session, uncut, {130, 140}, 70) < 1e-4);
    }
    const auto pipeline = open(windowed_sets("gemma2", "reference"));
    Session session(*pipeline);
    UncutRun uncut(*pipeline);
    CHECK(gap_to_uncut(session, uncut, {100, 90}, 4) < 1e-5);
    CHECK(session.cache().caches().window()->max_length() < 190);
}

TEST_CASE("A window costs after 2,000 tokens what it costs after 500") {
    const auto pipeline = open(windowed_sets("gemma3", "cpu"));
    Session session(*pipeline);
    session.prefill(some_tokens(2000), false);
    const KvCache &window = *session.cache().caches().window();
    CHECK(window.max_length() == window.shape().held_slots(2000));
    CHECK(window.max_length() < 40 + 2 * 64);
    CHECK(session.cache().cache().max_length() == 2000);
    CHECK(session.kv_bytes() == held_bytes_of(*pipeline, 2000));
    // 2 of 6 layers hold all tokens.
    CHECK(session.kv_bytes() < 2 * uncut_bytes(*pipeline, 2000) / 5);
    CHECK(session.stats().kv_peak_bytes <=
          session.cache().cache().bytes_in_use() + pipeline->engine().window_bytes());
}

TEST_CASE("A fork, a truncated sequence and a loaded session continue like the sequence") {
    for (const std::string shape : {"gemma3", "mistral"}) {
        INFO(shape);
        PipelineOptions options;
        options.sequences = 2;
        const auto pipeline = open(windowed_sets(shape, "cpu"), options);
        Session session(*pipeline);
        greedy_text(session, 300, 30);
        const TempFolder folder;
        save_session(session, folder.path() / "a.session");
        const auto fork = session.fork();
        std::vector<int32_t> expected;
        for (int i = 0; i < 90; ++i) {
            expected.push_back(session.greedy());
            session.decode(expected.back());
        }
        const auto go_on = [&](Session &other) {
            std::vector<int32_t> ids;
            for (int i = 0; i < 90; ++i) {
                ids.push_back(other.greedy());
                other.decode(ids.back());
            }
            return ids;
        };
        CHECK(go_on(*fork) == expected);

        Session loaded(*pipeline);
        load_session(loaded, folder.path() / "a.session");
        CHECK(loaded.kv_bytes() == held_bytes_of(*pipeline, 330));
        loaded.decode(expected.front());
        const float first = loaded.logits()[7];
        // Removes a few tokens, then appends the same tokens again.
        loaded.truncate(1);
        loaded.decode(expected.front());
        CHECK(loaded.logits()[7] == Approx(first).margin(1e-5));
        std::vector<int32_t> rest{expected.front()};
        while (rest.size() < expected.size()) {
            rest.push_back(loaded.greedy());
            loaded.decode(rest.back());
        }
        CHECK(rest == expected);
        CHECK_THAT(error_text([&] { loaded.truncate(300); }, ErrorKind::usage),
                   Contains("attention window of 40 tokens"));
        loaded.truncate(loaded.tokens());
        CHECK(loaded.kv_bytes() == 0);
    }
}

TEST_CASE("A session without windows is not loaded into a cache with windows") {
    const TempFolder folder;
    const auto narrow = open(windowed_sets("gemma3", "cpu", {"model.context=40"}));
    Session session(*narrow);
    session.prefill(some_tokens(30));
    save_session(session, folder.path() / "a.session");
    const auto wide = open(windowed_sets("gemma3", "cpu"));
    Session loaded(*wide);
    CHECK_THAT(
        error_text([&] { load_session(loaded, folder.path() / "a.session"); }, ErrorKind::input),
        Contains("the session was saved with attention windows none held, but this pipeline has "
                 "held in 4 of 6"));
}

TEST_CASE("Several sequences of a model with windows give the same texts together as alone") {
    for (const std::string shape : {"gemma3", "mistral"}) {
        for (const std::string policy : {"none", "sliding_window"}) {
            INFO(shape << ", " << policy);
            Sets sets = windowed_sets(shape, "cpu", {"policy.plugin=" + policy});
            if (policy != "none") sets.emplace_back("policy.budget.tokens=24");
            PipelineOptions options;
            options.batch = 3;
            const auto pipeline = open(sets, options);
            std::vector<Wish> all = wishes(*pipeline->tokenizer(), 4, 12);
            for (Wish &wish : all) { // longer than the window and its blocks
                const auto more = some_tokens(190);
                wish.ids.insert(wish.ids.end(), more.begin(), more.end());
            }
            check_same_texts(*pipeline, all, texts_alone(*pipeline, all),
                             texts_at_once(*pipeline, all), "f32");
        }
    }
}

TEST_CASE("A model with windows moves between backends, and its layers can be on two of them") {
    const std::string two = "hybrid.backends={a: {plugin: cpu, params: {threads: 1, compute: "
                            "exact}}, b: {plugin: cpu, params: {threads: 1, compute: exact}}}";
    const auto hybrid = [&](const std::string &shape, Sets more) {
        Sets sets = windowed_sets(shape, "cpu", {two});
        std::erase_if(sets, [](const std::string &set) { return set.starts_with("backend."); });
        sets.insert(sets.end(), more.begin(), more.end());
        return sets;
    };
    const Sets none = {"policy.plugin=none"},
               h2o = {"policy.plugin=h2o", "policy.budget.tokens=48"},
               sinks = {"policy.plugin=sliding_window", "policy.budget.tokens=48",
                        "policy.protect.prefix=4"};
    for (const auto &[shape, policy] : {std::pair{"gemma3", none}, std::pair{"gemma3", h2o},
                                        std::pair{"gemma3", sinks}, std::pair{"mistral", none}}) {
        const auto one = open(windowed_sets(shape, "cpu", policy));
        Session alone(*one);
        const std::vector<int32_t> text = greedy_text(alone, 300, 40);
        Sets turns = {"hybrid.prefill=a", "hybrid.decode=b",
                      "hybrid.switch={on: tokens, after_tokens: 8, to: a, warmup_tokens: 2}"};
        // Layers 2 and 5 of gemma3 see all tokens.
        std::vector<Sets> ways = {turns};
        if (std::string(shape) == "gemma3") {
            ways.push_back({"hybrid.layers=[{range: 0-2, on: a}, {range: 3-5, on: b}]"});
            ways.push_back({"hybrid.layers=[{range: 0-1, on: a}, {range: 2-5, on: b}]"});
        } else {
            ways.push_back({"hybrid.layers=[{range: 0-0, on: a}, {range: 1-1, on: b}]"});
        }
        for (Sets way : ways) {
            INFO(shape << ", " << policy.front() << ", " << way.front());
            way.insert(way.end(), policy.begin(), policy.end());
            const auto pipeline = open(hybrid(shape, way));
            Session session(*pipeline);
            CHECK(greedy_text(session, 300, 40) == text);
            CHECK(session.kv_bytes() == alone.kv_bytes());
            CHECK(session.stats().evictions == alone.stats().evictions);
        }
    }
}

TEST_CASE("kv.max_mib holds the windows first, and the policy's layers get the rest") {
    // The windows take 4 layers of (40 + 512 + 128) / 64 = 11 blocks of 128 KiB: 5.5 MiB.
    const auto pipeline = open(windowed_sets("gemma3", "cpu", {"kv.max_mib=8"}));
    CHECK(pipeline->engine().window_bytes() == 11 * 4 * 131072);
    CHECK(pipeline->kv_shape().max_bytes == 8 * 1048576 - 11 * 4 * 131072);
    Session session(*pipeline);
    std::string why;
    CHECK(session.can_take(640));
    CHECK_FALSE(session.can_take(641, &why));
    CHECK_THAT(why, Contains("kv.max_mib = 8 (of which attention windows take 5.5)"));
    // A policy that repeats the context needs a second copy of the windows.
    const auto repeating =
        open(windowed_sets("gemma3", "cpu",
                           {"kv.max_mib=14", "policy.plugin=kvzip", "policy.allocator=uniform",
                            "policy.budget.tokens=64"}));
    Session repeated(*repeating);
    repeated.prefill(some_tokens(300));
    CHECK(repeated.cache().cache().max_length() == 64);
    CHECK(repeated.stats().kv_peak_bytes <= 14 * 1048576);
    CHECK_THAT(error_text(
                   [&] {
                       open(windowed_sets(
                           "gemma3", "cpu",
                           {"kv.max_mib=6", "policy.plugin=kvzip", "policy.budget.tokens=64"}));
                   },
                   ErrorKind::input),
               Contains("MiB) twice") && Contains("expected 11.250 MiB or more") &&
                   Contains("found 6.000"));
    CHECK_THAT(error_text([&] { open(windowed_sets("gemma3", "cpu", {"kv.max_mib=5.6"})); },
                          ErrorKind::input),
               Contains("kv.max_mib") && Contains("window of 40 tokens in 4 layers (5.500 MiB") &&
                   Contains("together 5.750 MiB") && Contains("found 5.6"));
    CHECK_THAT(error_text([&] { open(windowed_sets("mistral", "cpu", {"kv.max_mib=0.2"})); },
                          ErrorKind::input),
               Contains("kv.max_mib"));
}

TEST_CASE("A budget above the window of all layers gets a warning") {
    // This is not an error, because the policy may have a reason. The log has the numbers.
    const auto pipeline = open(windowed_sets(
        "mistral", "cpu", {"policy.plugin=sliding_window", "policy.budget.tokens=100"}));
    CHECK(pipeline->policy_setup().config().attention_window == 40);
    CHECK(pipeline->policy_setup().shape().window == 0);
    Session session(*pipeline);
    greedy_text(session, 300, 3);
    CHECK(session.cache().cache().max_length() >= 100);
}

TEST_CASE("A window as wide as the context counts as no window") {
    const auto pipeline = open(windowed_sets("gemma3", "cpu", {"model.context=40"}));
    CHECK(pipeline->engine().windowed.shape.layers == 0);
    CHECK(pipeline->kv_shape().layers == 6);
}

TEST_CASE("A cache that holds its window cannot be forked to a policy that evicts") {
    PipelineOptions options;
    options.sequences = 3;
    pipeline::PolicySection section;
    const auto add = [&](Pipeline &p) -> PolicySetup & {
        auto config = pipeline::config_from_overrides(windowed_sets(
            "mistral", "cpu", {"policy.plugin=sliding_window", "policy.budget.tokens=32"}));
        return p.policies().add(config.policy);
    };
    const auto holding = open(windowed_sets("mistral", "cpu"), options);
    Session session(*holding);
    session.prefill(some_tokens(200), false);
    PolicySetup &evicting = add(*holding);
    CHECK_THAT(error_text([&] { session.fork(evicting); }, ErrorKind::input),
               Contains("sliding_window") && Contains("40 tokens"));

    options.several_policies = true;
    const auto several = open(windowed_sets("mistral", "cpu"), options);
    Session whole(*several);
    whole.prefill(some_tokens(200), false);
    CHECK(whole.cache().cache().max_length() == 200);
    const auto fork = whole.fork(add(*several));
    fork->end_prompt();
    CHECK(fork->cache().cache().max_length() == 32);
}

TEST_CASE("A sequence whose slots are evicted can exceed the context, and windows stay complete") {
    // 100 tokens are fewer than the window with its blocks and the tokens of a step.
    const Sets small = {"model.context=100", "policy.plugin=h2o", "policy.budget.tokens=48"};
    const auto pipeline = open(windowed_sets("gemma3", "cpu", small));
    Session session(*pipeline);
    const std::vector<int32_t> text = greedy_text(session, 90, 200);
    const KvCache &window = *session.cache().caches().window();
    CHECK(window.max_length() == window.shape().held_slots(290));

    // the first backend has only layers with windows
    Sets apart = windowed_sets("gemma3", "cpu", small);
    std::erase_if(apart, [](const std::string &set) { return set.starts_with("backend."); });
    apart.emplace_back("hybrid.backends={a: {plugin: cpu, params: {threads: 1, compute: exact}}, "
                       "b: {plugin: cpu, params: {threads: 1, compute: exact}}}");
    apart.emplace_back("hybrid.layers=[{range: 0-1, on: a}, {range: 2-5, on: b}]");
    const auto layers = open(apart);
    Session other(*layers);
    CHECK(greedy_text(other, 90, 200) == text);

    const auto none = open(windowed_sets("gemma3", "cpu", {"model.context=100"}));
    Session full(*none);
    CHECK(full.can_take(100));
    CHECK_FALSE(full.can_take(101));
}

TEST_CASE("The planned memory of a model includes its windows") {
    const auto source = open_model_source(windowed_folder("gemma3"));
    const KvBytes bytes = kv_bytes(source->config(), KEEL_DTYPE_F16, KEEL_DTYPE_F16, 4096);
    CHECK(bytes.per_token == 2 * 2 * 256 * 2);
    CHECK(bytes.per_windowed_token == 4 * 2 * 256 * 2);
    CHECK(bytes.window_slots == 704); // 40 + 512 + 128, rounded up to blocks of 64
    CHECK(bytes.of(4096) == 4096 * bytes.per_token + 704 * bytes.per_windowed_token);
    CHECK(bytes.of(100) == 100 * (bytes.per_token + bytes.per_windowed_token));
    CHECK(kv_bytes_text(bytes) == "2.0 KiB a token and 2.8 MiB for windows");
}
