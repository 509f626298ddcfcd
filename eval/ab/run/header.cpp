#include "eval/ab/run/header.hpp"

#include <algorithm>
#include <fmt/ranges.h>

namespace keel::ab {

Header make_header(const Experiment &experiment, const RunOptions &options, Arms &arms,
                   std::span<const PlannedTask> tasks) {
    Header h = options.header;
    h.config_hash = experiment.hash;
    h.libraries = experiment.libraries;
    h.experiment_hash = experiment.experiment_hash;
    const Run &reference = experiment.reference();
    h.model = fmt::format("{} ({})", reference.config.model.path->filename().string(),
                          experiment.model_hash);
    h.title = experiment.config.title;
    h.reference = experiment.config.reference;
    for (size_t i = 0; i < experiment.config.arms.size(); ++i)
        h.arms.push_back({experiment.config.arms[i].name, experiment.differences[i]});
    h.contrasts = experiment.config.contrasts;
    for (const ArmEntry &arm : experiment.config.arms) {
        if (arm.budgets.size() > 1) h.sweeps.push_back(arm.name);
    }
    for (size_t r = 0; r < experiment.runs.size(); ++r) {
        const Run &run = experiment.runs[r];
        if (!run.is_rerun && !arms.shares(r)) h.own_prefills.emplace_back(run.arm, run.budget);
    }
    h.items = options.items > 0 ? static_cast<uint64_t>(options.items) : 0;
    h.batch = experiment.config.batch;
    h.statistics = experiment.config.statistics;
    h.shard = options.shard.index;
    h.shards = options.shard.count;
    Pipeline &p = arms.pipeline(0);
    const KvShape &shape = p.kv_shape();
    h.facts = {
        {"backend", fmt::format("{} on {}", p.device().plugin(), p.device().device_info().name)},
        {"kernels", p.device().info().description},
        {"weights", p.weights().dtype_name()},
        {"KV cache", fmt::format("keys {}, values {}", keel_dtype_name(shape.key_dtype),
                                 keel_dtype_name(shape.value_dtype))},
        {"tokenizer", p.tokenizer()->info().kind},
        {"context", fmt::format("{}", p.context())},
        {"decoding", "greedy"}};
    if (const std::string split = p.engine().split.text(); !split.empty())
        h.facts.emplace_back(
            "layers",
            fmt::format("{}; keep maps contain only the policy's layers ({}), numbered from 0",
                        split, fmt::join(p.engine().split.numbers(), ", ")));
    const bool asks = std::any_of(tasks.begin(), tasks.end(),
                                  [](const PlannedTask &t) { return t.has_questions(); });
    if (asks) h.facts.emplace_back("prompts", experiment.form.description());
    for (const PlannedTask &t : tasks) {
        if (t.items && !t.has_questions())
            h.facts.emplace_back(t.task->name, t.one_by_one ? "scored in steps of one token"
                                                            : "scored in steps of many tokens");
    }
    if (h.batch > 1) h.facts.emplace_back("documents at once", fmt::format("{}", h.batch));
    return h;
}

} // namespace keel::ab
