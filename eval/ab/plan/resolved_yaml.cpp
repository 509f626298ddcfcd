#include "eval/ab/plan/resolved_yaml.hpp"

#include "config/config_writer.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel::ab {
namespace {

using pipeline::yaml_scalar;

std::string indented(const std::string &text, const std::string &by) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        if (end > at) out += by + text.substr(at, end - at);
        out += '\n';
        at = end + 1;
    }
    return out;
}

std::string budgets_yaml(const std::vector<Budget> &budgets) {
    std::vector<std::string> entries;
    for (const Budget &b : budgets) entries.push_back(fmt::format("{{{}: {}}}", b.key(), b.text()));
    return fmt::format("budgets: [{}]\n", fmt::join(entries, ", "));
}

// Returns the arm's pipeline. If the budget comes from the list of budgets, the pipeline has no
// budget.
std::string arm_yaml(const Experiment &e, const ArmEntry &arm) {
    const auto run =
        std::find_if(e.runs.begin(), e.runs.end(), [&](const Run &r) { return r.arm == arm.name; });
    pipeline::PipelineConfig config = run->config;
    if (run->is_spread) {
        const auto slack = config.policy.budget.slack;
        config.policy.budget = {};
        config.policy.budget.slack = slack;
    }
    return pipeline::to_yaml(config) +
           (arm.budgets.empty() ? std::string{} : budgets_yaml(arm.budgets));
}

} // namespace

std::string quoted_yaml(const std::string &text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else {
            out += c;
        }
    }
    return out + '"';
}

std::string task_yaml(const Task &t) {
    std::string out = fmt::format("{{kind: {}, name: {}", task_kind_name(t.kind), t.name);
    const auto path = [&](const char *key, const std::filesystem::path &value) {
        if (!value.empty()) out += fmt::format(", {}: {}", key, quoted_yaml(value.string()));
    };
    switch (t.kind) {
    case TaskKind::continuation:
        path("text", t.text);
        out +=
            fmt::format(", prefix: {}, score: {}, documents: {}", t.prefix, t.score, t.documents);
        break;
    case TaskKind::passkey:
    case TaskKind::facts:
        out += fmt::format(", lengths: [{}], items: {}, seed: {}", fmt::join(t.lengths, ", "),
                           t.items, t.seed);
        if (t.kind == TaskKind::passkey) out += fmt::format(", depths: {}", t.depths);
        if (t.questions > 0) out += fmt::format(", questions: {}", t.questions);
        path("filler", t.filler);
        break;
    case TaskKind::jsonl:
        path("path", t.path);
        out += fmt::format(", metric: {}, max_tokens: {}, prompt: {}", answer_metric_name(t.metric),
                           t.max_tokens, quoted_yaml(t.prompt));
        if (t.items > 0) out += fmt::format(", items: {}", t.items);
        break;
    case TaskKind::speed:
        out += fmt::format(", depths: [{}], repeats: {}, decode: {}, seed: {}",
                           fmt::join(t.at, ", "), t.repeats, t.decode, t.seed);
        break;
    }
    return out + "}";
}

std::string yaml_of(const Experiment &e) {
    const Config &c = e.config;
    std::string out = fmt::format(
        "# The experiment as it was run: every key, absolute paths. 'keel ab' reads it again.\n"
        "base: {}\n",
        yaml_scalar(c.base.string()));
    if (!c.title.empty()) out += fmt::format("title: {}\n", yaml_scalar(c.title));
    out += "arms:\n";
    for (const ArmEntry &arm : c.arms)
        out += fmt::format("  {}:\n{}", arm.name, indented(arm_yaml(e, arm), "    "));
    out += fmt::format("reference: {}\n", c.reference);
    if (!c.budgets.empty()) out += budgets_yaml(c.budgets);
    std::vector<std::string> protocols;
    for (const Protocol protocol : c.protocols) protocols.emplace_back(protocol_name(protocol));
    out += fmt::format("protocol: [{}]\n", fmt::join(protocols, ", "));
    out += fmt::format("chat: {{template: {}", quoted_yaml(c.chat.template_name));
    if (c.chat.system) out += fmt::format(", system: {}", quoted_yaml(*c.chat.system));
    out += "}\ntasks:\n";
    for (const Task &task : c.tasks) out += fmt::format("  - {}\n", task_yaml(task));
    out += fmt::format("seeds: [{}]\n", fmt::join(c.seeds, ", "));
    if (c.batch > 1) out += fmt::format("batch: {}\n", c.batch);
    const Statistics &s = c.statistics;
    out += fmt::format("statistics: {{confidence: {}, resamples: {}, seed: {}", s.confidence,
                       s.resamples, s.seed);
    std::vector<std::string> margins;
    for (const auto &[metric, margin] : s.margins)
        margins.push_back(
            fmt::format("{}: {}", metric, quoted_yaml(margin_text(margin, metric_named(metric)))));
    if (!margins.empty()) out += fmt::format(", margins: {{{}}}", fmt::join(margins, ", "));
    if (s.looks != Looks::none) out += fmt::format(", looks: {}", looks_name(s.looks));
    if (!s.primary.empty()) out += fmt::format(", primary: {}", quoted_yaml(s.primary));
    out += "}\n";
    if (!c.contrasts.empty()) {
        out += "contrasts:\n";
        for (const PlannedContrast &one : c.contrasts)
            out += fmt::format("  - [{}, {}{}]\n", one.a, one.b,
                               one.on.empty() ? "" : ", " + quoted_yaml(one.on));
    }
    return out + fmt::format("output: {{directory: {}, eviction_logs: {}, maps: {}}}\n",
                             quoted_yaml(c.output.string()), c.eviction_logs, c.maps);
}

} // namespace keel::ab
