// Generates a text of 100,000 tokens in a cache of 256 slots whose keys are rotated again at each
// eviction. Memory must stay constant, numbers must stay finite, and a step must take as many ops,
// bytes and blocks as at the beginning. The speed is printed but not checked, because it depends on
// other load on the machine.
#include "platform/memory.hpp"
#include "run/session.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <set>

using namespace keel;

namespace {

// The countable cost of one step.
struct StepCost {
    uint64_t ops = 0, bytes = 0; // bytes that the host writes and reads
    uint64_t kv_bytes = 0;       // bytes in use after the step
};

StepCost operator-(const StepCost &a, const StepCost &b) {
    return {a.ops - b.ops, a.bytes - b.bytes, a.kv_bytes};
}

StepCost cost_so_far(Session &session) {
    const SessionStats &s = session.stats();
    return {s.stream.ops, s.stream.written_bytes + s.stream.read_bytes, s.kv_bytes};
}

// The costs of the first steps, with which the later steps are compared.
struct Beginning {
    std::set<uint64_t> ops; // numbers of ops in steps without evictions
    uint64_t eviction_ops = 0, bytes = 0, kv_bytes = 0;

    void add(const StepCost &step, bool evicted) {
        if (evicted)
            eviction_ops = std::max(eviction_ops, step.ops);
        else
            ops.insert(step.ops);
        bytes = std::max(bytes, step.bytes);
        kv_bytes = std::max(kv_bytes, step.kv_bytes);
    }
    // The number of keys that an eviction rotates depends on the kept slots, and two rare events
    // may occur in the same step.
    bool covers(const StepCost &step, bool evicted) const {
        return (evicted ? step.ops <= 2 * eviction_ops : ops.count(step.ops) != 0) &&
               step.bytes <= 2 * bytes && step.kv_bytes <= kv_bytes;
    }
};

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

    std::mt19937 random(
        1); // nearly greedy: a greedy text would repeat itself, so a tenth of the tokens differ
    const CacheManager &cache = session.cache();
    const BudgetNow budget = cache.setup().budget().at(0);
    uint64_t resident = 0, kv_peak = 0, evictions = 0;
    Beginning first;
    StepCost before = cost_so_far(session);
    std::string speeds;
    auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 1; i <= tokens; ++i) {
        int32_t id = session.greedy();
        if (random() % 10 == 0) id = static_cast<int32_t>(random() % 4000);
        const auto logits = session.logits();
        REQUIRE(std::isfinite(logits[static_cast<size_t>(id)]));
        REQUIRE(std::all_of(logits.begin(), logits.end(),
                            [](float logit) { return std::isfinite(logit); }));
        session.decode(id);
        const bool evicted = cache.evictions() != evictions;
        evictions = cache.evictions();
        const StepCost now = cost_so_far(session), step = now - before;
        before = now;
        if (i <= 2 * block) {
            if (i > 512) first.add(step, evicted); // the cache is full by then
        } else if (!first.covers(step, evicted)) {
            FAIL("step " << i << (evicted ? ", which evicts," : "") << " took " << step.ops
                         << " ops, " << step.bytes << " bytes from and to the host and "
                         << step.kv_bytes << " of cache; at the beginning " << first.eviction_ops
                         << " with an eviction, " << first.bytes << " and " << first.kv_bytes);
        }
        REQUIRE(cache.cache().max_length() <= budget.tokens + budget.slack + 1);
        if (i % block != 0) continue;
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        speeds += fmt::format(" {:.0f}", static_cast<double>(block) / seconds.count());
        if (i == 2 * block) { // all memory that is allocated once was allocated by then
            resident = resident_bytes();
            kv_peak = session.stats().kv_peak_bytes;
        }
        if (i > 2 * block) {
            // Only the list of the text's tokens grows: 4 bytes each, in a vector that doubles.
            // This is half a MiB at 100,000 tokens.
            INFO("resident " << resident << " at " << 2 * block << " tokens, " << resident_bytes()
                             << " at " << i);
            REQUIRE(resident_bytes() <= resident + (uint64_t{1} << 20));
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
