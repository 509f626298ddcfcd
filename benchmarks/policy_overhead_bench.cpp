// Measures the cost of an active eviction policy per decoded token, compared with `none` at the
// same cache length.
//
//     policy_overhead_bench MODEL --policies none,random,snapkv,keydiff,h2o --depth 4096
//         --pairs 6 [--set KEY=VALUE ...]
//
// A pair is a session under `none` and a session under the policy, whose budget and slack add up to
// the depth. Both read a prompt of `depth` random tokens. They decode tokens alternately in ABBA
// order, so that drift of the machine affects both. A pair runs for one cycle: from one eviction to
// the next, including the eviction's time. When the policy evicts, the other session is cut to the
// same length.
//
// The place of a session's memory changes its speed by up to a percent, for as long as the session
// exists. So the steps of one pair are not independent measurements. Each pair has its own
// sessions, made from a saved prompt, in the opposite order of the pair before. The interval is
// Student's t over the ratios of the pairs. `none` as a policy is the control: its ratio should be
// 1. `random` evicts and otherwise costs almost nothing.
#include "eval/stats/distributions.hpp"
#include "kv/store/state_io.hpp"
#include "run/pipeline.hpp"
#include "run/session.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

using namespace keel;

namespace {

using Clock = std::chrono::steady_clock;

class MemoryWriter final : public StateWriter {
  public:
    explicit MemoryWriter(std::vector<std::byte> &out) : out_(out) {}
    void write(const void *data, size_t bytes) override {
        const auto *from = static_cast<const std::byte *>(data);
        out_.insert(out_.end(), from, from + bytes);
    }

  private:
    std::vector<std::byte> &out_;
};

// A session that has read its prompt except for the end. It can be restored repeatedly.
class SavedPrompt {
  public:
    SavedPrompt(Pipeline &pipeline, PolicySetup &plan, std::span<const int32_t> prompt)
        : pipeline_(pipeline), plan_(plan) {
        Session session(pipeline, plan);
        session.prefill(prompt, false);
        MemoryWriter out(state_);
        session.save_state(out);
    }
    std::unique_ptr<Session> make() const {
        auto session = std::make_unique<Session>(pipeline_, plan_);
        StateReader in(state_, "the saved prompt");
        session->load_state(in);
        session->end_prompt();
        return session;
    }

  private:
    Pipeline &pipeline_;
    PolicySetup &plan_;
    std::vector<std::byte> state_;
};

double step_ms(Session &s, int32_t id) {
    const auto begin = Clock::now();
    s.decode(id);
    s.greedy();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

int64_t length(Session &s) { return s.cache().cache().max_length(); }

// Sums over one cycle, in milliseconds.
struct Cycle {
    // eviction: time of the evicting step, minus that of the same step under `none`
    double none = 0, policy = 0, eviction = 0;
    int64_t steps = 0;
};

Cycle measure(Session &none, Session &policy, bool is_control, int64_t slack) {
    std::mt19937 ids(7);
    const auto next = [&] {
        return static_cast<int32_t>(ids() %
                                    static_cast<uint32_t>(none.pipeline().model().vocab_size));
    };
    if (is_control) policy.truncate(slack);
    none.truncate(length(none) - length(policy));
    constexpr int64_t warm = 8; // number of warm-up steps, which are not counted
    for (int64_t i = 0; i < warm; ++i) {
        const int32_t id = next();
        step_ms(none, id);
        step_ms(policy, id);
    }
    Cycle c;
    for (bool evicted = false; !evicted; ++c.steps) {
        const int32_t id = next();
        const uint64_t before = policy.stats().evictions;
        double a = 0, b = 0;
        if (c.steps % 4 == 0 || c.steps % 4 == 3) {
            a = step_ms(none, id);
            b = step_ms(policy, id);
        } else {
            b = step_ms(policy, id);
            a = step_ms(none, id);
        }
        evicted = policy.stats().evictions != before || (is_control && warm + c.steps + 1 == slack);
        if (evicted && !is_control) c.eviction = b - a;
        c.none += a;
        c.policy += b;
    }
    return c;
}

void report(const std::string &name, const std::vector<Cycle> &cycles) {
    const auto n = static_cast<double>(cycles.size());
    double mean = 0, square = 0, none = 0, policy = 0, eviction = 0, steps = 0;
    for (const Cycle &c : cycles) {
        const double r = std::log(c.policy / c.none);
        mean += r / n;
        square += r * r / n;
        none += c.none;
        policy += c.policy;
        eviction += c.eviction / n;
        steps += static_cast<double>(c.steps);
    }
    const double error =
        cycles.size() < 2 ? 0 : std::sqrt(std::max(0.0, square - mean * mean) / (n - 1));
    const double t = cycles.size() < 2 ? 0 : student_quantile(0.975, n - 1);
    fmt::print("{:<12} none {:.3f} ms, policy {:.3f} ms a token; ratio {:.4f}, 95% {:.4f} to "
               "{:.4f} over {} "
               "pairs of {:.0f} "
               "steps; an eviction takes {:.1f} ms more\n",
               name, none / steps, policy / steps, std::exp(mean), std::exp(mean - t * error),
               std::exp(mean + t * error), cycles.size(), steps / n, eviction);
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("What an active policy costs per decoded token");
    std::string model;
    std::vector<std::string> policies = {"none", "random", "snapkv", "keydiff", "h2o"}, sets;
    int64_t depth = 4096, pairs = 6;
    app.add_option("model", model)->required();
    app.add_option("--policies", policies)->delimiter(',');
    app.add_option("--depth", depth)->check(CLI::Range(64, 1 << 20));
    app.add_option("--pairs", pairs)->check(CLI::Range(1, 1000));
    app.add_option("--set", sets);
    CLI11_PARSE(app, argc, argv);
    try {
        std::vector<std::string> base = {"model.path=" + model, "backend.plugin=cpu",
                                         "policy.plugin=none",
                                         fmt::format("model.context={}", depth + depth / 4)};
        base.insert(base.end(), sets.begin(), sets.end());
        PipelineOptions options;
        options.sequences = 2;
        options.need_tokenizer = false;
        Pipeline pipeline(pipeline::config_from_overrides(base), options);
        std::mt19937 random(1);
        std::vector<int32_t> prompt;
        for (int64_t i = 0; i < depth; ++i)
            prompt.push_back(static_cast<int32_t>(
                random() % static_cast<uint32_t>(pipeline.model().vocab_size)));
        const int64_t budget = depth * 8 / 9,
                      slack = budget / 8; // the default slack
        const SavedPrompt full(pipeline, pipeline.policy_setup(), prompt);
        for (const std::string &name : policies) {
            PolicySetup *plan = &pipeline.policy_setup();
            if (name != "none") {
                std::vector<std::string> set = base;
                set.push_back("policy.plugin=" + name);
                set.push_back(fmt::format("policy.budget.tokens={}", budget));
                set.push_back("policy.trigger.on=[prefill_end, budget]");
                if (name == "snapkv") set.push_back("policy.params.decode=true");
                plan = &pipeline.policies().add(pipeline::config_from_overrides(set).policy);
            }
            const SavedPrompt own(pipeline, *plan, prompt);
            std::vector<Cycle> cycles;
            for (int64_t i = 0; i < pairs; ++i) {
                std::unique_ptr<Session> none, policy;
                if (i % 2 == 0) none = full.make();
                policy = own.make();
                if (i % 2 == 1) none = full.make();
                cycles.push_back(measure(*none, *policy, plan == &pipeline.policy_setup(), slack));
            }
            report(name, cycles);
        }
    } catch (const std::exception &e) {
        fmt::print(stderr, "policy_overhead_bench: {}\n", e.what());
        return 1;
    }
}
