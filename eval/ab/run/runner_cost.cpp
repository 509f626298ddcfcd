// The cost of an experiment.
#include "eval/ab/run/runner_parts.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>

namespace keel::ab {
namespace {

// `each`: tokens in the sampled documents, which are scaled to all documents. `once`: tokens of the
// reference's second run, which takes only the first documents, so they are not scaled.
struct Sum {
    double each = 0, once = 0;
    void add(double of_each, double of_first) {
        each += of_each;
        once += of_first;
    }
    uint64_t total(double scale) const {
        return static_cast<uint64_t>(std::llround(each * scale + once));
    }
};

} // namespace

// Counts the work of a task under all runs. If the task has items, `sampled` documents are counted,
// and the result is scaled to all documents.
Cost::Row Runner::count(const PlannedTask &task, Protocol protocol, size_t sampled) const {
    uint64_t per_document = 0, capped = 0; // capped: runs with kv.max_mib
    for (const Run &run : experiment_.runs) {
        per_document += run.is_rerun ? 0 : run.seeds.size();
        capped += run.is_rerun || !run.config.kv.max_bytes() ? 0 : run.seeds.size();
    }
    Cost::Row row;
    row.task = task.task->name;
    row.protocol = task.items && task.items->has_question() ? protocol_name(protocol) : "";
    row.documents = task.documents;
    row.runs = per_document;
    if (!task.items) {
        for (size_t d = 0; d < task.documents; ++d) {
            row.prefill_tokens +=
                static_cast<uint64_t>(task.task->at[d % task.task->at.size()]) * (per_document + 1);
            row.decode_tokens += static_cast<uint64_t>(task.task->decode) * (per_document + 1);
        }
        row.decode_steps = row.decode_tokens;
        return row;
    }
    Sum prefill, decode, steps, questions;
    double together = 0, longest = 0; // tokens of the units that take steps together
    size_t members = 0;
    const auto runs = static_cast<double>(per_document);
    for (size_t d = 0; d < sampled; ++d) {
        const double again = d / task.at_once * task.at_once < first_reruns ? 1 : 0;
        // When an answer ends, the next one takes its seat. At the end the longest answer may run
        // alone.
        const auto part = [&] {
            const double n =
                std::max(std::ceil(together / static_cast<double>(task.at_once)), longest);
            steps.add(n * runs, n * again);
            together = longest = 0;
            members = 0;
        };
        for (const Unit &unit : task.items->units(d, protocol)) {
            // With kv.max_mib the session cannot be copied. Then each further question reads the
            // prompt again.
            const uint64_t further = unit.questions.size() > 1 ? unit.questions.size() - 1 : 0;
            const auto prompt = static_cast<double>(unit.prompt.size());
            prefill.add(prompt * static_cast<double>(arms_->prefills() + capped * further),
                        prompt * again);
            const auto answer = [&](double tokens) {
                together += tokens;
                longest = std::max(longest, tokens);
                decode.add(tokens * runs, tokens * again);
            };
            answer(static_cast<double>(unit.continuation.size()));
            for (const Question &q : unit.questions) {
                const auto ask = static_cast<double>(q.ask.size());
                prefill.add(ask * runs, ask * again);
                answer(static_cast<double>(q.max_tokens));
            }
            questions.add(static_cast<double>(unit.questions.size()), 0);
            if (++members == task.at_once) part();
        }
        if ((d + 1) % task.at_once == 0 || d + 1 == sampled) part();
    }
    const double scale =
        static_cast<double>(task.documents) / static_cast<double>(std::max<size_t>(sampled, 1));
    row.prefill_tokens = prefill.total(scale);
    row.decode_tokens = decode.total(scale);
    row.decode_steps = steps.total(scale);
    row.questions = questions.total(scale);
    return row;
}

Cost Runner::cost() {
    constexpr size_t few = 8;
    Cost cost;
    cost.batch = experiment_.config.batch;
    cost.run_seconds.resize(experiment_.runs.size());
    fill_header();
    if (std::error_code error;
        // Throws the error that a run would throw.
        options_.resume && std::filesystem::exists(results(), error))
        require_same_experiment(results(), read_header(results()), options_.header);
    check_items();
    check_lengths();
    const double begin = steady_seconds();
    warm_up();
    for (const PlannedTask &task : tasks_) {
        // `whole`: at least `few` documents, in whole batches.
        const size_t whole = (few + task.at_once - 1) / task.at_once * task.at_once,
                     sampled = std::min(task.documents, whole);
        cost.counted_by_sample = cost.counted_by_sample || (task.items && sampled < task.documents);
        const bool asks = task.items && task.items->has_question();
        const std::vector<Protocol> one = {Protocol::question_blind};
        for (const Protocol protocol : asks ? experiment_.config.protocols : one) {
            if (options_.say)
                options_.say(
                    fmt::format("measuring {}{}", task.task->name,
                                asks ? fmt::format(" ({})", protocol_name(protocol)) : ""));
            Cost::Row row = count(task, protocol, sampled);
            const std::vector<double> seconds =
                task.items ? estimate(task, protocol, sampled) : estimate_speed(task);
            for (size_t r = 0; r < seconds.size(); ++r) {
                cost.run_seconds[r] += seconds[r];
                row.seconds += seconds[r];
            }
            cost.seconds += row.seconds;
            cost.prefill_tokens += row.prefill_tokens;
            cost.decode_tokens += row.decode_tokens;
            cost.rows.push_back(row);
        }
    }
    cost.run_seconds.front() += cost.run_seconds.back();
    cost.run_seconds.pop_back();
    cost.measured_seconds = steady_seconds() - begin;
    // A shard takes its share of the documents, of all arms and tasks.
    cost.seconds /= options_.shard.count;
    for (double &seconds : cost.run_seconds) seconds /= options_.shard.count;
    for (Cost::Row &row : cost.rows) row.seconds /= options_.shard.count;
    return cost;
}

} // namespace keel::ab
