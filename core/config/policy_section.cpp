#include "config/schema.hpp"

#include "base/defaults.hpp"
#include "base/error.hpp"

#include <algorithm>

namespace keel::pipeline {

// The codec of a list of pairs [from, to] of integers.
template <> struct Codec<std::vector<Span>> {
    static constexpr Form form = Form::other;
    static void read(const Field &field, std::vector<Span> &value) {
        if (field.node.kind != YamlNode::Kind::sequence) fail(field, describe(field.node));
        for (const YamlNode &item : field.node.items) {
            const Field pair = field.at(item);
            if (item.kind != YamlNode::Kind::sequence) fail(pair, describe(item));
            if (item.items.size() != 2) fail(pair, fmt::format("a list of {}", item.items.size()));
            Span span;
            Codec<int64_t>::read(field.at(item.items[0]), span.from);
            Codec<int64_t>::read(field.at(item.items[1]), span.to);
            if (span.from >= span.to) fail(pair, fmt::format("[{}, {}]", span.from, span.to));
            value.push_back(span);
        }
    }
    static std::string write(const std::vector<Span> &value, const Rule &) {
        std::string text;
        for (const Span &span : value)
            text += fmt::format("{}[{}, {}]", text.empty() ? "" : ", ", span.from, span.to);
        return "[" + text + "]";
    }
    static std::string expectation(const Rule &rule) {
        return fmt::format(
            "a list of pairs [from, to] of integers from {} to {}, with from less than to",
            number_text(rule.minimum), number_text(rule.maximum));
    }
};

namespace {

void check_budget(const BudgetSection &budget) {
    const int kinds = int{budget.tokens->has_value()} + int{budget.ratio->has_value()} +
                      int{budget.mib->has_value()};
    if (kinds <= 1) return;
    throw_at(budget.where(), ErrorKind::input,
             "expected only one of tokens, ratio and mib in 'policy.budget', found {}; keep one",
             kinds);
}

void check_trigger(const TriggerSection &trigger) {
    if (trigger.on->empty())
        throw_at(trigger.on.where, ErrorKind::input,
                 "expected at least one trigger in 'policy.trigger.on', found none; to "
                 "evict nothing use 'policy: none'");
    const bool named = trigger.has(Trigger::every_n);
    if (named && !*trigger.every_n)
        throw_at(trigger.on.where, ErrorKind::input,
                 "expected the key 'policy.trigger.every_n', because 'policy.trigger.on' lists "
                 "every_n; found none");
    if (!named && *trigger.every_n)
        throw_at(trigger.every_n.where, ErrorKind::input,
                 "expected every_n in 'policy.trigger.on', because 'policy.trigger.every_n' is "
                 "set; found none; add every_n to the list");
}

PressureSection default_pressure() {
    PipelineConfig config;
    for (const auto &key : schema().keys) {
        if (parent_path(key->path) == "policy.trigger.pressure")
            key->set_default(std::string(key->path), config);
    }
    return config.policy.trigger.pressure;
}

void check_pressure(const TriggerSection &trigger) {
    const PressureSection &p = trigger.pressure;
    const SourceLocation where = p.where();
    // Defaults are accepted without the trigger, because a resolved pipeline writes them out.
    if (!trigger.has(Trigger::pressure) && !where.file.empty() && !(p == default_pressure()))
        throw_at(where, ErrorKind::input,
                 "expected pressure in 'policy.trigger.on', because 'policy.trigger.pressure' is "
                 "set; found none; add pressure to the list");
    if (*p.available_mib && *p.critical_mib && **p.critical_mib > **p.available_mib)
        throw_at(p.critical_mib.where, ErrorKind::input,
                 "expected 'policy.trigger.pressure.critical_mib' to be at most available_mib "
                 "({}), found {}",
                 **p.available_mib, **p.critical_mib);
}

void declare_budget(Schema &schema) {
    schema.sections.push_back({"policy.budget",
                               "How much of the cache stays after an eviction. Set at most one of "
                               "tokens, ratio and mib."});
    schema.keys.add(
        {.path = "policy.budget.tokens",
         .doc = "Cached tokens per head that stay after an eviction, as an average "
                "over the heads.",
         .example = "512",
         .rule = {.minimum = 1, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.policy.budget.tokens; });
    schema.keys.add(
        {.path = "policy.budget.ratio",
         .doc = "Cached tokens per head that stay after an eviction, as a share of "
                "the tokens seen when the trigger fires.",
         .example = "0.25",
         .rule = {.minimum = 0.001, .maximum = 1}},
        [](auto &c) -> auto & { return c.policy.budget.ratio; });
    schema.keys.add(
        {.path = "policy.budget.mib",
         .doc = "Most MiB that the cache may use in all layers on which the policy "
                "acts. This includes the slack and the tokens of a step.",
         .example = "32",
         .rule = {.minimum = 0.001, .maximum = max_mib}},
        [](auto &c) -> auto & { return c.policy.budget.mib; });
    schema.keys.add(
        {.path = "policy.budget.slack",
         .doc = "Tokens that the cache may hold above the budget before the next "
                "eviction. auto: an eighth of the budget.",
         .example = "64",
         .rule = {.minimum = 0, .maximum = max_tokens, .word = "auto"}},
        [](auto &c) -> auto & { return c.policy.budget.slack; });
}

void declare_protect(Schema &schema) {
    schema.sections.push_back(
        {"policy.protect", "Tokens that are never evicted, whatever the policy decides."});
    schema.keys.add(
        {.path = "policy.protect.prefix",
         .doc = "Number of first tokens that are never evicted. Every policy that "
                "evicts keeps them, because most models fail without them (attention "
                "sinks). 0: none.",
         .example = "16",
         .rule = {.minimum = 0, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.policy.protect.prefix; }, 4);
    schema.keys.add(
        {.path = "policy.protect.recent",
         .doc = "Number of latest tokens that are never evicted.",
         .example = "32",
         .rule = {.minimum = 0, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.policy.protect.recent; }, 0);
    schema.keys.add(
        {.path = "policy.protect.system_prompt",
         .doc = "Whether the system prompt of a chat (keel chat) is protected like "
                "prefix: it is then never evicted.",
         .example = "false"},
        [](auto &c) -> auto & { return c.policy.protect.system_prompt; }, true);
    schema.keys.add(
        {.path = "policy.protect.spans",
         .doc = "Further tokens that are never evicted, as pairs [from, to]. Token "
                "numbers start at 0 for the first token of the sequence. The token "
                "with number from is included, the one with number to is not.",
         .example = "[[16, 48], [200, 210]]",
         .rule = {.minimum = 0, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.policy.protect.spans; }, std::vector<Span>{});
}

void declare_trigger(Schema &schema) {
    schema.sections.push_back(
        {"policy.trigger", "When Keel asks the policy which tokens to evict.", "on"});
    schema.keys.add(
        {.path = "policy.trigger.on",
         .doc = "When the policy is asked. prefill_end: at the end of the prompt. "
                "budget: when budget and slack are full. insert: before tokens that "
                "would not fit. every_n: every n tokens. pressure: when the system "
                "runs short of memory.",
         .example = "[budget, every_n]"},
        [](auto &c) -> auto & { return c.policy.trigger.on; },
        std::vector{Trigger::prefill_end, Trigger::budget});
    schema.keys.add(
        {.path = "policy.trigger.every_n",
         .doc = "Number of tokens from one eviction to the next. Requires every_n in "
                "policy.trigger.on.",
         .example = "64",
         .rule = {.minimum = 1, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.policy.trigger.every_n; });
}

void declare_pressure(Schema &schema) {
    schema.sections.push_back({"policy.trigger.pressure",
                               "When the system counts as short of memory, and how far the cache "
                               "then shrinks. Requires pressure in policy.trigger.on."});
    schema.keys.add(
        {.path = "policy.trigger.pressure.available_mib",
         .doc = "The cache shrinks if less than this memory is available, in MiB: in "
                "the system, or within the limits of the control groups. auto: a "
                "tenth of all memory, at most 256.",
         .example = "512",
         .rule = {.minimum = 0.001, .maximum = max_mib, .word = "auto"}},
        [](auto &c) -> auto & { return c.policy.trigger.pressure.available_mib; });
    schema.keys.add(
        {.path = "policy.trigger.pressure.critical_mib",
         .doc = "The cache shrinks to the last of steps at once if less than this "
                "memory is available, in MiB. auto: a quarter of available_mib.",
         .example = "64",
         .rule = {.minimum = 0.001, .maximum = max_mib, .word = "auto"}},
        [](auto &c) -> auto & { return c.policy.trigger.pressure.critical_mib; });
    schema.keys.add(
        {.path = "policy.trigger.pressure.stalled_percent",
         .doc = "Memory also counts as short if tasks waited for memory in at least "
                "this percentage of the last 10 s (PSI: some avg10 of the control "
                "group, else of the system). none: Keel does not check it.",
         .example = "none",
         .rule = {.minimum = 0.1, .maximum = 100, .word = "none"}},
        [](auto &c) -> auto & { return c.policy.trigger.pressure.stalled_percent; }, 20.0);
    schema.keys.add(
        {.path = "policy.trigger.pressure.steps",
         .doc = "Shares of the budget. While memory stays short, the cache shrinks to "
                "one share after the other. It grows again, one step at a time, when "
                "1.5 times available_mib is available and tasks wait less than half "
                "of stalled_percent.",
         .example = "[0.5, 0.25]",
         .rule = {.minimum = 0.01, .maximum = 0.99}},
        [](auto &c) -> auto & { return c.policy.trigger.pressure.steps; },
        std::vector{0.75, 0.5, 0.25});
    schema.keys.add(
        {.path = "policy.trigger.pressure.cooldown",
         .doc = "Fewest tokens between two of these steps, so that the first can take "
                "effect.",
         .example = "64",
         .rule = {.minimum = 1, .maximum = max_tokens}},
        [](auto &c) -> auto & { return c.policy.trigger.pressure.cooldown; },
        defaults::pressure_cooldown);
}

} // namespace

BudgetKind BudgetSection::kind() const noexcept {
    if (tokens.value) return BudgetKind::tokens;
    if (ratio.value) return BudgetKind::ratio;
    return mib.value ? BudgetKind::mib : BudgetKind::none;
}

SourceLocation BudgetSection::where() const {
    switch (kind()) {
    case BudgetKind::tokens: return tokens.where;
    case BudgetKind::ratio: return ratio.where;
    case BudgetKind::mib: return mib.where;
    case BudgetKind::none: break;
    }
    return {};
}

SourceLocation PressureSection::where() const {
    for (const Origin *origin : std::initializer_list<const Origin *>{
             &available_mib, &critical_mib, &stalled_percent, &steps, &cooldown}) {
        if (!origin->is_default()) return origin->where;
    }
    return {};
}

bool TriggerSection::has(Trigger trigger) const noexcept {
    return std::ranges::find(on.value, trigger) != on.value.end();
}

void check_eviction(const PolicySection &policy) {
    check_budget(policy.budget);
    check_trigger(policy.trigger);
    check_pressure(policy.trigger);
}

void check_log(const PolicySection &policy) {
    if (!*policy.log_positions || *policy.log) return;
    throw_at(policy.log_positions.where, ErrorKind::input,
             "expected the key 'policy.log', because 'policy.log_positions' is set; found none; "
             "set policy.log to a file");
}

void declare_policy(Schema &schema) {
    schema.sections.push_back(
        {"policy", "The eviction policy: which tokens leave the cache, and when.", "plugin"});
    schema.keys.add(
        {.path = "policy.plugin",
         .doc = "Eviction policy: a name found on the plugin path, or a path to a "
                "library. none: nothing is evicted, and budget and trigger have no "
                "effect.",
         .example = "sliding_window",
         .rule = {.is_plugin = true}},
        [](auto &c) -> auto & { return c.policy.plugin; }, "none");
    schema.keys.add_params(
        {.path = "policy.params",
         .doc = "The policy's own parameters; 'keel plugins show NAME' lists them.",
         .example = "{window: 256}"},
        [](auto &c) -> auto & { return c.policy.params; });
    schema.sections.push_back(
        {"policy.allocator", "How the budget is divided among layers and heads.", "plugin"});
    schema.keys.add(
        {.path = "policy.allocator.plugin",
         .doc = "Allocator that divides the budget among layers and heads. It is "
                "loaded only if the policy evicts. auto: adaptive with scope global "
                "and floor 0 if the policy may keep different numbers of slots per "
                "head and its scores are comparable across heads (kvzip); otherwise "
                "uniform.",
         .example = "pyramid",
         .rule = {.is_plugin = true}},
        [](auto &c) -> auto & { return c.policy.allocator.plugin; }, auto_allocator);
    schema.keys.add_params(
        {.path = "policy.allocator.params",
         .doc = "The allocator's own parameters.",
         .example = "{alpha: 0.2}"},
        [](auto &c) -> auto & { return c.policy.allocator.params; });
    declare_budget(schema);
    declare_protect(schema);
    schema.keys.add(
        {.path = "policy.positions",
         .doc = "Rotation of keys after an eviction. absolute: keys keep the rotation "
                "that they were written with. rerotated: keys are rotated to new "
                "positions without gaps. auto: absolute until the oldest key would be "
                "farther back than the model was trained for, from then on rerotated.",
         .example = "rerotated"},
        [](auto &c) -> auto & { return c.policy.positions; }, PositionMode::absolute);
    declare_trigger(schema);
    declare_pressure(schema);
    schema.keys.add(
        {.path = "policy.log",
         .doc = "File to which Keel writes one JSON line for each eviction. A run "
                "replaces an old file. keel bench does not write it.",
         .example = "evictions.jsonl"},
        [](auto &c) -> auto & { return c.policy.log; });
    schema.keys.add(
        {.path = "policy.log_positions",
         .doc = "Whether the log also lists the tokens that each head kept. 'keel "
                "eval log' draws them. Requires policy.log.",
         .example = "true"},
        [](auto &c) -> auto & { return c.policy.log_positions; }, false);
    schema.keys.add(
        {.path = "policy.seed",
         .doc = "Seed of policies that choose at random.",
         .example = "7",
         .rule = {.minimum = 0, .maximum = max_seed}},
        [](auto &c) -> auto & { return c.policy.seed; }, 0);
}

} // namespace keel::pipeline
