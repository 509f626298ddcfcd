#include "eval/ab/run/runner_parts.hpp"

#include "base/error.hpp"
#include "eval/stats/draws.hpp"
#include "eval/stats/estimate.hpp"

#include <algorithm>
#include <chrono>

namespace keel::ab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Random tokens, because the time does not depend on their values.
std::vector<int32_t> random_tokens(uint64_t seed, int64_t n, int64_t vocabulary) {
    SplitMix64 draws(seed);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i)
        ids.push_back(static_cast<int32_t>(draws.below(static_cast<uint64_t>(vocabulary))));
    return ids;
}

} // namespace

// At each depth all runs are measured once, then again in the opposite order, and so on. So a drift
// of the machine's speed affects all runs equally.
void Runner::run_speed(const PlannedTask &task) {
    const Task &t = *task.task;
    std::vector<std::pair<size_t, uint64_t>> runs;
    for (size_t r = 0; r < experiment_.runs.size(); ++r) {
        for (const uint64_t seed : experiment_.runs[r].seeds) runs.emplace_back(r, seed);
    }
    const auto measure = [&](size_t run, uint64_t seed, int64_t depth, int64_t decode,
                             const std::string &item_name, const std::string &document) {
        const Run &r = experiment_.runs[run];
        const int64_t vocabulary = arms_->pipeline(run).model().vocab_size;
        const std::vector<int32_t> prompt =
            random_tokens(t.seed, std::max<int64_t>(depth, 1), vocabulary);
        auto start = Clock::now();
        Arms::Opened opened = arms_->open_alone(run, seed, 0, prompt);
        Session &s = *opened.session;
        int32_t id = s.greedy();
        const double first = seconds_since(start);
        std::string why;
        if (!s.can_take(decode, &why))
            throw_at(t.where, ErrorKind::input, "task '{}': arm '{}' at depth {}: {}", t.name,
                     r.arm, depth, why);
        Measured measured(*arms_, run, s, opened);
        std::vector<double> times;
        for (int64_t i = 0; i < decode; ++i) {
            start = Clock::now();
            s.decode(id);
            id = s.greedy();
            times.push_back(seconds_since(start));
            measured.sample();
        }
        if (item_name.empty()) return;
        double sum = 0;
        for (const double v : times) sum += v;
        std::sort(times.begin(), times.end());
        std::vector<std::pair<const char *, double>> values = {{"ttft_ms", 1e3 * first}};
        constexpr int64_t worth_timing = 16;
        if (depth >= worth_timing)
            values.emplace_back("prefill_tokens_per_second", static_cast<double>(depth) / first);
        values.emplace_back("decode_tokens_per_second", static_cast<double>(decode) / sum);
        values.emplace_back("decode_ms_p50", 1e3 * quantile(times, 0.5));
        values.emplace_back("decode_ms_p99", 1e3 * quantile(times, 0.99));
        for (const auto &[name, value] : values) {
            Item item;
            item.arm = r.arm;
            item.budget = r.budget;
            item.task = t.name;
            item.seed = seed;
            item.metric = name;
            item.document = document;
            item.item = item_name;
            item.value = value;
            item.length = depth;
            measured.fill(item);
            writer_->write(item);
        }
    };
    const auto depths = t.at.size();
    bool warm = false;
    for (size_t d = 0; d < task.documents; ++d) {
        const int64_t depth = t.at[d % depths];
        const size_t repeat = d / depths;
        const std::string item = fmt::format("depth {}, round {}", depth, repeat),
                          document = fmt::format("round {}", repeat);
        const auto done = [&](const std::pair<size_t, uint64_t> &run) {
            const Run &r = experiment_.runs[run.first];
            return is_finished({r.arm, r.budget, "", t.name, run.second}, item);
        };
        if (std::all_of(runs.begin(), runs.end(), done)) {
            done_ += runs.size();
            found_ += static_cast<double>(runs.size());
            continue;
        }
        share_ = {done_, 0, 1, 1};
        if (!warm) {
            for (const auto &[run, seed] : runs)
                measure(run, seed, std::min<int64_t>(t.at.front(), 64),
                        std::min<int64_t>(t.decode, 4), "", "");
            warm = true;
        }
        const bool backwards = repeat % 2 == 1;
        for (size_t i = 0; i < runs.size(); ++i) {
            const auto &run = runs[backwards ? runs.size() - 1 - i : i];
            if (!done(run)) measure(run.first, run.second, depth, t.decode, item, document);
            step(i + 1);
        }
        done_ += runs.size();
    }
    if (options_.say) options_.say(fmt::format("{}: {} rounds", t.name, task.documents / depths));
}

} // namespace keel::ab
