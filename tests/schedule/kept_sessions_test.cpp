// Caches of ended requests that later requests share.

#include "scheduler_rig.hpp"

using namespace keel;
using namespace keel::test;

namespace {

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t> &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// Runs a request alone in the scheduler, and compares its text with the text of a new session.
RequestUsage run_one(Scheduler &scheduler, const TextOrder &order) {
    Answer answer;
    submit(scheduler, order, answer);
    answer.wait();
    CHECK(answer.only().ids == alone(order).ids);
    return answer.usage;
}

} // namespace

TEST_CASE("a prompt that begins like an earlier request reads only its other tokens") {
    const auto scheduler = open_scheduler({.seats = 3, .kept = 2});
    const Tokenizer &tokenizer = *scheduler->pipeline().tokenizer();
    const std::vector<int32_t> system = book(tokenizer, 0, 300);
    const TextOrder first = order_of(joined(system, book(tokenizer, 400, 20)), 12);
    CHECK(run_one(*scheduler, first).cached_tokens == 0);
    CHECK(scheduler->stats().prompt_tokens == 320);
    CHECK(scheduler->stats().cache_bytes > 0);
    // The same prompt: all tokens but the last.
    CHECK(run_one(*scheduler, first).cached_tokens == 319);
    CHECK(scheduler->stats().prompt_tokens == 321);
    // Another question after the same first tokens.
    TextOrder second = order_of(joined(system, book(tokenizer, 500, 30)), 12);
    second.options.sampling.temperature = 1;
    second.options.sampling.seed = 3;
    CHECK(run_one(*scheduler, second).cached_tokens == 300);
    // A conversation goes on: prompt, answer and a further question.
    TextOrder third =
        order_of(joined(joined(first.prompt, alone(first).ids), book(tokenizer, 600, 10)), 12);
    const RequestUsage usage = run_one(*scheduler, third);
    CHECK(usage.cached_tokens == 320 + 11); // the answer's last token was never read
    CHECK(usage.prompt_tokens == 342);
    // Several requests share a kept cache at once.
    std::vector<Answer> answers(3);
    for (Answer &answer : answers) submit(*scheduler, second, answer);
    for (Answer &answer : answers) {
        answer.wait();
        CHECK(answer.only().ids == alone(second).ids);
        CHECK(answer.usage.cached_tokens >= 300);
    }
    CHECK(scheduler->stats().cached_tokens > 319 + 300 + 331 + 3 * 300 - 1);
    TextOrder choices = second;
    choices.choices = 3;
    Answer answer;
    submit(*scheduler, choices, answer);
    answer.wait();
    CHECK(answer.choices[0].ids == alone(second).ids);
    CHECK(answer.usage.cached_tokens >= 300);
}

TEST_CASE("a policy that evicts and the probabilities of a prompt share no cache") {
    const auto scheduler = open_scheduler({.seats = 2, .kept = 2});
    const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 200);
    const TextOrder window =
        order_of(prompt, 8, {{"name", "sliding_window"}, {"budget.tokens", "300"}});
    for (int i = 0; i < 2; ++i) CHECK(run_one(*scheduler, window).cached_tokens == 0);
    CHECK(scheduler->stats().cache_bytes == 0);
    run_one(*scheduler, order_of(prompt, 8));
    CHECK(run_one(*scheduler, window).cached_tokens == 0);
    TextOrder scored = order_of(prompt, 8);
    scored.prompt_logprobs = 1;
    Answer answer;
    submit(*scheduler, scored, answer);
    answer.wait();
    CHECK(answer.prompt.size() == 199);
    CHECK(answer.usage.cached_tokens == 0);
}

TEST_CASE("kept caches give way to running requests, the oldest first") {
    Pipeline pipeline(rig_config(), scheduler_pipeline_options({.seats = 2}));
    const uint64_t one = cache_bound(pipeline, pipeline.policy_setup(), 200, 10, 0).peak(1);
    const auto scheduler = open_scheduler({.seats = 2, .cache_bytes = 2 * one, .kept = 8});
    const Tokenizer &tokenizer = *scheduler->pipeline().tokenizer();
    const auto run_from = [&](size_t first) {
        return run_one(*scheduler, order_of(book(tokenizer, first, 200), 10)).cached_tokens;
    };
    CHECK(run_from(0) == 0);
    CHECK(run_from(300) == 0);   // the first cache stays beside it
    CHECK(run_from(300) == 199); // the first cache goes
    CHECK(run_from(0) == 0);
    CHECK(scheduler->stats().cache_peak_bytes <= 2 * one);
    CHECK(scheduler->drain(5));
    CHECK(scheduler->stats().cache_bytes <= 2 * one);
}
