#include "eval/ab/plan/config.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "config/yaml_reader.hpp"
#include "eval/ab/plan/statistics_config.hpp"
#include "eval/stats/mean_inference.hpp"
#include "platform/paths.hpp"
#include "run/pipeline.hpp"

#include <algorithm>
#include <set>

namespace keel::ab {
namespace {

using pipeline::describe;
using pipeline::YamlEntry;
using pipeline::YamlNode;
using namespace yaml;

constexpr int64_t most_tokens = int64_t{1} << 24;
constexpr int64_t most_items = 1'000'000;
constexpr int64_t most_seed = int64_t{1} << 53; // larger integers are not exact in JSON

const std::vector<std::string> top_keys = {
    "title", "base",  "arms",  "reference",  "budgets",   "protocol", "chat",
    "tasks", "seeds", "batch", "statistics", "contrasts", "output"};

// Checks a name of an arm or a task. Names of arms and tasks become parts of file names.
void check_name(const std::string &name, const SourceLocation &where, std::string_view what) {
    constexpr size_t longest = 64;
    const bool good = !name.empty() && name.size() <= longest && name.front() != '.' &&
                      name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
                          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                 (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
                      });
    if (!good)
        fail(where, fmt::format(
                        "expected {} of letters, digits, '_', '.' and '-' (at most {}), found '{}'",
                        what, longest, printable(name, 80)));
}

std::vector<int64_t> integers(const YamlNode &node, std::string_view what, int64_t low,
                              int64_t high, size_t most) {
    std::vector<int64_t> out;
    for (const YamlNode *item : items(node, what, most)) {
        out.push_back(integer(*item, what, low, high));
        if (std::count(out.begin(), out.end(), out.back()) > 1)
            fail(item->where(), fmt::format("{} {} twice", what, out.back()));
    }
    return out;
}

// ---- arms, budgets, protocol -------------------------------------------------------------------

Budget read_budget(const YamlNode &node) {
    static const std::vector<std::string> units = {"tokens", "ratio", "mib"};
    if (!node.is_map() || node.entries.size() != 1)
        fail(node.where(),
             fmt::format(
                 "expected one of {{tokens: N}}, {{ratio: X}}, {{mib: X}} as a budget, found {}",
                 describe(node)));
    check_keys(node, "a budget", units);
    const YamlEntry &entry = node.entries.front();
    Budget b;
    b.where = entry.value.where();
    if (entry.key == "tokens") {
        b.unit = BudgetUnit::tokens;
        b.value = static_cast<double>(integer(entry.value, "tokens of a budget", 1, most_tokens));
    } else {
        const bool ratio = entry.key == "ratio";
        b.unit = ratio ? BudgetUnit::ratio : BudgetUnit::mib;
        b.value = ratio ? number(entry.value, "a ratio", 0.001, 1)
                        : number(entry.value, "MiB of a budget", 0.001, 16777216);
    }
    return b;
}

std::vector<Budget> read_budget_list(const YamlNode &node) {
    std::vector<Budget> budgets;
    for (const YamlNode *item : items(node, "budgets", Config::most_budgets)) {
        Budget budget = read_budget(*item);
        for (const Budget &other : budgets) {
            if (other.label() == budget.label())
                fail(item->where(),
                     fmt::format("the budget {} is listed twice; remove one", budget.label()));
        }
        budgets.push_back(std::move(budget));
    }
    return budgets;
}

void read_arms(const YamlNode &root, Config &c) {
    const YamlEntry &arms = required(root, "arms", "an experiment", "arms: {full: {policy: none}}");
    if (!arms.value.is_map() || arms.value.entries.empty())
        fail(arms.value.where(),
             fmt::format("expected a map for 'arms' (NAME: changes of the base), found {}",
                         describe(arms.value)));
    if (arms.value.entries.size() > Config::most_arms)
        fail(arms.value.where(), fmt::format("found {} arms, expected at most {}",
                                             arms.value.entries.size(), Config::most_arms));
    for (const YamlEntry &entry : arms.value.entries) {
        check_name(entry.key, entry.where, "an arm's name");
        if (!entry.value.is_map() && !entry.value.is_null())
            fail(entry.value.where(),
                 fmt::format("expected keys of a pipeline for the arm '{}', found {}", entry.key,
                             describe(entry.value)));
        ArmEntry arm = {entry.key, entry.value, {}, entry.where};
        if (const YamlEntry *budgets = arm.overrides.find("budgets")) {
            arm.budgets = read_budget_list(budgets->value);
            arm.overrides.erase("budgets");
        }
        c.arms.push_back(std::move(arm));
    }
}

void read_protocols(const YamlNode &root, Config &c) {
    const YamlEntry *entry = root.find("protocol");
    if (entry == nullptr) {
        c.protocols = {Protocol::question_blind};
        return;
    }
    for (const YamlNode *item : items(entry->value, "protocol", 3)) {
        const auto p = static_cast<Protocol>(
            choice(*item, "a protocol", {"question_blind", "query_aware", "whole_prompt"}));
        if (std::count(c.protocols.begin(), c.protocols.end(), p) != 0)
            fail(item->where(),
                 fmt::format("the protocol {} is listed twice; remove one", protocol_name(p)));
        c.protocols.push_back(p);
    }
}

void read_chat(const YamlNode &root, Config &c) {
    const YamlEntry *entry = root.find("chat");
    if (entry == nullptr || entry->value.is_null()) return;
    const YamlNode &node = entry->value;
    constexpr std::string_view what = "a chat template: auto, none or a name";
    c.chat.where = node.where();
    if (!node.is_map()) {
        c.chat.template_name = scalar(node, what);
        return;
    }
    check_keys(node, "'chat'", {"template", "system"});
    if (const YamlEntry *e = node.find("template")) c.chat.template_name = scalar(e->value, what);
    if (const YamlEntry *e = node.find("system"); e != nullptr && !e->value.is_null()) {
        c.chat.system = scalar(e->value, "a system prompt, or none");
        if (c.chat.template_name == Chat::no_template)
            fail(e->where, "'chat.system' has no effect with 'template: none', because prompts are "
                           "plain text then; remove one of them");
    }
}

// ---- tasks -------------------------------------------------------------------------------------

// Reads the keys of one task. finish() reports every key that was not read as unknown.
class TaskReader {
  public:
    explicit TaskReader(const YamlNode &node) : node_(node) {}

    int64_t integer_or(const char *key, std::string_view what, int64_t low, int64_t high,
                       int64_t otherwise) {
        const YamlEntry *entry = take(key);
        return entry == nullptr ? otherwise : integer(entry->value, what, low, high);
    }
    int64_t integer_of(const char *key, std::string_view what, int64_t low, int64_t high) {
        return integer(need_key(key, "256").value, what, low, high);
    }
    std::vector<int64_t> integers_of(const char *key, std::string_view what, int64_t low,
                                     int64_t high) {
        return integers(need_key(key, "[512, 1024]").value, what, low, high, 1000);
    }
    std::filesystem::path path_of(const char *key) { return path(need_key(key, "text.txt").value); }
    std::filesystem::path path_or_none(const char *key) {
        const YamlEntry *entry = take(key);
        return entry == nullptr ? std::filesystem::path{} : path(entry->value);
    }
    const YamlEntry *take(const char *key) {
        known_.emplace_back(key);
        const YamlEntry *entry = node_.find(key);
        return entry != nullptr && entry->value.is_null() ? nullptr : entry;
    }
    void finish(std::string_view kind) const {
        check_keys(node_, fmt::format("a task of kind {}", kind), known_);
    }

  private:
    const YamlEntry &need_key(const char *key, const char *example) {
        known_.emplace_back(key);
        return required(node_, key, "this task", fmt::format("{}: {}", key, example));
    }

    const YamlNode &node_;
    std::vector<std::string> known_ = {"kind", "name"};
};

void read_continuation(TaskReader &r, Task &t) {
    t.text = r.path_of("text");
    t.prefix = r.integer_of("prefix", "tokens of a prefix", 1, most_tokens);
    t.score = r.integer_of("score", "tokens to score", 1, most_tokens);
    t.documents = r.integer_or("documents", "documents", 1, most_items, asked_documents);
}

void read_generated(TaskReader &r, Task &t) {
    t.lengths = r.integers_of("lengths", "a length in tokens", 1, most_tokens);
    t.items = r.integer_or("items", "items", 1, most_items, 10);
    t.filler = r.path_or_none("filler");
    t.seed = static_cast<uint64_t>(r.integer_or("seed", "a seed", 0, most_seed, 1));
    if (t.kind == TaskKind::passkey) {
        t.depths = r.integer_or("depths", "places of the needle", 1, 1000, 5);
    } else {
        t.questions = r.integer_or("questions", "questions of a document", 1, 6, 0);
    }
}

void read_jsonl(TaskReader &r, Task &t) {
    t.path = r.path_of("path");
    t.items = r.integer_or("items", "lines", 1, most_items, 0);
    t.max_tokens = r.integer_or("max_tokens", "tokens of an answer", 1, 65536, 64);
    if (const YamlEntry *entry = r.take("metric"))
        t.metric = static_cast<AnswerMetric>(
            choice(entry->value, "a metric", {"substring_all", "substring_any", "exact", "f1"}));
    t.prompt = "{context}\n{input}";
    if (const YamlEntry *entry = r.take("prompt")) {
        t.prompt = scalar(entry->value, "a prompt with {context} and, after it, {input}");
        const size_t context = t.prompt.find("{context}"), input = t.prompt.find("{input}");
        if (context == std::string::npos || input == std::string::npos || input < context)
            fail(
                entry->value.where(),
                fmt::format("expected a prompt with {{context}} and, after it, {{input}}, found {}",
                            describe(entry->value)));
    }
}

void read_speed(TaskReader &r, Task &t) {
    t.at = r.integers_of("depths", "a depth in tokens", 0, most_tokens);
    t.repeats = r.integer_or("repeats", "repeats", 1, 10000, 10);
    t.decode = r.integer_or("decode", "tokens to decode", 1, 1'000'000, 64);
    t.seed = static_cast<uint64_t>(r.integer_or("seed", "a seed", 0, most_seed, 1));
}

Task read_task(const YamlNode &node) {
    if (!node.is_map())
        fail(node.where(),
             fmt::format("expected a task, for example {{kind: passkey, lengths: [512]}}, found {}",
                         describe(node)));
    const YamlEntry &kind = required(node, "kind", "a task", "kind: passkey");
    Task t;
    t.where = node.where();
    t.kind = static_cast<TaskKind>(choice(kind.value, "a task's kind",
                                          {"continuation", "passkey", "facts", "jsonl", "speed"}));
    t.name = task_kind_name(t.kind);
    if (const YamlEntry *name = node.find("name")) {
        t.name = scalar(name->value, "a task's name");
        check_name(t.name, name->value.where(), "a task's name");
    }
    TaskReader r(node);
    switch (t.kind) {
    case TaskKind::continuation: read_continuation(r, t); break;
    case TaskKind::passkey:
    case TaskKind::facts: read_generated(r, t); break;
    case TaskKind::jsonl: read_jsonl(r, t); break;
    case TaskKind::speed: read_speed(r, t); break;
    }
    r.finish(task_kind_name(t.kind));
    return t;
}

void read_tasks(const YamlNode &root, Config &c) {
    const YamlEntry &entry =
        required(root, "tasks", "an experiment", "tasks: [{kind: passkey, lengths: [512]}]");
    for (const YamlNode *item : items(entry.value, "tasks", Config::most_tasks)) {
        c.tasks.push_back(read_task(*item));
        for (size_t i = 0; i + 1 < c.tasks.size(); ++i) {
            if (c.tasks[i].name == c.tasks.back().name)
                fail(item->where(),
                     fmt::format("two tasks have the name '{}'; give one of them another 'name'",
                                 c.tasks[i].name));
        }
    }
}

// ---- the rest ----------------------------------------------------------------------------------

void read_seeds(const YamlNode &root, Config &c) {
    c.seeds = {1};
    const YamlEntry *entry = root.find("seeds");
    if (entry == nullptr) return;
    c.seeds.clear();
    if (entry->value.items.empty() && entry->value.kind == YamlNode::Kind::sequence)
        fail(
            entry->value.where(),
            "seeds: expected at least one seed, found an empty list; remove 'seeds' to use seed 1");
    for (const int64_t seed : integers(entry->value, "a seed", 0, most_seed, Config::most_seeds))
        c.seeds.push_back(static_cast<uint64_t>(seed));
}

void read_output(const YamlNode &root, const std::string &name, Config &c) {
    const std::string stem = std::filesystem::path(name).stem().string();
    c.output = absolute_path((stem.empty() ? std::string("ab") : stem) + "-results");
    const YamlEntry *entry = root.find("output");
    if (entry == nullptr || entry->value.is_null()) return;
    const YamlNode &node = entry->value;
    if (!node.is_map()) {
        c.output = path(node);
        return;
    }
    check_keys(node, "'output'", {"directory", "eviction_logs", "maps"});
    if (const YamlEntry *e = node.find("directory")) c.output = path(e->value);
    if (const YamlEntry *e = node.find("eviction_logs"))
        c.eviction_logs = boolean(e->value, "output.eviction_logs");
    if (const YamlEntry *e = node.find("maps"))
        c.maps = integer(e->value, "items with maps", 0, 1000);
}

Config read_config(const YamlNode &root, const std::string &name) {
    if (!root.is_map())
        throw_error(ErrorKind::input,
                    "{}: expected an experiment (base, arms, tasks; see "
                    "docs/reference/experiments.md), found {}",
                    name, describe(root));
    check_keys(root, "an experiment", top_keys);
    Config c;
    if (const YamlEntry *title = root.find("title"))
        c.title = printable(scalar(title->value, "a title"), 200);
    const YamlEntry &base = required(root, "base", "an experiment", "base: pipeline.yaml");
    c.base = path(base.value);
    c.base_where = base.value.where();
    read_arms(root, c);
    c.reference = c.arms.front().name;
    if (const YamlEntry *entry = root.find("reference"))
        c.reference = read_arm_name(entry->value, c, "the name of an arm");
    if (const YamlEntry *entry = root.find("budgets")) c.budgets = read_budget_list(entry->value);
    read_protocols(root, c);
    read_chat(root, c);
    read_tasks(root, c);
    read_seeds(root, c);
    if (const YamlEntry *entry = root.find("batch"))
        c.batch = static_cast<uint32_t>(
            integer(entry->value, "documents at once for 'batch'", 1, Pipeline::most_batch));
    read_statistics(root, c);
    read_contrasts(root, c);
    read_output(root, name, c);
    return c;
}

} // namespace

std::string Budget::key() const {
    return unit == BudgetUnit::tokens ? "tokens" : unit == BudgetUnit::ratio ? "ratio" : "mib";
}

std::string Budget::text() const {
    return unit == BudgetUnit::tokens ? fmt::format("{}", static_cast<int64_t>(value))
                                      : fmt::format("{}", value);
}

std::string Budget::label() const { return key() + ":" + text(); }

const char *protocol_name(Protocol protocol) {
    static constexpr const char *names[] = {"question_blind", "query_aware", "whole_prompt"};
    return names[static_cast<size_t>(protocol)];
}

const char *task_kind_name(TaskKind kind) {
    static constexpr const char *names[] = {"continuation", "passkey", "facts", "jsonl", "speed"};
    return names[static_cast<size_t>(kind)];
}

const char *answer_metric_name(AnswerMetric metric) {
    static constexpr const char *names[] = {"substring_all", "substring_any", "exact", "f1"};
    return names[static_cast<size_t>(metric)];
}

std::vector<std::string> task_metrics(const Task &task) {
    switch (task.kind) {
    case TaskKind::continuation: return {"nll", "kld", "top1"};
    case TaskKind::jsonl: return {answer_metric_name(task.metric)};
    case TaskKind::speed:
        return {"decode_tokens_per_second", "prefill_tokens_per_second", "ttft_ms", "decode_ms_p50",
                "decode_ms_p99"};
    case TaskKind::passkey:
    case TaskKind::facts: break;
    }
    return {"hit"};
}

Config load_config(const std::filesystem::path &file) {
    Config c = read_config(pipeline::load_yaml(file), file.string());
    c.file = file;
    return c;
}

Config parse_config(std::string_view text, const std::string &name,
                    const std::filesystem::path &folder) {
    return read_config(pipeline::parse_yaml(text, {name, folder}), name);
}

} // namespace keel::ab
