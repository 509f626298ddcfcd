// Random requests from several threads.

#include "scheduler_rig.hpp"

#include "base/error.hpp"

#include <atomic>
#include <random>
#include <thread>

using namespace keel;
using namespace keel::test;

namespace {

TextOrder random_order(std::mt19937 &random, const std::vector<int32_t> &text) {
    const auto upto = [&](size_t n) { return random() % n; };
    const std::vector<PolicyChoice> policies = {
        {},
        {{"name", "sliding_window"}, {"budget.tokens", std::to_string(24 + upto(80))}},
        {{"name", "snapkv"}, {"budget.tokens", std::to_string(64 + upto(3))}},
        {{"name", "h2o"}, {"budget.tokens", "48"}},
        {{"name", "random"}, {"budget.ratio", "0.5"}},
        {{"name", "kvzip"}, {"budget.tokens", "64"}}};
    const size_t first = upto(400), length = 1 + upto(200);
    TextOrder order = order_of({text.begin() + static_cast<std::ptrdiff_t>(first),
                                text.begin() + static_cast<std::ptrdiff_t>(first + length)},
                               static_cast<int64_t>(upto(40)), policies[upto(policies.size())]);
    order.options.sampling.temperature = upto(2) == 0 ? 0.0F : 1.0F;
    order.options.sampling.seed = random();
    if (upto(4) == 0) order.choices = 1 + static_cast<int64_t>(upto(3));
    if (upto(4) == 0) order.prompt_logprobs = 1;
    if (upto(3) == 0) order.options.logprobs = 1;
    return order;
}

// A client that submits requests, cancels some of them, and checks how each one ends.
struct Client {
    uint64_t submitted = 0, refused = 0, with_wrong_end = 0;

    void run(Scheduler &scheduler, unsigned seed, int rounds, const std::vector<int32_t> &text) {
        std::mt19937 random(seed);
        for (int i = 0; i < rounds; ++i) {
            std::vector<std::unique_ptr<Answer>> answers;
            std::vector<TextOrder> orders;
            for (int k = 0; k < 3; ++k) {
                auto answer = std::make_unique<Answer>();
                TextOrder order = random_order(random, text);
                try {
                    const uint64_t id = submit(scheduler, order, *answer);
                    ++submitted;
                    if (random() % 4 == 0) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
                        scheduler.cancel(id);
                    }
                    answers.push_back(std::move(answer));
                    orders.push_back(std::move(order));
                } catch (const Error &) {
                    ++refused;
                }
            }
            for (size_t k = 0; k < answers.size(); ++k) {
                answers[k]->wait();
                if (!ended_well(*answers[k], orders[k])) ++with_wrong_end;
            }
        }
    }

    static bool ended_well(const Answer &answer, const TextOrder &order) {
        if (answer.done != 1 || std::ssize(answer.choices) != order.choices) return false;
        for (const auto &[number, choice] : answer.choices) {
            if (choice.ends != 1 || choice.came_after_end || choice.has_failed) return false;
            if (order.options.logprobs && choice.logprobs.size() != choice.ids.size()) return false;
            const bool is_whole = std::ssize(choice.ids) == order.options.max_tokens;
            if (choice.reason == StopReason::max_tokens && !is_whole) return false;
            if (choice.reason != StopReason::max_tokens && choice.reason != StopReason::cancelled)
                return false;
        }
        return true;
    }
};

void run_clients(int rounds, const SchedulerLimits &limits) {
    const auto scheduler = open_scheduler(limits);
    const std::vector<int32_t> text = book(*scheduler->pipeline().tokenizer(), 0, 700);
    std::vector<Client> clients(3);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < clients.size(); ++i)
        threads.emplace_back([&, i] { clients[i].run(*scheduler, i + 1, rounds, text); });
    std::atomic<bool> is_over{false};
    uint64_t most_reserved = 0;
    std::thread watcher([&] {
        while (!is_over) {
            most_reserved = std::max(most_reserved, scheduler->stats().reserved_bytes);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    for (std::thread &thread : threads) thread.join();
    is_over = true;
    watcher.join();
    CHECK(scheduler->drain(30));
    const SchedulerStats stats = scheduler->stats();
    uint64_t submitted = 0, refused = 0;
    for (const Client &client : clients) {
        submitted += client.submitted;
        refused += client.refused;
        CHECK(client.with_wrong_end == 0);
    }
    CHECK(submitted > 0);
    CHECK(stats.requests == submitted);
    CHECK(stats.refused == refused);
    CHECK(stats.finished + stats.cancelled == submitted);
    CHECK(stats.failed == 0);
    CHECK(stats.running == 0);
    CHECK(stats.waiting == 0);
    if (limits.kept == 0) CHECK(stats.cache_bytes == 0);
    CHECK(stats.reserved_bytes == 0);
    CHECK(stats.cache_peak_bytes <= limits.cache_bytes);
    CHECK(most_reserved <= limits.cache_bytes);
}

} // namespace

TEST_CASE("random requests of several threads all end, within the cap") {
    run_clients(25, {.seats = 4, .waiting = 6, .cache_bytes = 4 << 20, .prefill_chunk = 64});
    run_clients(15, {.seats = 4, .waiting = 6, .cache_bytes = 4 << 20, .kept = 3});
}

// Short enough for a build with a thread sanitizer.
TEST_CASE("threads may submit, cancel and read the state at any time") {
    run_clients(3, {.seats = 3, .waiting = 3, .cache_bytes = 4 << 20, .prefill_chunk = 32});
}
