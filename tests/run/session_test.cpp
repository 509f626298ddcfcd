// Tests of sessions without files: taking tokens back, cancelling a prefill, log-probabilities.
#include "base/error.hpp"
#include "run/session_rig.hpp"

#include <catch2/catch.hpp>
#include <cmath>

using namespace keel;
using namespace keel::test;

TEST_CASE("tokens can be taken back") {
    Pipeline pipeline(pipeline::config_from_overrides(tiny()));
    const auto prompt = pipeline.tokenizer()->encode(opening);
    Session a(pipeline), b(pipeline);
    a.prefill(prompt);
    const int32_t expected = a.greedy();
    b.prefill(prompt);
    b.decode(7);
    b.decode(8);
    b.truncate(3);
    CHECK(b.tokens() == std::ssize(prompt) - 1);
    b.decode(prompt.back());
    CHECK(b.greedy() == expected);
    CHECK_THROWS_AS(b.truncate(1000), Error);
}

TEST_CASE("a prefill that is cancelled between chunks is undone, unless it evicted") {
    for (const bool evicts : {false, true}) {
        Sets sets = tiny();
        if (evicts)
            sets.insert(sets.end(), {"policy.plugin=sliding_window", "policy.budget.tokens=24"});
        Pipeline pipeline(pipeline::config_from_overrides(sets));
        std::string text = opening;
        while (pipeline.tokenizer()->encode(text).size() <
               2 * size_t{pipeline.graph().max_tokens()} + 9)
            text += ", " + opening;
        const auto prompt = pipeline.tokenizer()->encode(text);
        Session session(pipeline);
        session.prefill(std::vector<int32_t>{1, 2, 3});
        session.set_pending(4);
        const auto cancel = [&](const char *, uint64_t, uint64_t) {
            pipeline.host().request_cancel();
        };
        GenerateOptions options = options_of(pipeline, 4);
        options.progress = cancel;
        const GenerateResult result = generate(session, prompt, options);
        pipeline.host().clear_cancel();
        CHECK(result.reason == StopReason::cancelled);
        CHECK(result.ids.empty());
        CHECK(result.detail.empty() != evicts);
        CHECK((session.tokens() == 3) != evicts);
        CHECK(session.pending().has_value() != evicts);
        CHECK_FALSE(
            generate(session, std::vector<int32_t>{5}, options_of(pipeline, 2)).ids.empty());
    }
}

TEST_CASE("log-probabilities are those of the softmax, for all sizes of logits") {
    const std::vector<float> logits{1, 3, 3, -2, 0};
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    const TokenLogprobs r = token_logprobs(logits, 4, 3);
    CHECK(r.chosen.id == 4);
    CHECK(r.chosen.logprob == Approx(-std::log(sum)));
    REQUIRE(r.top.size() == 3);
    CHECK(r.top[0].id == 1); // of equal tokens the one with the lower id comes first
    CHECK(r.top[1].id == 2);
    CHECK(r.top[2].id == 0);
    CHECK(r.top[0].logprob == Approx(3 - std::log(sum)));
    CHECK(token_logprobs(logits, 0, 0).top.empty());
    CHECK(token_logprobs(logits, 0, 100).top.size() == logits.size());
    const std::vector<float> steep{3e38F, -3e38F, 3e38F};
    CHECK(token_logprobs(steep, 0, 1).chosen.logprob == Approx(-std::log(2.0)));
    CHECK(token_logprobs(steep, 1, 1).chosen.logprob < -1e38);

    Pipeline pipeline(pipeline::config_from_overrides(tiny({"sampling.temperature=0.8"})));
    Session session(pipeline);
    GenerateOptions options = options_of(pipeline, 6);
    const auto prompt = pipeline.tokenizer()->encode(opening);
    const auto plain = generate(session, prompt, options);
    CHECK(plain.logprobs.empty());
    session.reset();
    options.logprobs = 2;
    const auto noted = generate(session, prompt, options);
    CHECK(noted.ids == plain.ids);
    REQUIRE(noted.logprobs.size() == noted.ids.size());
    for (size_t i = 0; i < noted.ids.size(); ++i) {
        CHECK(noted.logprobs[i].chosen.id == noted.ids[i]);
        CHECK(noted.logprobs[i].top[0].logprob >= noted.logprobs[i].chosen.logprob);
    }
}
