// Tests of guesses (generation.lookup): the guess itself, and the text that generate() writes with
// guesses.
#include "run/generate.hpp"
#include "run/prompt_lookup.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using Clock = GuessGain::Clock;

namespace {

std::vector<int32_t> to_vector(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

std::vector<std::string> with_lookup(int64_t lookup, std::vector<std::string> more = {}) {
    std::vector<std::string> sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                  "backend.plugin=cpu", "backend.params.compute=exact",
                                  "sampling.temperature=0",
                                  "generation.lookup=" + std::to_string(lookup)};
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
}

const std::string quoted = "The old man went to the sea. The old man went to the sea. The old man";

struct Written {
    GenerateResult result;
    int64_t tokens;
    std::optional<int32_t> pending;
    std::vector<float> logits; // after one more token; empty if the context is full
};

Written write(const std::vector<std::string> &sets, GenerateOptions change = {}) {
    Pipeline pipeline(pipeline::config_from_overrides(sets));
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = change.max_tokens;
    options.stop = change.stop;
    options.logprobs = change.logprobs;
    options.ignore_end = change.ignore_end;
    Written w{generate(session, pipeline.tokenizer()->encode(quoted), options), 0, {}, {}};
    w.tokens = session.tokens();
    w.pending = session.pending();
    if (session.can_take(1)) {
        session.decode(5);
        const auto logits = session.logits();
        w.logits.assign(logits.begin(), logits.end());
    }
    return w;
}

void check_same(const Written &a, const Written &b) {
    CHECK(a.result.ids == b.result.ids);
    CHECK(a.result.text == b.result.text);
    CHECK(a.result.reason == b.result.reason);
    CHECK(a.tokens == b.tokens);
    CHECK(a.pending == b.pending);
    REQUIRE(a.logits.size() == b.logits.size());
    for (size_t i = 0; i < a.logits.size(); ++i)
        CHECK(a.logits[i] == Approx(b.logits[i]).margin(1e-3));
}

} // namespace

TEST_CASE("a guess is the text after the last occurrence of the last three tokens") {
    PromptLookup lookup;
    const std::vector<int32_t> text{1, 2, 3, 4, 5, 9, 2, 3, 4, 7, 8, 2, 3};
    CHECK(to_vector(lookup.guess(text, 4, 2)) == std::vector<int32_t>{7, 8});
    CHECK(to_vector(lookup.guess(text, 4, 100)) == std::vector<int32_t>{7, 8, 2, 3, 4});
    CHECK(lookup.guess(text, 4, 0).empty());
    CHECK(lookup.guess(text, 9, 4).empty());
    std::vector<int32_t> longer = text;
    longer.insert(longer.end(), {4, 6, 3});
    CHECK(to_vector(lookup.guess(longer, 4, 1)) == std::vector<int32_t>{}); // 6, 3, 4 is new
    longer.insert(longer.end(), {4, 2, 3});
    CHECK(to_vector(lookup.guess(longer, 4, 1)) == std::vector<int32_t>{6});
}

TEST_CASE("a text of three equal tokens can be guessed, and a shorter text cannot") {
    PromptLookup lookup;
    CHECK(lookup.guess({}, 1, 4).empty());
    const std::vector<int32_t> two{1, 1};
    CHECK(lookup.guess(two, 1, 4).empty());
    const std::vector<int32_t> three{1, 1, 1};
    CHECK(to_vector(lookup.guess(three, 1, 4)) == std::vector<int32_t>{1});
}

TEST_CASE("guesses pause if they cost more time than they save, and begin again later") {
    GuessGain gain;
    Clock::time_point now = Clock::now();
    const auto step = [&](bool guessed, int64_t tokens, int ms) {
        now += std::chrono::milliseconds(ms);
        gain.count(guessed, tokens, now);
    };
    CHECK_FALSE(gain.wants_guess()); // the first steps measure the time without guesses
    for (int i = 0; i < 4; ++i) step(false, 1, 10);
    CHECK(gain.wants_guess());
    for (int i = 0; i < 20; ++i) step(true, 3, 15); // three tokens in 15 ms
    CHECK(gain.wants_guess());
    int bad = 0;
    for (; bad < 100 && gain.wants_guess(); ++bad) step(true, 1, 15);
    CHECK(bad < 40);
    int pause = 0;
    for (; pause < 100 && !gain.wants_guess(); ++pause) step(false, 1, 10);
    CHECK(pause == 32);
    for (bad = 0; bad < 100 && gain.wants_guess(); ++bad) step(true, 1, 15);
    for (pause = 0; pause < 1000 && !gain.wants_guess(); ++pause) step(false, 1, 10);
    CHECK(pause == 64); // the next pause is longer
}

TEST_CASE("a text with guesses is the text without guesses, greedy and sampled") {
    for (const std::vector<std::string> &more :
         {std::vector<std::string>{"model.weights=f32"},
          {"model.weights=q4_0"},
          {"model.weights=f32", "sampling.temperature=0.7", "sampling.seed=3"},
          {"model.weights=f32", "sampling.repetition_penalty=1.05"}}) {
        INFO(more.back());
        GenerateOptions change;
        change.max_tokens = 120;
        change.ignore_end = true;
        const Written plain = write(with_lookup(0, more), change),
                      guessed = write(with_lookup(6, more), change);
        check_same(guessed, plain);
        CHECK(plain.result.stats.guessed_tokens == 0);
        CHECK(guessed.result.stats.guessed_tokens > 0);
        CHECK(guessed.result.stats.right_guesses <= guessed.result.stats.guessed_tokens);
        CHECK(guessed.result.stats.decode_tokens == plain.result.stats.decode_tokens);
    }
}

TEST_CASE("a text that ends inside a guess leaves the session as without guesses") {
    const Written whole = write(with_lookup(0), [] {
        GenerateOptions change;
        change.max_tokens = 60;
        return change;
    }());
    for (const int64_t tokens : {20, 21, 22, 23, 24, 25, 26}) {
        INFO(tokens);
        GenerateOptions change;
        change.max_tokens = tokens;
        change.logprobs = 2;
        const Written plain = write(with_lookup(0), change),
                      guessed = write(with_lookup(8), change);
        check_same(guessed, plain);
        REQUIRE(guessed.result.logprobs.size() == plain.result.logprobs.size());
        for (size_t i = 0; i < plain.result.logprobs.size(); ++i)
            CHECK(guessed.result.logprobs[i].chosen.logprob ==
                  Approx(plain.result.logprobs[i].chosen.logprob).margin(1e-3));
    }
    GenerateOptions change;
    change.max_tokens = 60;
    change.stop = {whole.result.text.substr(whole.result.text.size() / 2, 6)};
    const Written plain = write(with_lookup(0), change);
    REQUIRE(plain.result.reason == StopReason::stop_string);
    check_same(write(with_lookup(8), change), plain);
}

TEST_CASE("guesses end at the end of the context") {
    GenerateOptions change;
    change.max_tokens = 500;
    change.ignore_end = true;
    const std::vector<std::string> small{"model.context=64"};
    const Written plain = write(with_lookup(0, small), change);
    REQUIRE(plain.result.reason == StopReason::cache_full);
    const Written guessed = write(with_lookup(8, small), change);
    CHECK(guessed.result.ids == plain.result.ids);
    CHECK(guessed.result.detail == plain.result.detail);
}

TEST_CASE("guesses are refused where they could not be taken back") {
    const auto refusal = [](const std::vector<std::string> &sets, uint32_t batch = 1) {
        return test::error_text([&] {
            PipelineOptions options;
            options.batch = batch;
            Pipeline pipeline(pipeline::config_from_overrides(sets), options);
        });
    };
    CHECK(refusal(with_lookup(4, {"policy.plugin=snapkv", "policy.budget.tokens=64"}))
              .find("this key needs a policy that keeps all tokens, and the policy is 'snapkv'") !=
          std::string::npos);
    CHECK(refusal(with_lookup(4), 2).find("one text at a time") != std::string::npos);
    CHECK(refusal(with_lookup(33)).find("from 0 to 32") != std::string::npos);
}
