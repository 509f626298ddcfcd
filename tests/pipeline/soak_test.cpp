// A text that goes on for 100,000 tokens in a cache of 256 slots whose keys are rotated again at each eviction: memory stays where it
// is, numbers stay finite. How fast it ran is printed, block by block, and never asserted.
#include "pipeline/session.hpp"
#include "platform/memory.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <random>

using namespace keel;

namespace {

void soak(const std::string &policy, int64_t tokens, int64_t block) {
    const std::string text =
        fmt::format("model: {{path: {}/models/tiny}}\n"
                    "backend: {{plugin: cpu}}\n"
                    "kv: {{dtype: f16}}\n"
                    "policy: {{plugin: {}, budget: {{tokens: 256}}, protect: {{prefix: 4}}, "
                    "positions: rerotated, trigger: {{on: [prefill_end, budget]}}}}\n"
                    "strict: true\n",
                    KEEL_SOURCE_DIR, policy);
    Pipeline pipeline(pipeline::parse_config(text, "soak.yaml", "/"));
    Session session(pipeline);
    const auto prompt = pipeline.tokenizer()->encode("Once upon a time there was a king", true);
    session.prefill(prompt);

    std::mt19937 random(1); // near greedy, but for a tenth of the tokens: a greedy text would run in a circle
    const CacheManager &cache = session.cache();
    const BudgetNow budget = cache.plan().budget(0);
    uint64_t resident = 0, kv_peak = 0;
    std::string speeds;
    auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 1; i <= tokens; ++i) {
        int32_t id = session.greedy();
        if (random() % 10 == 0) id = static_cast<int32_t>(random() % 4000);
        session.decode(id);
        REQUIRE(cache.cache().max_length() <= budget.tokens + budget.slack + 1);
        if (i % block != 0) continue;
        for (const float logit : session.logits())
            REQUIRE(std::isfinite(logit));
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        speeds += fmt::format(" {:.0f}", static_cast<double>(block) / seconds.count());
        if (i == 2 * block) { // by then all that is made once was made
            resident = resident_bytes();
            kv_peak = session.stats().kv_peak_bytes;
        }
        if (i > 2 * block) {
            // 4 bytes a token of history, and what an allocator may do with that as it grows.
            const uint64_t history = static_cast<uint64_t>(i) * 3 * sizeof(int32_t);
            REQUIRE(resident_bytes() <= resident + history + (uint64_t{2} << 20));
            REQUIRE(session.stats().kv_peak_bytes == kv_peak);
        }
        begin = std::chrono::steady_clock::now();
    }
    CHECK(session.tokens() == tokens + std::ssize(prompt));
    CHECK(session.stats().evictions > static_cast<uint64_t>(tokens) / 64);
    WARN(policy << ": tokens a second, each " << block << " tokens:" << speeds);
}

} // namespace

TEST_CASE("100,000 tokens in 256 slots, re-rotated: a window") {
    soak("sliding_window", 100'000, 10'000);
}

TEST_CASE("20,000 tokens in 256 slots, re-rotated: scattered slots that a scorer chooses") {
    soak("keydiff", 20'000, 2'000);
}
