// The scheduler's limit on the bytes of all caches.

#include "scheduler_rig.hpp"
#include "support/error_text.hpp"

#include <thread>

using namespace keel;
using namespace keel::test;

namespace {

// What 8 full caches of 512 tokens need.
uint64_t bytes_of_full_caches() {
    Pipeline pipeline(rig_config(), scheduler_pipeline_options({.seats = 8}));
    return 8 * cache_bound(pipeline, pipeline.policy_setup(), 448, 64, 0).peak(1);
}

struct CapResult {
    SchedulerStats stats;
    int64_t most_running = 0;
};

CapResult run_eight(const PolicyChoice &policy, uint64_t cap) {
    CapResult result;
    const auto scheduler =
        open_scheduler({.seats = 8, .waiting = 8, .cache_bytes = cap, .prefill_chunk = 64});
    std::vector<Answer> answers(8);
    for (size_t i = 0; i < 8; ++i) {
        submit(*scheduler,
               order_of(book(*scheduler->pipeline().tokenizer(), 20 * i, 448), 64, policy),
               answers[i]);
    }
    while (scheduler->stats().finished < 8) {
        const SchedulerStats stats = scheduler->stats();
        result.most_running = std::max(result.most_running, stats.running);
        CHECK(stats.reserved_bytes <= cap);
        std::this_thread::yield();
    }
    for (Answer &answer : answers) {
        answer.wait();
        CHECK(answer.only().ids.size() == 64);
        CHECK(answer.only().reason == StopReason::max_tokens);
        CHECK(answer.only().detail.empty());
    }
    CHECK(scheduler->drain(10));
    result.stats = scheduler->stats();
    CHECK(result.stats.finished == 8);
    CHECK(result.stats.cache_peak_bytes <= cap);
    CHECK(result.stats.cache_peak_bytes > cap / 8);
    CHECK(result.stats.cap_bytes == cap);
    return result;
}

} // namespace

TEST_CASE("with a quarter of the memory of 8 full caches, all 8 requests finish") {
    const uint64_t cap = bytes_of_full_caches() / 4;
    const CapResult none = run_eight({}, cap);
    CHECK(none.most_running == 2); // the others wait
    CHECK(none.stats.evicted_tokens == 0);
    const CapResult window = run_eight({{"name", "sliding_window"}, {"budget.tokens", "64"}}, cap);
    CHECK(window.most_running >= 4);
    CHECK(window.stats.evicted_tokens > 8 * 300);
    const CapResult snapkv = run_eight({{"name", "snapkv"}, {"budget.tokens", "64"}}, cap);
    CHECK(snapkv.most_running >= 1); // the whole prompt is held until its end
    CHECK(snapkv.stats.evicted_tokens > 8 * 300);
}

TEST_CASE("a request that can never fit under the cap is refused with the numbers") {
    const uint64_t cap = bytes_of_full_caches() / 16;
    const auto scheduler = open_scheduler({.seats = 8, .cache_bytes = cap});
    const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 448);
    Answer answer;
    CHECK_THAT(
        error_text([&] { submit(*scheduler, order_of(prompt, 64), answer); }, ErrorKind::usage),
        Catch::Contains("cache_bytes"));
    CHECK(scheduler->stats().refused == 1);
    TextOrder choices = order_of(book(*scheduler->pipeline().tokenizer(), 0, 30), 200);
    choices.choices = 8;
    CHECK_THAT(error_text([&] { submit(*scheduler, choices, answer); }, ErrorKind::usage),
               Catch::Contains("choices"));
    submit(*scheduler, order_of(book(*scheduler->pipeline().tokenizer(), 0, 30), 20), answer);
    answer.wait();
    CHECK(answer.only().ids.size() == 20);
}

TEST_CASE("a text that fills the context ends with cache_full") {
    const auto scheduler = open_scheduler({.seats = 2}, {"model.context=64"});
    Answer answer, other;
    const std::vector<int32_t> prompt = book(*scheduler->pipeline().tokenizer(), 0, 40);
    submit(*scheduler, order_of(prompt, 100), answer);
    submit(*scheduler, order_of(prompt, 10), other);
    answer.wait();
    other.wait();
    CHECK(answer.only().reason == StopReason::cache_full);
    CHECK_THAT(answer.only().detail, Catch::Contains("model.context"));
    CHECK(answer.only().ids.size() == 25); // the last token has no slot
    CHECK(other.only().ids.size() == 10);
}
