// The scheduler if something fails: a policy, a callback, the device.

#include "scheduler_rig.hpp"
#include "support/error_text.hpp"

#include "run/failing_cpu.hpp"

#include <stdexcept>

using namespace keel;
using namespace keel::test;

namespace {} // namespace

TEST_CASE("a request whose eviction fails ends with the error, and the others go on") {
    FailingCpu cpu;
    const auto scheduler = open_scheduler({.seats = 3}, {}, with(cpu, "cpu"));
    const Tokenizer &tokenizer = *scheduler->pipeline().tokenizer();
    Answer good, bad, after;
    TextOrder order =
        order_of(book(tokenizer, 0, 60), 60, {{"name", "sliding_window"}, {"budget.tokens", "32"}});
    bad.listen(order);
    int events = 0;
    order.on_event = [&, take = order.on_event](TextEvent event) {
        if (++events == 3) cpu.backend.fail_nth(1, KEEL_E_INTERNAL, "kv_gather");
        take(std::move(event));
    };
    submit(*scheduler, order_of(book(tokenizer, 0, 50), 60), good);
    scheduler->submit(std::move(order));
    good.wait();
    bad.wait();
    CHECK(good.only().ids == alone(order_of(book(tokenizer, 0, 50), 60)).ids);
    CHECK(bad.only().has_failed);
    CHECK(bad.only().ends == 1);
    CHECK_FALSE(bad.only().detail.empty());
    CHECK(bad.only().ids.size() < 60);
    submit(*scheduler, order_of(book(tokenizer, 0, 50), 20), after);
    after.wait();
    CHECK(after.only().ids.size() == 20);
    CHECK(scheduler->drain(10));
    CHECK(scheduler->stats().failed == 1);
    CHECK(scheduler->stats().finished == 2);
    CHECK(scheduler->stats().cache_bytes == 0);
}

TEST_CASE("an exception of a callback cancels its request only") {
    const auto scheduler = open_scheduler({.seats = 2});
    const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 30);
    Answer good, done;
    submit(*scheduler, order_of(prompt, 60), good);
    for (const bool at_prompt : {false, true}) {
        TextOrder order = order_of(prompt, 500);
        Answer answer;
        answer.listen(order);
        int events = 0;
        order.on_event = [&](const TextEvent &) {
            if (++events == 2) throw std::runtime_error("the client has gone");
        };
        if (at_prompt) {
            order.prompt_logprobs = 0;
            order.on_prompt = [](const std::vector<TokenLogprobs> &) { throw 7; };
        }
        scheduler->submit(order);
        answer.wait();
        CHECK(events == (at_prompt ? 0 : 2));
        CHECK(answer.usage.generated_tokens < 20);
    }
    good.wait();
    CHECK(good.only().ids.size() == 60);
    CHECK(scheduler->stats().cancelled == 2);
}

TEST_CASE("a callback must not submit, but it may cancel") {
    const auto scheduler = open_scheduler({.seats = 2});
    const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 30);
    TextOrder order = order_of(prompt, 500);
    Answer answer;
    answer.listen(order);
    std::string error;
    order.on_event = [&, take = order.on_event](TextEvent event) {
        if (error.empty()) {
            error = error_text([&] { scheduler->submit(order_of({1, 2}, 3)); }, ErrorKind::usage);
            scheduler->cancel(1);
        }
        take(std::move(event));
    };
    CHECK(scheduler->submit(order) == 1);
    answer.wait();
    CHECK_THAT(error, Catch::Contains("callback"));
    CHECK(answer.only().reason == StopReason::cancelled);
    CHECK(answer.only().ids.size() < 10);
}

TEST_CASE("a lost device ends all requests, and later ones are refused") {
    for (const bool is_alone : {false, true}) {
        INFO("alone " << is_alone);
        FailingCpu cpu;
        const auto scheduler = open_scheduler({.seats = 2}, {}, with(cpu, "cpu"));
        const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 30);
        std::vector<Answer> answers(is_alone ? 1 : 3); // the third waits
        int events = 0;
        for (Answer &answer : answers) {
            TextOrder order = order_of(prompt, 200);
            answer.listen(order);
            order.on_event = [&, take = order.on_event](TextEvent event) {
                if (++events == 8) cpu.backend.fail_nth(1, KEEL_E_DEVICE_LOST, "matmul");
                take(std::move(event));
            };
            scheduler->submit(std::move(order));
        }
        for (Answer &answer : answers) {
            answer.wait();
            CHECK(answer.only().has_failed);
            CHECK(answer.only().error_kind == ErrorKind::runtime);
            CHECK_THAT(answer.only().detail, Catch::Contains("lost"));
        }
        Answer later;
        CHECK_THAT(
            error_text([&] { submit(*scheduler, order_of(prompt, 5), later); }, ErrorKind::runtime),
            Catch::Contains("lost"));
        CHECK(scheduler->drain(10));
        CHECK(scheduler->stats().failed == answers.size());
    }
}

TEST_CASE("a request that runs steps ahead alone gets its text when others join") {
    FailingCpu cpu;
    cpu.backend.asynchronous = true;
    cpu.backend.reads_later = true;
    cpu.backend.records_steps = true;
    const auto scheduler = open_scheduler({.seats = 3}, {}, with(cpu, "cpu"));
    const Tokenizer &tokenizer = *scheduler->pipeline().tokenizer();
    std::vector<TextOrder> orders;
    for (size_t i = 0; i < 4; ++i) {
        orders.push_back(order_of(book(tokenizer, 60 * i, 20 + 10 * i), 30));
        if (i == 2) orders.back().options.sampling.temperature = 1;
        if (i == 3)
            orders.back().policy =
                PolicyChoice{{"name", "sliding_window"}, {"budget.tokens", "40"}};
    }
    std::vector<Answer> answers(orders.size());
    for (size_t i = 0; i < orders.size(); ++i) {
        if (i > 0) answers[i - 1].wait_for_tokens(10 * i);
        submit(*scheduler, orders[i], answers[i]);
    }
    for (size_t i = 0; i < orders.size(); ++i) {
        INFO("request " << i);
        answers[i].wait();
        CHECK(answers[i].only().ids == alone(orders[i]).ids);
    }
    CHECK(scheduler->drain(10));
    CHECK(scheduler->stats().finished == 4);
}
