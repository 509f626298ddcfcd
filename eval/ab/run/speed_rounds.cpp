#include "eval/ab/run/speed_rounds.hpp"

#include "base/error.hpp"
#include "eval/stats/draws.hpp"
#include "eval/stats/estimate.hpp"

#include <algorithm>

namespace keel::ab {
namespace {

// Makes random tokens. The values of the tokens do not matter, because the time does not depend on
// the values.
std::vector<int32_t> random_tokens(uint64_t seed, int64_t n, int64_t vocabulary) {
    SplitMix64 draws(seed);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i)
        ids.push_back(static_cast<int32_t>(draws.below(static_cast<uint64_t>(vocabulary))));
    return ids;
}

} // namespace

SpeedRounds::SpeedRounds(ItemContext &context, RunProgress &progress)
    : context_(context), progress_(progress) {
    for (size_t r = 0; r < context.experiment.runs.size(); ++r) {
        for (const uint64_t seed : context.experiment.runs[r].seeds) runs_.push_back({r, seed});
    }
}

SpeedRounds::Times SpeedRounds::measure(const PlannedTask &task, const Seeded &run, int64_t depth,
                                        int64_t decode) {
    const Task &t = *task.task;
    const Run &r = context_.experiment.runs[run.run];
    const int64_t vocabulary = context_.arms.pipeline(run.run).model().vocab_size;
    const std::vector<int32_t> prompt =
        random_tokens(t.seed, std::max<int64_t>(depth, 1), vocabulary);
    double start = steady_seconds();
    const Arms::Opened opened = context_.arms.open_alone(run.run, run.seed, 0, prompt);
    Session &s = *opened.session;
    int32_t id = s.greedy();
    Times times{steady_seconds() - start, {}, {}};
    std::string why;
    if (!s.can_take(decode, &why))
        throw_at(t.where, ErrorKind::input, "task '{}': arm '{}' at depth {}: {}", t.name, r.arm,
                 depth, why);
    Measured measured(context_.arms, run.run, s, opened);
    for (int64_t i = 0; i < decode; ++i) {
        start = steady_seconds();
        s.decode(id);
        id = s.greedy();
        times.steps.push_back(steady_seconds() - start);
        measured.sample();
    }
    measured.fill(times.memory);
    return times;
}

void SpeedRounds::write(const PlannedTask &task, const Seeded &run, int64_t depth, size_t round,
                        Times times) {
    const Run &r = context_.experiment.runs[run.run];
    double sum = 0;
    for (const double v : times.steps) sum += v;
    std::sort(times.steps.begin(), times.steps.end());
    std::vector<std::pair<const char *, double>> values = {{"ttft_ms", 1e3 * times.first}};
    constexpr int64_t worth_timing = 16;
    if (depth >= worth_timing)
        values.emplace_back("prefill_tokens_per_second", static_cast<double>(depth) / times.first);
    values.emplace_back("decode_tokens_per_second", static_cast<double>(times.steps.size()) / sum);
    values.emplace_back("decode_ms_p50", 1e3 * quantile(times.steps, 0.5));
    values.emplace_back("decode_ms_p99", 1e3 * quantile(times.steps, 0.99));
    for (const auto &[name, value] : values) {
        Item item = times.memory;
        item.arm = r.arm;
        item.budget = r.budget;
        item.task = task.task->name;
        item.seed = run.seed;
        item.metric = name;
        item.document = fmt::format("round {}", round);
        item.item = item_name(depth, round);
        item.value = value;
        item.length = depth;
        context_.results.write(item);
    }
}

std::string SpeedRounds::item_name(int64_t depth, size_t round) {
    return fmt::format("depth {}, round {}", depth, round);
}

void SpeedRounds::run(const PlannedTask &task) {
    const Task &t = *task.task;
    const size_t depths = t.at.size();
    bool warm = false;
    for (size_t d = 0; d < task.documents; ++d) {
        const int64_t depth = t.at[d % depths];
        const size_t round = d / depths;
        const auto done = [&](const Seeded &run) {
            const Run &r = context_.experiment.runs[run.run];
            return context_.results.is_finished({r.arm, r.budget, "", t.name, run.seed},
                                                item_name(depth, round));
        };
        progress_.begin(1);
        if (std::all_of(runs_.begin(), runs_.end(), done)) {
            for (size_t i = 0; i < runs_.size(); ++i) progress_.found();
            progress_.end();
            continue;
        }
        if (!warm) {
            for (const Seeded &run : runs_)
                measure(task, run, std::min<int64_t>(t.at.front(), 64),
                        std::min<int64_t>(t.decode, 4));
            warm = true;
        }
        const bool backwards = round % 2 == 1;
        for (size_t i = 0; i < runs_.size(); ++i) {
            const Seeded &run = runs_[backwards ? runs_.size() - 1 - i : i];
            if (!done(run)) write(task, run, depth, round, measure(task, run, depth, t.decode));
            progress_.step(i + 1);
        }
        progress_.end();
    }
    if (context_.options.say)
        context_.options.say(fmt::format("{}: {} rounds", t.name, task.documents / depths));
}

} // namespace keel::ab
