#include "eval/ab/plan/statistics_config.hpp"

#include "base/suggest.hpp"
#include "config/yaml_reader.hpp"
#include "eval/stats/bootstrap_t.hpp"
#include "run/pipeline.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace keel::ab {
namespace {

using pipeline::describe;
using pipeline::YamlEntry;
using pipeline::YamlNode;
using namespace yaml;

constexpr int64_t most_statistics_seed = int64_t{1} << 53; // larger integers are not exact in JSON

// Reads TASK or TASK/METRIC and returns "task/metric". `key` is the name of the key in messages,
// for example "statistics.primary".
std::string read_metric(const YamlNode &node, const Config &c, std::string_view key) {
    const std::string &text = scalar(node, "the name of a task");
    const size_t slash = text.find('/');
    const std::string name = text.substr(0, slash);
    std::vector<std::string> names;
    for (const Task &task : c.tasks) names.push_back(task.name);
    const auto task = std::find_if(c.tasks.begin(), c.tasks.end(),
                                   [&](const Task &one) { return one.name == name; });
    if (task == c.tasks.end())
        yaml::fail(node.where(),
                   fmt::format("expected the name of a task ({}), or TASK/METRIC, for "
                               "'{}', found {}",
                               fmt::join(names, ", "), key, describe(node)) +
                       did_you_mean(name, names));
    const std::vector<std::string> metrics = task_metrics(*task);
    if (slash == std::string::npos) return name + "/" + metrics.front();
    const std::string metric = text.substr(slash + 1);
    if (std::find(metrics.begin(), metrics.end(), metric) == metrics.end())
        yaml::fail(node.where(),
                   fmt::format("expected a metric of the task '{}' ({}) for '{}', found {}", name,
                               fmt::join(metrics, ", "), key, describe(node)) +
                       did_you_mean(metric, metrics));
    return text;
}

void read_margins(const YamlNode &node, Config &c) {
    if (!node.is_map())
        yaml::fail(node.where(),
                   fmt::format("expected a map for 'statistics.margins', such as {{hit: 5 points, "
                               "nll: 0.02 nats, kld: 10%}}, found {}",
                               describe(node)));
    std::vector<std::string> metrics;
    for (const Task &task : c.tasks)
        for (const std::string &metric : task_metrics(task)) metrics.push_back(metric);
    check_keys(node, "'statistics.margins'", metrics);
    for (const YamlEntry &entry : node.entries) {
        const Metric metric = metric_named(entry.key);
        const auto margin = parse_margin(scalar(entry.value, "a margin"), metric);
        if (!margin)
            yaml::fail(entry.value.where(),
                       fmt::format("expected a margin of '{}' in {}, such as '{}', found {}",
                                   entry.key, margin_unit(metric),
                                   margin_text(margin_of({}, entry.key), metric),
                                   describe(entry.value)));
        c.statistics.margins[entry.key] = *margin;
    }
}

// Returns the first task that measures quality. If no task measures quality, returns the first
// task.
std::string default_primary(const Config &c) {
    const auto found = std::find_if(c.tasks.begin(), c.tasks.end(),
                                    [](const Task &task) { return task.kind != TaskKind::speed; });
    const Task &task = found == c.tasks.end() ? c.tasks.front() : *found;
    return task.name + "/" + task_metrics(task).front();
}

// For the word `reference`: adds a contrast of each arm with the reference. Sweeps get no contrast,
// because sweeps only draw a curve.
void add_reference_contrasts(Config &c) {
    for (const ArmEntry &arm : c.arms)
        if (arm.name != c.reference && arm.budgets.size() <= 1)
            c.contrasts.push_back({arm.name, c.reference, ""});
}

} // namespace

std::string read_arm_name(const YamlNode &node, const Config &c, std::string_view what) {
    const std::string &name = scalar(node, what);
    std::vector<std::string> names;
    for (const ArmEntry &arm : c.arms) names.push_back(arm.name);
    if (std::find(names.begin(), names.end(), name) == names.end())
        yaml::fail(node.where(), fmt::format("expected {}, found {}{}", what, describe(node),
                                             did_you_mean(name, names)));
    return name;
}

void read_statistics(const YamlNode &root, Config &c) {
    c.statistics.primary = default_primary(c);
    const YamlEntry *entry = root.find("statistics");
    if (entry == nullptr || entry->value.is_null()) return;
    const YamlNode &node = entry->value;
    if (!node.is_map())
        yaml::fail(node.where(),
                   fmt::format("expected a map for 'statistics', found {}", describe(node)));
    check_keys(node, "'statistics'",
               {"confidence", "resamples", "seed", "primary", "margins", "looks"});
    const auto value = [&](const char *key) -> const YamlNode * {
        const YamlEntry *found = node.find(key);
        return found == nullptr || found->value.is_null() ? nullptr : &found->value;
    };
    if (const YamlNode *v = value("confidence"))
        c.statistics.confidence = number(*v, "a confidence", 0.5, 0.9999);
    if (const YamlNode *v = value("resamples"))
        c.statistics.resamples = static_cast<uint64_t>(integer(*v, "resamples", 100, 1'000'000));
    const uint64_t fewest = resamples_needed(c.statistics.confidence, 1);
    if (c.statistics.resamples < fewest)
        yaml::fail(
            node.where(),
            fmt::format("statistics.resamples: {} are too few for intervals of {:g}%; expected "
                        "at least {}",
                        c.statistics.resamples, 100 * c.statistics.confidence, fewest));
    if (const YamlNode *v = value("seed"))
        c.statistics.seed = static_cast<uint64_t>(integer(*v, "a seed", 0, most_statistics_seed));
    if (const YamlNode *v = value("margins")) read_margins(*v, c);
    if (const YamlNode *v = value("looks"))
        c.statistics.looks = static_cast<Looks>(
            choice(*v, "a rule for early looks",
                   {looks_name(Looks::none), looks_name(Looks::obrien_fleming)}));
    if (const YamlNode *v = value("primary"))
        c.statistics.primary = read_metric(*v, c, "statistics.primary");
}

void read_contrasts(const YamlNode &root, Config &c) {
    const YamlEntry *entry = root.find("contrasts");
    if (entry == nullptr || entry->value.is_null()) return;
    for (const YamlNode *item : items(entry->value, "contrasts", 10'000)) {
        if (item->kind == YamlNode::Kind::scalar && scalar(*item, "a contrast") == "reference") {
            add_reference_contrasts(c);
            continue;
        }
        if (item->kind != YamlNode::Kind::sequence || item->items.size() < 2 ||
            item->items.size() > 3)
            yaml::fail(item->where(),
                       fmt::format("expected the names of two arms, as [one, other] or "
                                   "[one, other, TASK/METRIC], or the word 'reference', "
                                   "found {}",
                                   describe(*item)));
        PlannedContrast planned = {read_arm_name(item->items[0], c, "an arm"),
                                   read_arm_name(item->items[1], c, "an arm"), ""};
        if (planned.a == planned.b)
            yaml::fail(item->where(),
                       fmt::format("expected two different arms, found '{}' twice", planned.a));
        if (item->items.size() == 3) planned.on = read_metric(item->items[2], c, "contrasts");
        c.contrasts.push_back(std::move(planned));
    }
}

} // namespace keel::ab
