// What an active eviction policy costs per decoded token, against `none` at the same cache length.
//
//     policy_overhead_bench MODEL --policies none,random,snapkv,keydiff,h2o --depth 4096 --cycles 4 [--set KEY=VALUE ...]
//
// A session under `none` and one under the policy, whose budget and slack add up to the depth, each with a prefill of `depth` random
// tokens of its own: forks of one prefill would not do, because an eviction moves what it keeps into blocks of its own, and the session
// under `none` would be left with the blocks that it shares. Where a session's memory lies makes it faster or slower by up to a percent:
// half of the cycles are measured against a session that was made before the policy's, half against one that was made after it. Both decode token by token in turn, in ABBA order, so that drift of the
// machine falls on both. Whenever the policy evicts, the other session is cut back to the same length. The ratio of the times of whole
// cycles (from one eviction to the next, the eviction's own time in it) comes with a bootstrap interval: steps are drawn in blocks of 16
// neighbours, evictions among themselves. `none` as a policy is the control: two sessions of the same kind, whose ratio should be 1;
// `random` evicts and costs next to nothing else.
#include "base/error.hpp"
#include "eval/ab/statistics.hpp"
#include "pipeline/pipeline.hpp"
#include "pipeline/session.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>

using namespace keel;

namespace {

using Clock = std::chrono::steady_clock;

double step_ms(Session &s, int32_t id) {
    const auto begin = Clock::now();
    s.decode(id);
    s.greedy();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Pair {
    double none = 0, policy = 0;
};

// Both sums of `n` blocks drawn with replacement.
Pair draw(const std::vector<Pair> &pairs, size_t block, AbRandom &random) {
    Pair sum;
    const size_t blocks = (pairs.size() + block - 1) / block;
    for (size_t b = 0; b < blocks; ++b) {
        const size_t at = random.below(static_cast<uint32_t>(blocks)) * block;
        for (size_t i = at; i < std::min(at + block, pairs.size()); ++i) {
            sum.none += pairs[i].none;
            sum.policy += pairs[i].policy;
        }
    }
    return sum;
}

// What was measured of one policy.
struct Measured {
    std::vector<Pair> steps, evictions;
};

std::unique_ptr<Session> make_session(Pipeline &pipeline, CachePlan &plan, std::span<const int32_t> prompt) {
    auto session = std::make_unique<Session>(pipeline, plan);
    session->prefill(prompt, true);
    return session;
}

// `cycles` more of them.
void measure(Session &none, Session &policy, bool is_control, int64_t cycles, int64_t slack, Measured &out) {
    std::mt19937 ids(7);
    const auto next = [&] {
        return static_cast<int32_t>(ids() % static_cast<uint32_t>(none.pipeline().model().vocab_size));
    };
    const auto follow = [&] {
        const int64_t excess = none.cache().cache().max_length() - policy.cache().cache().max_length();
        if (excess > 0) none.truncate(excess);
    };
    follow();
    while (none.cache().cache().max_length() < policy.cache().cache().max_length())
        step_ms(none, next());
    int64_t turn = 0;
    for (int64_t done = 0; done < cycles;) {
        const int32_t id = next();
        const uint64_t before = policy.stats().evictions;
        Pair p;
        if (turn++ % 4 == 0 || turn % 4 == 0) {
            p.none = step_ms(none, id);
            p.policy = step_ms(policy, id);
        } else {
            p.policy = step_ms(policy, id);
            p.none = step_ms(none, id);
        }
        const bool evicted = policy.stats().evictions != before;
        const bool is_cut = is_control && turn % slack == 0; // as far as an eviction would go
        if (is_cut) policy.truncate(slack);
        if (turn > 8) (evicted ? out.evictions : out.steps).push_back(p); // the first steps warm up
        done += evicted || is_cut ? 1 : 0;
        follow();
    }
}

void report(const std::string &name, int64_t slack, const Measured &m) {
    const std::vector<Pair> &steps = m.steps, &evictions = m.evictions;
    AbRandom random(1);
    std::vector<double> ratios;
    for (int i = 0; i < 4000; ++i) {
        const Pair a = draw(steps, 16, random), b = draw(evictions, 1, random);
        ratios.push_back((a.policy + b.policy) / (a.none + b.none));
    }
    std::sort(ratios.begin(), ratios.end());
    const auto sum = [](const std::vector<Pair> &v) {
        return std::accumulate(v.begin(), v.end(), Pair{}, [](Pair a, const Pair &b) {
            return Pair{a.none + b.none, a.policy + b.policy};
        });
    };
    const Pair a = sum(steps), b = sum(evictions);
    const auto n = static_cast<double>(steps.size() + evictions.size());
    fmt::print(
        "{:<12} slack {:>4}  none {:.3f} ms, policy {:.3f} ms a token; ratio {:.4f}, 95% {:.4f} to {:.4f}; "
        "{} steps, {} evictions of {:.1f} ms more each\n",
        name, slack, (a.none + b.none) / n, (a.policy + b.policy) / n,
        (a.policy + b.policy) / (a.none + b.none), ratios[100], ratios[3899], steps.size(), evictions.size(),
        (b.policy - b.none) / static_cast<double>(std::max<size_t>(1, evictions.size())));
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("What an active policy costs per decoded token");
    std::string model;
    std::vector<std::string> policies = {"none", "random", "snapkv", "keydiff", "h2o"}, sets;
    int64_t depth = 4096, cycles = 4;
    app.add_option("model", model)->required();
    app.add_option("--policies", policies)->delimiter(',');
    app.add_option("--depth", depth);
    app.add_option("--cycles", cycles);
    app.add_option("--set", sets);
    CLI11_PARSE(app, argc, argv);
    try {
        std::vector<std::string> base = {"model.path=" + model, "backend.plugin=cpu", "policy.plugin=none",
                                         fmt::format("model.context={}", depth + depth / 4)};
        base.insert(base.end(), sets.begin(), sets.end());
        PipelineOptions options;
        options.sequences = 2;
        options.need_tokenizer = false;
        Pipeline pipeline(pipeline::config_from_overrides(base), options);
        std::mt19937 random(1);
        std::vector<int32_t> prompt;
        for (int64_t i = 0; i < depth; ++i)
            prompt.push_back(
                static_cast<int32_t>(random() % static_cast<uint32_t>(pipeline.model().vocab_size)));
        auto none = make_session(pipeline, pipeline.cache_plan(), prompt);
        for (const std::string &name : policies) {
            // Slack as it is unless somebody sets it: an eighth of the budget.
            const int64_t budget = depth * 8 / 9, slack = budget / 8;
            CachePlan *plan = &pipeline.cache_plan();
            if (name != "none") {
                std::vector<std::string> set = base;
                set.push_back("policy.plugin=" + name);
                set.push_back(fmt::format("policy.budget.tokens={}", budget));
                set.push_back("policy.trigger.on=[prefill_end, budget]");
                if (name == "snapkv") set.push_back("policy.params.decode=true");
                plan = &pipeline.add_policy(pipeline::config_from_overrides(set).policy);
            }
            const bool is_control = plan == &pipeline.cache_plan();
            const auto policy = make_session(pipeline, *plan, prompt);
            if (is_control) policy->truncate(slack);
            Measured measured;
            measure(*none, *policy, is_control, cycles / 2, slack, measured);
            none.reset();
            none = make_session(pipeline, pipeline.cache_plan(), prompt);
            measure(*none, *policy, is_control, cycles - cycles / 2, slack, measured);
            report(name, slack, measured);
        }
    } catch (const std::exception &e) {
        fmt::print(stderr, "policy_overhead_bench: {}\n", e.what());
        return 1;
    }
}
