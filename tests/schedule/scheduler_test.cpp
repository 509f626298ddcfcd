// The scheduler: texts, choices, probabilities, cancels, limits.

#include "scheduler_rig.hpp"
#include "support/error_text.hpp"

#include "schedule/choice_text.hpp"

#include <cmath>
#include <thread>

using namespace keel;
using namespace keel::test;

namespace {

const std::vector<PolicyChoice> mixed_policies = {
    {},
    {{"name", "sliding_window"}, {"budget.tokens", "64"}},
    {{"name", "snapkv"}, {"budget.tokens", "96"}, {"params.window", "16"}},
    {{"name", "h2o"}, {"budget.tokens", "80"}},
    {{"name", "kvzip"}, {"budget.tokens", "64"}},
    {{"name", "sliding_window"}, {"budget.tokens", "48"}, {"budget.slack", "8"}},
    {{"name", "knorm"}, {"budget.ratio", "0.5"}},
    {{"name", "none"}}};

TextOrder mixed_order(const Tokenizer &tokenizer, size_t i) {
    constexpr size_t lengths[] = {3, 600, 40, 513, 220, 700, 128, 300};
    TextOrder order = order_of(book(tokenizer, 50 * i, lengths[i % 8]), 24, mixed_policies[i % 8]);
    if (i % 2 == 1) {
        order.options.sampling.temperature = 0.9F;
        order.options.sampling.top_k = 40;
        order.options.sampling.seed = 100 + i;
    }
    return order;
}

} // namespace

TEST_CASE("requests of different policies that join at any time get the texts written alone") {
    for (const uint32_t chunk : {0U, 128U}) {
        INFO("chunk " << chunk);
        const auto scheduler = open_scheduler({.seats = 4, .waiting = 8, .prefill_chunk = chunk});
        const Tokenizer &tokenizer = *scheduler->pipeline().tokenizer();
        std::vector<Answer> answers(8);
        for (size_t i = 0; i < 8; ++i) {
            submit(*scheduler, mixed_order(tokenizer, i), answers[i]);
            if (i % 3 == 1) answers[i].wait_for_tokens(2 + i);
        }
        for (size_t i = 0; i < 8; ++i) {
            INFO("request " << i);
            answers[i].wait();
            const TextOrder order = mixed_order(tokenizer, i);
            const GenerateResult result = alone(order, chunk);
            const Answer::Choice &choice = answers[i].only();
            CHECK(choice.detail.empty());
            CHECK(choice.ids == result.ids);
            CHECK(choice.text == result.text);
            CHECK(choice.reason == result.reason);
            CHECK(choice.ends == 1);
            const RequestUsage &usage = answers[i].usage;
            CHECK(answers[i].done == 1);
            CHECK(usage.prompt_tokens == order.prompt.size());
            CHECK(usage.generated_tokens == 24);
            CHECK(usage.evictions == result.stats.evictions);
            CHECK(usage.evicted_tokens == result.stats.evicted_tokens);
            // The prompt of request 2 is shorter than its budget.
            CHECK((usage.evictions > 0) == (i != 0 && i != 2 && i != 7));
            CHECK(usage.kept_tokens > 0);
            CHECK(usage.kept_tokens <= order.prompt.size() + 24);
            CHECK(usage.cache_peak_bytes > 0);
            CHECK(usage.prompt_seconds > 0);
            CHECK(usage.generation_seconds > 0);
            CHECK(usage.policy == (i == 0 ? "none" : order.policy->front().second));
        }
        CHECK(scheduler->drain(10));
        const SchedulerStats stats = settled(*scheduler);
        CHECK(stats.requests == 8);
        CHECK(stats.finished == 8);
        CHECK(stats.failed + stats.cancelled + stats.refused == 0);
        CHECK(stats.running == 0);
        CHECK(stats.waiting == 0);
        CHECK(stats.generated_tokens == 8 * 24);
        CHECK(stats.prompt_tokens == 3 + 600 + 40 + 513 + 220 + 700 + 128 + 300);
        CHECK(stats.cache_bytes == 0);
        CHECK(stats.reserved_bytes == 0);
        CHECK(stats.steps > 24);
        CHECK(stats.step_seconds > 0);
    }
}

TEST_CASE("choices of a request read the prompt once, and each has its own random numbers") {
    const auto scheduler = open_scheduler({.seats = 4, .waiting = 4});
    const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 90);
    for (const PolicyChoice &policy : {mixed_policies[0], mixed_policies[2], mixed_policies[3]}) {
        const uint64_t read = settled(*scheduler).prompt_tokens;
        TextOrder order = order_of(prompt, 20, policy);
        order.choices = 3;
        order.options.sampling.temperature = 1;
        order.options.sampling.seed = 7;
        Answer answer;
        submit(*scheduler, order, answer);
        answer.wait();
        REQUIRE(answer.choices.size() == 3);
        CHECK(settled(*scheduler).prompt_tokens - read == 90);
        CHECK(answer.usage.generated_tokens == 60);
        for (const auto &[number, choice] : answer.choices) {
            INFO("choice " << number);
            TextOrder single = order;
            single.options.sampling.seed = seed_of_choice(7, number);
            CHECK(choice.ids == alone(single).ids);
            CHECK(choice.ends == 1);
        }
        CHECK(answer.choices[0].ids != answer.choices[1].ids);
        CHECK(answer.choices[1].ids != answer.choices[2].ids);
    }
}

TEST_CASE("the tokens of events join to the text, also with stop strings and cut characters") {
    const auto scheduler = open_scheduler();
    const Tokenizer &tokenizer = *scheduler->pipeline().tokenizer();
    TextOrder order = order_of(tokenizer.encode("Once upon a time there was a king"), 40);
    order.options.logprobs = 2;
    const GenerateResult whole = alone(order);
    order.options.stop = {whole.text.substr(30, 5), "no such text"};
    Answer answer;
    submit(*scheduler, order, answer);
    answer.wait();
    const GenerateResult result = alone(order);
    const Answer::Choice &choice = answer.only();
    CHECK(choice.reason == StopReason::stop_string);
    CHECK(choice.detail == order.options.stop.front());
    CHECK(choice.text == result.text);
    CHECK(choice.ids == result.ids);
    REQUIRE(choice.logprobs.size() == choice.ids.size());
    for (size_t i = 0; i < choice.ids.size(); ++i) {
        CHECK(choice.logprobs[i].chosen.id == choice.ids[i]);
        CHECK(choice.logprobs[i].chosen.logprob ==
              Approx(result.logprobs[i].chosen.logprob).margin(1e-5));
        CHECK(choice.logprobs[i].top.size() == 2);
    }
}

TEST_CASE("the probabilities of the prompt are those of the logits of each token") {
    // Without quantization, products of one row and of several rows differ little.
    const std::vector<std::string> exact{"model.weights=f32", "backend.params.compute=exact"};
    const auto scheduler = open_scheduler({.prefill_chunk = 50}, exact);
    const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 120);
    Pipeline pipeline(rig_config(exact));
    Session session(pipeline);
    std::vector<double> expected;
    session.prefill(std::span(prompt).first(1));
    for (size_t i = 1; i < prompt.size(); ++i) {
        expected.push_back(token_logprobs(session.logits(), prompt[i], 0).chosen.logprob);
        session.decode(prompt[i]);
    }
    for (const PolicyChoice &policy :
         {PolicyChoice{}, PolicyChoice{{"name", "snapkv"}, {"budget.tokens", "96"}},
          PolicyChoice{{"name", "sliding_window"}, {"budget.tokens", "40"}}}) {
        TextOrder order = order_of(prompt, 0, policy);
        order.prompt_logprobs = 3;
        Answer answer, other;
        submit(*scheduler, order_of(book(*scheduler->pipeline().tokenizer(), 300, 120), 30), other);
        submit(*scheduler, order, answer);
        answer.wait();
        other.wait();
        CHECK(answer.has_prompt);
        CHECK(answer.only().ids.empty());
        CHECK(answer.only().reason == StopReason::max_tokens);
        REQUIRE(answer.prompt.size() == prompt.size() - 1);
        double change = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
            CHECK(answer.prompt[i].chosen.id == prompt[i + 1]);
            CHECK(answer.prompt[i].top.size() == 3);
            const double gap = std::abs(answer.prompt[i].chosen.logprob - expected[i]);
            // The policy acts after the first chunk for the first time.
            if (i < 50 || policy.empty() || policy.front().second == "snapkv") CHECK(gap < 1e-3);
            change = std::max(change, gap);
        }
        // sliding_window evicts between chunks, so later tokens have other probabilities.
        const bool evicts_early = !policy.empty() && policy.front().second == "sliding_window";
        CHECK((change > 0.01) == evicts_early);
    }
}

TEST_CASE("protected ranges of the prompt stay in the cache") {
    const auto scheduler = open_scheduler();
    TextOrder order = order_of(book(*scheduler->pipeline().tokenizer(), 0, 400), 16,
                               {{"name", "sliding_window"}, {"budget.tokens", "64"}});
    order.options.logprobs = 0;
    const GenerateResult without = alone(order);
    order.protect = {{100, 120}, {200, 210}};
    Answer answer;
    submit(*scheduler, order, answer);
    answer.wait();
    CHECK(answer.only().ids == alone(order).ids);
    REQUIRE(answer.only().logprobs.size() == 16);
    CHECK(answer.only().logprobs[5].chosen.logprob != without.logprobs[5].chosen.logprob);

    order.protect = {{0, 400}}; // more than the budget
    Answer refused;
    submit(*scheduler, order, refused);
    refused.wait();
    CHECK(refused.only().has_failed);
    CHECK_THAT(refused.only().detail, Catch::Contains("budget"));
    order.protect = {{10, 500}};
    CHECK_THAT(error_text([&] { submit(*scheduler, order, answer); }, ErrorKind::usage),
               Catch::Contains("protect"));
}

TEST_CASE("a request can be cancelled in the queue, in the prompt and in the text") {
    const auto scheduler = open_scheduler({.seats = 1, .waiting = 2, .prefill_chunk = 16});
    const Tokenizer &tokenizer = *scheduler->pipeline().tokenizer();
    Answer writes, waits, reads;
    const uint64_t writing = submit(*scheduler, order_of(book(tokenizer, 0, 20), 900), writes);
    writes.wait_for_tokens(3);
    const uint64_t waiting = submit(*scheduler, order_of(book(tokenizer, 0, 30), 10), waits);
    CHECK(settled(*scheduler).waiting == 1);
    scheduler->cancel(waiting);
    waits.wait();
    CHECK(waits.only().reason == StopReason::cancelled);
    CHECK(waits.only().ids.empty());
    CHECK(waits.usage.generated_tokens == 0);

    const uint64_t reading = submit(*scheduler, order_of(book(tokenizer, 0, 900), 10), reads);
    scheduler->cancel(writing);
    writes.wait();
    CHECK(writes.only().reason == StopReason::cancelled);
    CHECK(writes.only().ids.size() >= 3);
    CHECK(writes.only().ids.size() < 900);
    while (scheduler->stats().prompt_tokens < 20 + 16 * 2) std::this_thread::yield();
    scheduler->cancel(reading);
    reads.wait();
    CHECK(reads.only().reason == StopReason::cancelled);
    CHECK(reads.only().ids.empty());
    scheduler->cancel(reading); // it has ended, so this does nothing
    scheduler->cancel(12345);
    CHECK(scheduler->drain(10));
    CHECK(settled(*scheduler).cancelled == 3);
    CHECK(settled(*scheduler).cache_bytes == 0);
}

TEST_CASE("the destructor cancels requests that wait and that run") {
    Answer first, second;
    {
        const auto scheduler = open_scheduler({.seats = 1});
        const Tokenizer &tokenizer = *scheduler->pipeline().tokenizer();
        submit(*scheduler, order_of(book(tokenizer, 0, 20), 900), first);
        submit(*scheduler, order_of(book(tokenizer, 0, 20), 900), second);
        first.wait_for_tokens(1);
    }
    CHECK(first.done == 1);
    CHECK(first.only().reason == StopReason::cancelled);
    CHECK(second.done == 1);
    CHECK(second.only().reason == StopReason::cancelled);
}

TEST_CASE("the queue has a limit, and a scheduler that drains takes no requests") {
    const auto scheduler = open_scheduler({.seats = 1, .waiting = 1});
    const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 20);
    Answer runs, waits, refused;
    const uint64_t running = submit(*scheduler, order_of(prompt, 900), runs);
    submit(*scheduler, order_of(prompt, 5), waits);
    CHECK_THAT(
        error_text([&] { submit(*scheduler, order_of(prompt, 5), refused); }, ErrorKind::resource),
        Catch::Contains("queue is full"));
    CHECK_FALSE(scheduler->drain(0.01));
    CHECK_THAT(
        error_text([&] { submit(*scheduler, order_of(prompt, 5), refused); }, ErrorKind::resource),
        Catch::Contains("no new requests"));
    scheduler->cancel(running);
    CHECK(scheduler->drain(30));
    CHECK(waits.only().ids.size() == 5);
    CHECK(refused.done == 0);
    CHECK(settled(*scheduler).refused == 2);

    Answer at_once, later;
    const auto no_queue = open_scheduler({.seats = 1, .waiting = 0});
    submit(*no_queue, order_of(prompt, 5), at_once);
    at_once.wait();
    submit(*no_queue, order_of(prompt, 900), later); // the seat is free at the last event
    CHECK_THAT(
        error_text([&] { submit(*no_queue, order_of(prompt, 5), refused); }, ErrorKind::resource),
        Catch::Contains("queue is full"));
}

TEST_CASE("wrong orders are refused with the member at fault") {
    const auto scheduler = open_scheduler({.seats = 2});
    const auto message = [&](const std::function<void(TextOrder &)> &change) {
        TextOrder order = order_of({1, 2, 3}, 5);
        change(order);
        return error_text([&] { scheduler->submit(order); }, ErrorKind::usage);
    };
    CHECK_THAT(message([](TextOrder &o) { o.prompt.clear(); }), Catch::Contains("prompt"));
    CHECK_THAT(message([](TextOrder &o) { o.prompt[1] = 99999; }), Catch::Contains("prompt"));
    CHECK_THAT(message([](TextOrder &o) { o.prompt[1] = -1; }), Catch::Contains("prompt"));
    CHECK_THAT(message([](TextOrder &o) { o.prompt.assign(1025, 5); }),
               Catch::Contains("model.context"));
    CHECK_THAT(message([](TextOrder &o) { o.choices = 0; }), Catch::Contains("choices"));
    CHECK_THAT(message([](TextOrder &o) { o.choices = 3; }), Catch::Contains("seats"));
    CHECK_THAT(message([](TextOrder &o) { o.options.max_tokens = -1; }),
               Catch::Contains("max_tokens"));
    CHECK_THAT(message([](TextOrder &o) { o.options.stop = {""}; }), Catch::Contains("stop"));
    CHECK_THAT(message([](TextOrder &o) { o.options.sampling.top_p = 2; }),
               Catch::Contains("top_p"));
    CHECK_THAT(message([](TextOrder &o) { o.prompt_logprobs = -1; }),
               Catch::Contains("prompt_logprobs"));
    CHECK_THAT(error_text([] { open_scheduler({.seats = 0}); }, ErrorKind::usage),
               Catch::Contains("seats"));
    CHECK_THAT(error_text([] { open_scheduler({.seats = 257}); }, ErrorKind::usage),
               Catch::Contains("seats"));
}
