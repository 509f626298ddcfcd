#include "eval/ab/run/runner.hpp"

#include "eval/ab/run/cost_probe.hpp"
#include "eval/ab/run/document_runner.hpp"
#include "eval/ab/run/header.hpp"
#include "eval/ab/run/length_check.hpp"
#include "eval/ab/run/speed_rounds.hpp"
#include "eval/ab/run/work_count.hpp"

#include <algorithm>

namespace keel::ab {

Runner::Runner(const Experiment &experiment, const RunOptions &options)
    : experiment_(experiment), options_(options), results_(experiment, options_) {
    const Config &c = experiment.config;
    const bool logs = c.eviction_logs && !options.cost_only;
    // The lock comes before the constructor of Arms, which checks that it can write logs.
    if (logs) results_.lock();
    Arms::Options of_arms;
    of_arms.host = options.host;
    of_arms.progress = options.loading;
    if (logs) of_arms.log_folder = c.output;
    const Shard &shard = options.shard;
    if (shard.count > 1)
        of_arms.log_suffix = fmt::format("-shard-{}-of-{}", shard.index, shard.count);
    of_arms.resume = options.resume;
    of_arms.share_prefill = options.share_prefill;
    arms_ = std::make_unique<Arms>(experiment, std::move(of_arms));
    tasks_ = plan_tasks(experiment, options_, *arms_);
}

Runner::~Runner() = default;

// True if this process's shard takes the batch of documents to which `document` belongs.
bool Runner::takes(const PlannedTask &task, size_t document) const {
    // Speed tasks run only in shard 1, because times of two machines cannot be compared.
    if (!task.items) return options_.shard.index == 1;
    return options_.shard.takes(document / task.at_once);
}

void Runner::expect_work(RunProgress &progress) const {
    uint64_t total = 0, per_document = 0;
    for (const Run &run : experiment_.runs) per_document += run.seeds.size();
    for (const PlannedTask &task : tasks_) {
        const uint64_t runs =
            per_document * (task.items ? protocols_of(task, experiment_.config).size() : 1);
        for (size_t d = 0; d < task.documents; ++d) total += takes(task, d) ? runs : 0;
    }
    progress.expect(total, per_document);
}

void Runner::run() {
    results_.lock();
    check_lengths(tasks_, experiment_, *arms_);
    results_.open(tasks_, make_header(experiment_, options_, *arms_, tasks_));
    arms_->begin_logs();
    RunProgress progress(options_);
    expect_work(progress);
    ItemContext context{experiment_, options_, *arms_, results_};
    DocumentRunner documents(context, progress);
    SpeedRounds speed(context, progress);
    for (const PlannedTask &task : tasks_) {
        if (task.items) {
            run_task(task, documents);
        } else if (takes(task, 0)) {
            speed.run(task);
        }
    }
}

void Runner::run_task(const PlannedTask &task, DocumentRunner &documents) {
    arms_->keep_prompts(task.at_once);
    for (const Protocol protocol : protocols_of(task, experiment_.config)) {
        const std::string name = protocol_of(task, protocol);
        if (task.has_questions() && protocol == Protocol::whole_prompt && takes(task, 0))
            documents.warn_of_short_answers(task);
        for (size_t first = 0; first < task.documents; first += task.at_once) {
            if (takes(task, first))
                documents.run(task, protocol, first,
                              std::min(task.at_once, task.documents - first));
        }
        if (options_.say)
            options_.say(fmt::format("{}{}: {} documents", task.task->name,
                                     name.empty() ? "" : " (" + name + ")", task.documents));
    }
}

Cost Runner::cost() {
    constexpr size_t few = 8;
    Cost cost;
    cost.batch = experiment_.config.batch;
    cost.run_seconds.resize(experiment_.runs.size());
    results_.check(tasks_, make_header(experiment_, options_, *arms_, tasks_));
    check_lengths(tasks_, experiment_, *arms_);
    RunProgress progress(options_);
    ItemContext context{experiment_, options_, *arms_, results_};
    DocumentRunner documents(context, progress);
    CostProbe probe(context, documents);
    const double begin = steady_seconds();
    probe.warm_up();
    for (const PlannedTask &task : tasks_) {
        // whole: `few` documents, rounded up to whole batches
        const size_t whole = (few + task.at_once - 1) / task.at_once * task.at_once,
                     sampled = std::min(task.documents, whole);
        cost.counted_by_sample = cost.counted_by_sample || (task.items && sampled < task.documents);
        for (const Protocol protocol : protocols_of(task, experiment_.config)) {
            const std::string name = protocol_of(task, protocol);
            if (options_.say)
                options_.say(fmt::format("estimating the time of {}{}", task.task->name,
                                         name.empty() ? "" : " (" + name + ")"));
            Cost::Row row = count_work(task, protocol, sampled, experiment_, *arms_);
            const std::vector<double> seconds =
                task.items ? probe.estimate(task, protocol, sampled) : probe.estimate_speed(task);
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
    // Each shard takes its share of the documents for all arms and tasks.
    cost.seconds /= options_.shard.count;
    for (double &seconds : cost.run_seconds) seconds /= options_.shard.count;
    for (Cost::Row &row : cost.rows) row.seconds /= options_.shard.count;
    return cost;
}

} // namespace keel::ab
