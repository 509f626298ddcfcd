#include "eval/ab/run/cost_probe.hpp"

#include <algorithm>

namespace keel::ab {
namespace {

std::vector<int32_t> any_tokens(int64_t n) {
    return std::vector<int32_t>(static_cast<size_t>(std::max<int64_t>(n, 1)), 1);
}

} // namespace

// A group of documents that are processed at the same time, and the time that each Run of the
// experiment needs for this group.
struct CostProbe::Sample {
    size_t first = 0, count = 0; // documents
    // tokens: number of tokens in the units' prompts
    double units = 0, tokens = 0, answers = 0;
    std::vector<Pace> paces; // [runs]; empty: not measured
    double length() const { return tokens / std::max(units, 1.0); }
};

std::vector<CostProbe::Sample> CostProbe::samples(const PlannedTask &task, Protocol protocol,
                                                  size_t documents) {
    std::vector<Sample> all;
    for (size_t d = 0; d < documents; ++d) {
        if (d % task.at_once == 0) all.push_back({d, 0, 0, 0, 0, {}});
        Sample &sample = all.back();
        ++sample.count;
        for (const Unit &unit : task.items->units(d, protocol)) {
            sample.units += 1;
            sample.tokens += static_cast<double>(unit.prompt.size());
            sample.answers += std::max(1.0, static_cast<double>(unit.questions.size()));
        }
    }
    return all;
}

void CostProbe::warm_up() {
    const int64_t tokens = std::min<int64_t>(64, context_.arms.pipeline(0).context() / 2);
    for (size_t r = 0; r < context_.experiment.runs.size(); ++r) {
        check_cancelled(context_.options);
        const Arms::Opened opened = context_.arms.open_alone(
            r, context_.experiment.runs[r].seeds.front(), 0, any_tokens(tokens));
        for (int i = 0; i < 2; ++i) {
            opened.session->decode(1);
            opened.session->greedy();
        }
    }
}

void CostProbe::measure(const PlannedTask &task, Protocol protocol, Sample &sample) {
    context_.paces.assign(context_.experiment.runs.size(), {});
    documents_.run(task, protocol, sample.first, sample.count);
    sample.paces = context_.paces;
}

std::vector<double> CostProbe::estimate(const PlannedTask &task, Protocol protocol,
                                        size_t documents) {
    // patience: if the longest prompt takes more than this number of seconds, the shortest prompt
    // is not measured.
    constexpr double patience = 30, same_length = 1.05;
    context_.arms.keep_prompts(task.at_once);
    std::vector<Sample> all = samples(task, protocol, documents);
    const auto shorter = [](const Sample &a, const Sample &b) { return a.length() < b.length(); };
    const auto [low, high] = std::minmax_element(all.begin(), all.end(), shorter);
    const double begin = steady_seconds();
    measure(task, protocol, *high);
    const bool both =
        high->length() > same_length * low->length() && (steady_seconds() - begin) < patience;
    if (both) measure(task, protocol, *low);
    const Sample &most = *high, &least = both ? *low : *high;
    std::vector<double> seconds;
    for (size_t r = 0; r < context_.experiment.runs.size(); ++r) {
        const Run &run = context_.experiment.runs[r];
        const auto reading = [&](double length) {
            const double at_most = most.paces[r].reading / most.units;
            if (!both) return at_most * length / most.length();
            const double at_least = least.paces[r].reading / least.units,
                         share = (length - least.length()) / (most.length() - least.length());
            return std::max(0.0, at_least + (at_most - at_least) * share);
        };
        const double answers = most.answers + (both ? least.answers : 0),
                     behind = (most.paces[r].all - most.paces[r].reading +
                               (both ? least.paces[r].all - least.paces[r].reading : 0)) /
                              answers;
        double sum = 0;
        for (const Sample &sample : all) {
            if (run.is_rerun && sample.first >= first_reruns) continue;
            sum += sample.units * reading(sample.length()) + sample.answers * behind;
        }
        // The reference's second run takes only the first documents, so its time is not scaled.
        const double scale = run.is_rerun ? 1
                                          : static_cast<double>(task.documents) /
                                                static_cast<double>(documents) *
                                                static_cast<double>(run.seeds.size());
        seconds.push_back(sum * scale);
    }
    return seconds;
}

std::vector<double> CostProbe::estimate_speed(const PlannedTask &task) {
    constexpr int64_t few_steps = 8;
    std::vector<double> seconds;
    for (size_t r = 0; r < context_.experiment.runs.size(); ++r) {
        const Run &run = context_.experiment.runs[r];
        double sum = 0;
        for (const int64_t depth : task.task->at) {
            check_cancelled(context_.options);
            double begin = steady_seconds();
            const Arms::Opened opened =
                context_.arms.open_alone(r, run.seeds.front(), 0, any_tokens(depth));
            opened.session->greedy();
            sum += (steady_seconds() - begin);
            const int64_t steps = std::min(few_steps, task.task->decode);
            begin = steady_seconds();
            for (int64_t i = 0; i < steps; ++i) {
                opened.session->decode(1);
                opened.session->greedy();
            }
            sum += (steady_seconds() - begin) * static_cast<double>(task.task->decode) /
                   static_cast<double>(steps);
        }
        const double rounds =
            static_cast<double>(task.documents) / static_cast<double>(task.task->at.size());
        seconds.push_back(sum * rounds * static_cast<double>(run.seeds.size()));
    }
    return seconds;
}

} // namespace keel::ab
