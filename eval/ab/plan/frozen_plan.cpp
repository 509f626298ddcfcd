#include "eval/ab/plan/frozen_plan.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/fingerprint.hpp"
#include "config/config_writer.hpp"
#include "config/params.hpp"
#include "config/yaml_reader.hpp"
#include "eval/ab/plan/hypotheses.hpp"
#include "eval/ab/plan/resolved_yaml.hpp"
#include "eval/ab/tasks/tasks.hpp"
#include "platform/new_file.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;
using pipeline::YamlEntry;
using pipeline::YamlNode;

constexpr int64_t plan_version = 1;
constexpr size_t longest_plan_key = 300;
// A plan of the largest experiment, 100 arms at 50 budgets, is below these limits.
constexpr pipeline::YamlLimits plan_limits{size_t{4} << 20, 8, 400'000};

// Shortens a long text and adds the hash of the whole text. So a change in any part of the text is
// still a difference from the plan.
std::string bounded(const std::string &text) {
    constexpr size_t most = 1000;
    if (text.size() <= most) return printable(text, 2 * most);
    return printable(text.substr(0, most - 100), most) + "... " + fingerprint(text);
}

class PlanText {
  public:
    void section(const char *name) { out_ += fmt::format("{}:\n", name); }
    void group(const std::string &name) { out_ += fmt::format("  {}:\n", quoted_yaml(name)); }
    void value(int depth, const std::string &key, const std::string &text) {
        out_ += fmt::format("{}{}: {}\n", std::string(static_cast<size_t>(2 * depth), ' '),
                            depth == 0 ? key : quoted_yaml(key), quoted_yaml(bounded(text)));
    }
    void list(const char *name, const std::vector<std::string> &texts) {
        out_ += fmt::format("{}:{}\n", name, texts.empty() ? " []" : "");
        for (const std::string &text : texts)
            out_ += fmt::format("  - {}\n", quoted_yaml(bounded(text)));
    }
    std::string take() { return std::move(out_); }

  private:
    std::string out_;
};

// Returns the keys of a run's pipeline with their values. A file is represented by its name and its
// contents, not by its folder.
std::map<std::string, std::string> keys_of(const Experiment &e, const Run &run) {
    pipeline::PipelineConfig config = run.config;
    config.model.path.value = fs::path("/model");
    const auto shorten = [](pipeline::PluginSection &section, keel_plugin_kind kind) {
        for (pipeline::RawParam *param : pipeline::path_params(section, kind)) {
            const fs::path file(param->text);
            param->text = file.filename().string();
            if (fs::is_regular_file(file))
                param->text += " " + fingerprint(read_text_file(file, uint64_t{1} << 30));
        }
    };
    shorten(config.backend, KEEL_PLUGIN_BACKEND);
    shorten(config.policy, KEEL_PLUGIN_POLICY);
    shorten(config.policy.allocator, KEEL_PLUGIN_ALLOCATOR);
    std::map<std::string, std::string> out;
    for (const pipeline::ResolvedKey &key : pipeline::resolved_keys(config))
        if (!key.value.empty()) out[key.path] = key.value;
    const fs::path &model = *run.config.model.path;
    out["model.path"] = model == *e.reference().config.model.path
                            ? fmt::format("{} {}", model.filename().string(), e.model_hash)
                            : fmt::format("{} {}", model.filename().string(), hash_of_model(model));
    for (auto &[key, value] : out)
        if (key.ends_with("plugin") && value.find('/') != std::string::npos)
            value = fs::path(value).filename().string();
    return out;
}

struct Counts {
    uint64_t documents = 0, items = 0;
};

Counts count_items(const Task &task, const Experiment &e, const Tokenizer &tokenizer) {
    // Each length of a speed task has a separate contrast.
    if (task.kind == TaskKind::speed)
        return {static_cast<uint64_t>(task.repeats), static_cast<uint64_t>(task.repeats)};
    return at_task(task, [&] {
        const auto items =
            make_task_items(task, tokenizer, *e.reference().config.model.path, e.form);
        const uint64_t documents = items->documents();
        if (task.kind == TaskKind::continuation || task.kind == TaskKind::passkey)
            return Counts{documents, documents};
        std::set<std::string> names;
        Counts out;
        for (size_t d = 0; d < documents; ++d) {
            for (const Unit &unit : items->units(d, Protocol::question_blind)) {
                names.insert(unit.document);
                out.items += unit.questions.size();
            }
        }
        out.documents = names.size();
        return out;
    });
}

void add_tasks(PlanText &out, const Experiment &e) {
    const fs::path &model = *e.reference().config.model.path;
    const bool is_read = std::any_of(e.config.tasks.begin(), e.config.tasks.end(),
                                     [](const Task &t) { return t.kind != TaskKind::speed; });
    const std::unique_ptr<Tokenizer> tokenizer = is_read ? load_tokenizer(model) : nullptr;
    out.section("tasks");
    for (const Task &task : e.config.tasks) {
        const Counts counts = count_items(task, e, *tokenizer);
        out.group(task.name);
        out.value(2, "items", fmt::format("{}", counts.items));
        out.value(2, "documents", fmt::format("{}", counts.documents));
        out.value(2, "seed", fmt::format("{}", task.seed));
        Task plain = task;
        plain.text = plain.path = plain.filler = fs::path{};
        out.value(2, "definition", task_yaml(plain));
        std::vector<std::string> files;
        for (const fs::path &file : task_files(task, model))
            files.push_back(file.filename().string() + " " +
                            fingerprint(read_text_file(file, uint64_t{1} << 30)));
        if (!files.empty()) out.value(2, "files", fmt::format("{}", fmt::join(files, ", ")));
    }
}

void add_statistics(PlanText &out, const Experiment &e, const std::vector<Hypothesis> &hypotheses) {
    const Statistics &s = e.config.statistics;
    std::map<std::string, std::string> margins;
    for (const Hypothesis &h : hypotheses)
        if (!h.is_size) margins[h.metric] = margin_text(h.margin, metric_named(h.metric));
    if (!margins.empty()) {
        out.section("margins");
        for (const auto &[metric, text] : margins) out.value(1, metric, text);
    }
    out.section("statistics");
    out.value(1, "confidence", fmt::format("{}", s.confidence));
    out.value(1, "correction", "Holm");
    out.value(1, "level of the family", fmt::format("{:.6g}", 1 - s.confidence));
    out.value(1, "tests in the family", fmt::format("{}", count_tests(hypotheses)));
    out.value(1, "resamples", fmt::format("{}", s.resamples));
    out.value(1, "seed", fmt::format("{}", s.seed));
    out.value(1, "looks", looks_name(s.looks));
}

void add_arms(PlanText &out, const Experiment &e) {
    const auto label = [](const Run &run) { return fmt::format("{} at {}", run.arm, run.budget); };
    const auto seeds = [](const Run &run) { return fmt::format("{}", fmt::join(run.seeds, ", ")); };
    const std::map<std::string, std::string> reference = keys_of(e, e.reference());
    out.section("arms");
    out.group(label(e.reference()));
    out.value(2, "seeds", seeds(e.reference()));
    for (const auto &[key, value] : reference) out.value(2, key, value);
    for (size_t r = 1; r < e.runs.size(); ++r) {
        const Run &run = e.runs[r];
        if (run.is_rerun) continue;
        out.group(label(run));
        out.value(2, "seeds", seeds(run));
        std::map<std::string, std::string> own = keys_of(e, run);
        for (const auto &[key, value] : reference) own.emplace(key, "not set");
        for (const auto &[key, value] : own) {
            const auto same = reference.find(key);
            if (same == reference.end() || same->second != value) out.value(2, key, value);
        }
    }
}

// Collects the scalars below a node. `name` is the path of keys from the root to the node.
void flatten(const YamlNode &node, const std::string &name, std::vector<PlanEntry> &out) {
    switch (node.kind) {
    case YamlNode::Kind::map:
        for (const YamlEntry &entry : node.entries) {
            if (entry.key.empty() || entry.key.size() > longest_plan_key)
                yaml::fail(entry.where,
                           fmt::format("expected a key of 1 to {} bytes, found one of {}",
                                       longest_plan_key, entry.key.size()));
            const std::string below = name.empty() ? entry.key : name + " " + entry.key;
            if (below.size() > longest_plan_key)
                yaml::fail(entry.where, fmt::format("expected names of at most {} bytes together",
                                                    longest_plan_key));
            flatten(entry.value, below, out);
        }
        return;
    case YamlNode::Kind::sequence:
        for (const YamlNode &item : node.items) {
            if (item.kind != YamlNode::Kind::scalar)
                yaml::fail(item.where(), fmt::format("expected a text in the list '{}', found {}",
                                                     name, pipeline::describe(item)));
            flatten(item, name, out);
        }
        return;
    case YamlNode::Kind::scalar:
        if (node.text.size() > longest_plan_text)
            yaml::fail(node.where(), fmt::format("expected a text of at most {} bytes, found {}",
                                                 longest_plan_text, node.text.size()));
        out.push_back({name, node.text});
        return;
    case YamlNode::Kind::null: break;
    }
    yaml::fail(node.where(), fmt::format("expected a text for '{}', found nothing", name));
}

PlanRecord read_plan_tree(const YamlNode &root, const std::string &name) {
    if (!root.is_map() || root.find("keel_ab_plan") == nullptr)
        throw_error(
            ErrorKind::input,
            "{}: expected a plan of 'keel ab plan' (a map with the key keel_ab_plan), found "
            "{}",
            printable(name, 300),
            root.is_map() ? "a map without the key" : pipeline::describe(root));
    const YamlNode &version = root.find("keel_ab_plan")->value;
    if (yaml::integer(version, "the version of the plan", 1, 1'000'000) != plan_version)
        yaml::fail(
            version.where(),
            fmt::format("a plan of version {}, this program reads version {}; freeze the plan "
                        "again with this program",
                        printable(version.text, 20), plan_version));
    PlanRecord plan;
    const YamlEntry &hash = yaml::required(root, "hash", "a plan", "hash: 0123456789abcdef");
    plan.hash = yaml::scalar(hash.value, "the hash of the plan");
    for (const YamlEntry &entry : root.entries) {
        if (entry.key == "keel_ab_plan" || entry.key == "hash") continue;
        flatten(entry.value, entry.key, plan.entries);
    }
    if (plan.entries.size() > most_plan_entries)
        throw_error(ErrorKind::input, "{}: {} facts, a plan has at most {}", printable(name, 300),
                    plan.entries.size(), most_plan_entries);
    const std::string expected = plan_hash(plan.entries);
    if (plan.hash != expected)
        yaml::fail(hash.value.where(),
                   fmt::format("the plan was edited: its contents have the hash {}, the file says "
                               "{}; restore the file, or freeze a new plan with 'keel ab plan'",
                               expected, printable(plan.hash, 40)));
    for (const std::string_view needed :
         {plan_primary, plan_confidence, plan_looks, plan_reference, plan_experiment})
        if (!plan.find(needed))
            throw_error(ErrorKind::input,
                        "{}: expected the key '{}' in a plan, found none; freeze the plan again "
                        "with 'keel ab plan'",
                        printable(name, 300), needed);
    return plan;
}

} // namespace

FrozenPlan freeze_plan(const Experiment &e) {
    const Config &c = e.config;
    const std::vector<Hypothesis> hypotheses = hypotheses_of(e);
    PlanText out;
    std::vector<std::string> texts, arms, sweeps, protocols;
    for (const Hypothesis &h : hypotheses) texts.push_back(hypothesis_text(h));
    for (const ArmEntry &arm : c.arms) {
        arms.push_back(arm.name);
        if (arm.budgets.size() > 1) sweeps.push_back(arm.name);
    }
    for (const Protocol protocol : c.protocols) protocols.emplace_back(protocol_name(protocol));
    out.list("hypotheses", texts);
    out.value(0, "primary", c.statistics.primary);
    out.list("contrasts",
             planned_texts(c.contrasts, arms, sweeps, c.reference, c.statistics.primary));
    add_statistics(out, e, hypotheses);
    add_tasks(out, e);
    out.section("experiment");
    out.value(1, "reference", c.reference);
    out.value(1, "protocol", fmt::format("{}", fmt::join(protocols, ", ")));
    out.value(1, "seeds", fmt::format("{}", fmt::join(c.seeds, ", ")));
    out.value(1, "batch", fmt::format("{}", c.batch));
    out.value(1, "prompts", e.form.description());
    out.value(1, "hash", e.experiment_hash);
    add_arms(out, e);
    FrozenPlan plan;
    const std::string body = out.take();
    flatten(pipeline::parse_yaml(body, {"plan", {}}, plan_limits), "", plan.record.entries);
    plan.record.hash = plan_hash(plan.record.entries);
    plan.text = fmt::format(
        "# The frozen plan of an experiment, written by 'keel ab plan'. An edited plan is "
        "refused.\n"
        "# 'keel ab run FILE --plan PLAN' checks the experiment against it before the first item.\n"
        "keel_ab_plan: {}\nhash: {}\n{}",
        plan_version, quoted_yaml(plan.record.hash), body);
    return plan;
}

PlanRecord load_plan(const fs::path &file) {
    return read_plan_tree(pipeline::load_yaml(file, plan_limits), file.string());
}

PlanRecord parse_plan(std::string_view text, const std::string &name) {
    return read_plan_tree(pipeline::parse_yaml(text, {name, {}}, plan_limits), name);
}

void write_plan_file(const fs::path &file, const FrozenPlan &plan) {
    std::error_code error;
    if (fs::exists(file, error)) {
        std::ifstream in(file, std::ios::binary);
        if (std::string(std::istreambuf_iterator<char>(in), {}) == plan.text) return;
        throw_error(ErrorKind::usage,
                    "{}: holds another plan or another file; a frozen plan is not replaced: remove "
                    "it, or choose another file with --out",
                    printable(file.string(), 300));
    }
    write_whole_file(file, plan.text);
}

std::vector<PlanChange> plan_changes(const PlanRecord &planned, const PlanRecord &now) {
    std::vector<PlanChange> out;
    std::set<std::string> done;
    const auto list = [](const std::vector<std::string> &texts) {
        return std::multiset<std::string>(texts.begin(), texts.end());
    };
    const auto compare = [&](const std::string &name) {
        if (name == plan_hypotheses || !done.insert(name).second) return;
        const std::vector<std::string> before = planned.all(name), after = now.all(name);
        if (before.size() == 1 && after.size() == 1) {
            if (before != after) out.push_back({name, before.front(), after.front()});
            return;
        }
        std::multiset<std::string> left = list(before), right = list(after);
        for (const std::string &text : before) {
            if (const auto at = right.find(text); at != right.end()) {
                right.erase(at);
            } else {
                out.push_back({name, text, ""});
            }
        }
        for (const std::string &text : after) {
            if (const auto at = left.find(text); at != left.end()) {
                left.erase(at);
            } else {
                out.push_back({name, "", text});
            }
        }
    };
    for (const PlanEntry &one : planned.entries) compare(one.name);
    for (const PlanEntry &one : now.entries) compare(one.name);
    // The hash of the experiment differs if an arm or a task differs. So the hash is listed as a
    // difference only if no arm and no task differs. This is the case, for example, if only the
    // contents of a file changed.
    if (out.size() > 1)
        std::erase_if(out, [](const PlanChange &one) { return one.name == plan_experiment; });
    return out;
}

} // namespace keel::ab
