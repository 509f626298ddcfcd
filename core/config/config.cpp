#include "config/config.hpp"

#include "base/error.hpp"
#include "config/override.hpp"
#include "config/read_value.hpp"
#include "platform/paths.hpp"

#include <algorithm>

namespace keel::pipeline {
namespace {

// Fills a config's members from the values that a file gives and from the schema's defaults.
class Reader {
  public:
    explicit Reader(const YamlNode &root) : root_(root), values_(collect_values(root)) {}

    template <typename T>
    void operator()(std::string_view path, Setting<T> &setting) const {
        const KeySpec &key = *find_key(path);
        const YamlEntry *entry = given(key);
        if (entry != nullptr) {
            decode(Field{key, entry->value}, setting.value);
            setting.where = entry->value.where();
        } else if (!key.default_text.empty()) {
            const YamlNode node = default_node(key);
            decode(Field{key, node}, setting.value);
        } else if (key.required) {
            missing(key);
        }
    }

    void operator()(std::string_view path, std::vector<RawParam> &params) const {
        const KeySpec &key = *find_key(path);
        if (const YamlEntry *entry = given(key)) decode(Field{key, entry->value}, params);
    }

  private:
    // A key without a default may stand there with nothing behind it: that is as good as not there.
    const YamlEntry *given(const KeySpec &key) const {
        const auto found = values_.find(key.path);
        if (found == values_.end()) return nullptr;
        const bool may_be_null = key.default_text.empty() && !key.required;
        return found->second->value.is_null() && may_be_null ? nullptr : found->second;
    }

    static YamlNode default_node(const KeySpec &key) {
        if (key.default_text.starts_with('[')) return parse_yaml(key.default_text, {"default", {}});
        YamlNode node;
        node.kind = YamlNode::Kind::scalar;
        node.text = key.default_text;
        return node;
    }

    [[noreturn]] void missing(const KeySpec &key) const {
        const std::string name = root_.source ? root_.source->name : "a pipeline without a file";
        throw_error(ErrorKind::input, "{}: expected the key '{}', found none; for example '{}: {{{}: {}}}'",
                    name, key.path, parent_path(key.path), last_part(key.path), key.example);
    }

    const YamlNode &root_;
    std::map<std::string, const YamlEntry *, std::less<>> values_;
};

void check_budget(const BudgetSection &budget) {
    const int kinds =
        int{budget.tokens->has_value()} + int{budget.ratio->has_value()} + int{budget.mib->has_value()};
    if (kinds <= 1) return;
    throw_error(ErrorKind::input,
                "{}: expected one of tokens, ratio, mib in 'policy.budget', found {}; keep one",
                to_string(budget.where()), kinds);
}

void check_trigger(const TriggerSection &trigger) {
    if (trigger.on->empty())
        throw_error(ErrorKind::input,
                    "{}: expected at least one trigger in 'policy.trigger.on', found none; to evict nothing "
                    "use 'policy: none'",
                    to_string(trigger.on.where));
    const bool named = trigger.has(Trigger::every_n);
    if (named && !*trigger.every_n)
        throw_error(ErrorKind::input,
                    "{}: expected 'policy.trigger.every_n' beside every_n in 'policy.trigger.on', found none",
                    to_string(trigger.on.where));
    if (!named && *trigger.every_n)
        throw_error(ErrorKind::input,
                    "{}: expected every_n in 'policy.trigger.on' beside 'policy.trigger.every_n', found "
                    "none; add it to the list",
                    to_string(trigger.every_n.where));
}

void check_pressure(const TriggerSection &trigger) {
    const PressureSection &p = trigger.pressure;
    // A resolved pipeline says what the defaults are; they ask for nothing.
    const auto asks = [&] {
        const std::string least[] = {"model.path=/", "backend.plugin=none"};
        return !p.where().file.empty() && !(p == config_from_overrides(least).policy.trigger.pressure);
    };
    if (!trigger.has(Trigger::pressure) && asks())
        throw_error(
            ErrorKind::input,
            "{}: expected pressure in 'policy.trigger.on' beside 'policy.trigger.pressure', found none; "
            "add it to the list",
            to_string(p.where()));
    if (*p.available_mib && *p.critical_mib && **p.critical_mib > **p.available_mib)
        throw_error(
            ErrorKind::input,
            "{}: expected 'policy.trigger.pressure.critical_mib' to be at most available_mib, {}, found {}",
            to_string(p.critical_mib.where), **p.available_mib, **p.critical_mib);
}

void check_log(const PolicySection &policy) {
    if (!*policy.log_positions || *policy.log) return;
    throw_error(ErrorKind::input,
                "{}: expected 'policy.log' beside 'policy.log_positions', found none; name a file there",
                to_string(policy.log_positions.where));
}

void check_sync(SyncSection &sync) {
    if (*sync.strategy == SyncStrategy::batched) {
        if (!*sync.ops) sync.ops.value = SyncSection::default_ops;
    } else if (*sync.ops) {
        throw_error(
            ErrorKind::input,
            "{}: expected the strategy batched beside 'sync.ops', found another; write 'strategy: batched'",
            to_string(sync.ops.where));
    }
}

PipelineConfig with_overrides(YamlNode root, std::span<const std::string> overrides,
                              std::string_view option = "--set") {
    merge_overrides(root, parse_overrides(overrides, absolute_path("."), option));
    return make_config(root);
}

// The schema's own message for an empty file would list every key.
void refuse_empty(const YamlNode &root) {
    if (!root.is_null()) return;
    throw_error(ErrorKind::input,
                "{}: expected a pipeline, found nothing; 'keel config init MODEL' writes one",
                to_string(root.where()));
}

} // namespace

std::optional<uint64_t> KvSection::max_bytes() const {
    if (!max_mib.value) return std::nullopt;
    return static_cast<uint64_t>(*max_mib.value * 1048576.0);
}

BudgetKind BudgetSection::kind() const noexcept {
    if (tokens.value) return BudgetKind::tokens;
    if (ratio.value) return BudgetKind::ratio;
    return mib.value ? BudgetKind::mib : BudgetKind::none;
}

SourceLocation BudgetSection::where() const {
    switch (kind()) {
    case BudgetKind::tokens:
        return tokens.where;
    case BudgetKind::ratio:
        return ratio.where;
    case BudgetKind::mib:
        return mib.where;
    case BudgetKind::none:
        break;
    }
    return {};
}

SourceLocation PressureSection::where() const {
    for (const SourceLocation *where :
         {&available_mib.where, &critical_mib.where, &stalled_percent.where, &steps.where, &cooldown.where}) {
        if (!where->file.empty()) return *where;
    }
    return {};
}

bool TriggerSection::has(Trigger trigger) const noexcept {
    return std::find(on.value.begin(), on.value.end(), trigger) != on.value.end();
}

void check_eviction(const PolicySection &policy) {
    check_budget(policy.budget);
    check_trigger(policy.trigger);
    check_pressure(policy.trigger);
}

namespace {

[[noreturn]] void missing_backend(const YamlNode &root) {
    const KeySpec &key = *find_key("backend.plugin");
    throw_error(ErrorKind::input, "{}: expected the key '{}', found none; for example '{}: {{{}: {}}}'",
                root.source ? root.source->name : "a pipeline without a file", key.path,
                parent_path(key.path), last_part(key.path), key.example);
}

} // namespace

PipelineConfig make_config(const YamlNode &tree) {
    YamlNode root = tree;
    expand_shorthands(root);
    PipelineConfig config;
    visit_settings(config, Reader(root));
    check_hybrid(config);
    if (!config.hybrid.is_given() && config.backend.plugin->empty()) missing_backend(root);
    check_sync(config.sync);
    check_log(config.policy);
    return config;
}

PipelineConfig load_config(const std::filesystem::path &path, std::span<const std::string> overrides,
                           std::string_view option) {
    YamlNode root = load_yaml(path);
    refuse_empty(root);
    if (!root.is_map())
        return make_config(root); // says what is wrong with the file before overrides change it
    return with_overrides(std::move(root), overrides, option);
}

PipelineConfig parse_config(std::string_view text, const std::string &name,
                            const std::filesystem::path &folder, std::span<const std::string> overrides) {
    YamlNode root = parse_yaml(text, {name, folder});
    refuse_empty(root);
    if (!root.is_map())
        return make_config(root); // says what is wrong with the file before overrides change it
    return with_overrides(std::move(root), overrides);
}

PipelineConfig config_from_overrides(std::span<const std::string> overrides, std::string_view option) {
    YamlNode root;
    root.kind = YamlNode::Kind::map;
    return with_overrides(std::move(root), overrides, option);
}

} // namespace keel::pipeline
