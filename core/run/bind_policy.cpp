#include "run/bind_policy.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/config_places.hpp"
#include "model/rope_frequencies.hpp"

#include <algorithm>

namespace keel {
namespace {

PressureConfig pressure_config(const pipeline::PressureSection &section) {
    const auto bytes = [](const std::optional<double> &mib) -> std::optional<uint64_t> {
        if (!mib) return std::nullopt;
        return static_cast<uint64_t>(*mib * 1048576.0);
    };
    PressureConfig c;
    c.low = bytes(*section.available_mib);
    c.critical = bytes(*section.critical_mib);
    c.stalled = *section.stalled_percent;
    c.levels = *section.steps;
    c.cooldown = *section.cooldown;
    return c;
}

void set_budget(CacheConfig &c, const pipeline::BudgetSection &budget) {
    switch (budget.kind()) {
    case pipeline::BudgetKind::none: break;
    case pipeline::BudgetKind::tokens:
        c.budget_unit = BudgetUnit::tokens;
        c.budget = static_cast<double>(budget.tokens->value());
        break;
    case pipeline::BudgetKind::ratio:
        c.budget_unit = BudgetUnit::ratio;
        c.budget = budget.ratio->value();
        break;
    case pipeline::BudgetKind::mib:
        c.budget_unit = BudgetUnit::mib;
        c.budget = budget.mib->value();
        break;
    }
    c.slack = *budget.slack;
}

void set_model(CacheConfig &c, const ModelConfig &model) {
    c.attention_scale = static_cast<float>(model.attention_scale());
    c.attention_softcap = static_cast<float>(model.attention_softcap);
    c.rope_mode = model.rope_interleaved ? KEEL_ROPE_INTERLEAVED : KEEL_ROPE_HALF_SPLIT;
}

// Sets the RoPE of the layers on which the policy acts.
void set_rope(CacheConfig &c, const ModelConfig &model, const Engine &engine) {
    c.trained_context = trained_positions(model, engine.rope_context);
    RopeAngles angles = model_rope(model, engine.rope_context);
    std::vector<bool> own;
    for (const uint32_t number : engine.split.numbers()) own.push_back(model.has_own_rope(number));
    const bool all = std::find(own.begin(), own.end(), false) == own.end() && !own.empty();
    if (all) angles = own_rope(model);
    c.rope_frequencies = std::move(angles.frequencies);
    c.rope_factor = angles.factor;
    if (all || std::find(own.begin(), own.end(), true) == own.end()) return;
    c.local_rope_frequencies = own_rope(model).frequencies;
    c.local_rope_layers = std::move(own);
}

// Returns the settings of a policy section, except its allocator and the protected system prompt.
// Allocator and system prompt depend on the policy's needs.
CacheConfig cache_config(const pipeline::PolicySection &p, const BoundPlugin &policy,
                         const PolicyContext &context) {
    CacheConfig c;
    c.policy = {policy.library->id(), &policy.library->policy(), policy.params.data(),
                policy.params.size(), policy.places};
    set_budget(c, p.budget);
    c.protect_prefix = *p.protect.prefix;
    c.protect_recent = *p.protect.recent;
    c.positions = *p.positions == pipeline::PositionMode::absolute    ? KvPositions::absolute
                  : *p.positions == pipeline::PositionMode::rerotated ? KvPositions::rerotated
                                                                      : KvPositions::automatic;
    c.at_prefill_end = p.trigger.has(pipeline::Trigger::prefill_end);
    c.at_budget = p.trigger.has(pipeline::Trigger::budget);
    c.at_insert = p.trigger.has(pipeline::Trigger::insert);
    if (p.trigger.has(pipeline::Trigger::every_n)) c.every_n = *p.trigger.every_n;
    if (p.trigger.has(pipeline::Trigger::pressure))
        c.pressure = pressure_config(p.trigger.pressure);
    c.monitor = context.monitor;
    for (const pipeline::Span &span : *p.protect.spans)
        c.pinned.push_back({static_cast<int32_t>(span.from), static_cast<int32_t>(span.to)});
    c.log_positions = *p.log_positions;
    c.seed = static_cast<uint64_t>(*p.seed);
    if (p.log->has_value()) c.log = p.log->value().string();
    set_model(c, context.model);
    return c;
}

// Throws if a trigger of the config can never start an eviction under this policy.
void check_triggers(const pipeline::TriggerSection &trigger, const keel_policy_needs &needs,
                    const std::string &policy) {
    const std::string where = to_string(trigger.on.where);
    const bool has_pressure = trigger.has(pipeline::Trigger::pressure);
    if (has_pressure && (needs.flags & KEEL_POLICY_KEEPS_ALL) != 0) {
        throw_error(ErrorKind::input,
                    "{}: policy {} never evicts, so the trigger pressure has no effect; remove "
                    "pressure from policy.trigger.on, or choose a policy that evicts",
                    where, policy);
    }
    const auto kinds = needs.flags & (KEEL_POLICY_KEEPS_ALL | KEEL_POLICY_PREFILL_ONLY);
    if (kinds != KEEL_POLICY_PREFILL_ONLY) return;
    // The trigger `budget` is not checked, because it is a default.
    for (const auto &[on, name] : {std::pair{pipeline::Trigger::insert, "insert"},
                                   std::pair{pipeline::Trigger::every_n, "every_n"}}) {
        if (!trigger.has(on)) continue;
        throw_error(
            ErrorKind::input,
            "{}: policy {} acts only at the end of the prompt, so the trigger {} has no effect; "
            "remove {} from policy.trigger.on, or choose a policy that also evicts later",
            where, policy, name, name);
    }
}

// Returns the allocator that the config names. With `auto`, all heads of the model share one
// budget, as in KVzip's paper, if two conditions hold: the policy can keep different numbers of
// slots per head, and its scores can be compared across heads. Otherwise each head gets the same
// budget.
pipeline::PluginSection allocator_section(const pipeline::PolicySection &policy,
                                          const keel_policy_needs &needs) {
    pipeline::PluginSection section = policy.allocator;
    if (*section.plugin != pipeline::auto_allocator) return section;
    const bool is_global = needs.granularity == KEEL_KEEP_HEAD_RAGGED &&
                           needs.output == KEEL_OUTPUT_SCORES &&
                           (needs.flags & KEEL_POLICY_COMPARABLE) != 0;
    section.plugin.value = is_global ? "adaptive" : "uniform";
    if (!is_global) return section;
    for (const auto &[key, text] : {std::pair{"scope", "global"}, std::pair{"floor", "0"}}) {
        const bool is_given = std::ranges::any_of(
            section.params, [key = key](const auto &param) { return param.key == key; });
        if (!is_given) section.params.push_back({.key = key, .text = text});
    }
    return section;
}

} // namespace

PolicyBinding bind_policy(const pipeline::PipelineConfig &config, BoundPlugin policy,
                          const PolicyContext &context, const Engine &engine) {
    const pipeline::PolicySection &section = config.policy;
    PolicyBinding bound;
    bound.policy = std::move(policy);
    bound.cache = cache_config(section, bound.policy, context);
    bound.cache.count_policy_state = *config.kv.count_policy_state;
    const keel_policy_needs needs = at_its_line(config, section.plugin.where, [&] {
        return ask_policy(cache_of_engine(bound.cache, context.model, engine), engine.kv_shape,
                          *context.host);
    });
    bound.cache.protect_system_prompt = context.has_system_prompt && *section.protect.system_prompt;
    const bool keeps_all = (needs.flags & KEEL_POLICY_KEEPS_ALL) != 0;
    bound.cache.evicts = !keeps_all;
    if (!keeps_all) pipeline::check_eviction(section);
    check_triggers(section.trigger, needs, bound.policy.library->id());
    if (keeps_all) return bound;
    bound.allocator = bind_plugin(allocator_section(section, needs), KEEL_PLUGIN_ALLOCATOR);
    const PluginLibrary &library = *bound.allocator.library;
    bound.cache.allocator = {library.id(), &library.allocator(), bound.allocator.params.data(),
                             bound.allocator.params.size(), bound.allocator.places};
    return bound;
}

CacheConfig cache_of_engine(const CacheConfig &all, const ModelConfig &model,
                            const Engine &engine) {
    const LayerSplit &split = engine.split;
    CacheConfig c = all;
    set_rope(c, model, engine);
    c.windowed = engine.windowed;
    c.other_backends = engine.part.count() != split.model_layers();
    if (split.model_windowed() > 0) {
        c.layer_numbers = split.numbers();
        c.windowed_layers = split.model_windowed();
        c.all_layers = split.model_layers();
        c.model_window = split.window();
    }
    if (engine.kv_shape.window > 0) c.attention_window = engine.kv_shape.window;
    if (split.only_holds()) {
        c.policy = {};
        c.policy.name = all.policy.name;
        c.allocator = {};
        c.pressure.reset();
        c.pinned.clear();
        c.log.clear();
        return c;
    }
    if (split.acts_on() < split.of_model()) {
        c.first_layer = split.first();
        c.model_layers = split.of_model();
        if (c.budget_unit == BudgetUnit::mib) // the budget in MiB holds for all layers on which the
                                              // policy acts
            c.budget *= static_cast<double>(split.acts_on()) / split.of_model();
    }
    return c;
}

void warn_without_effect(const pipeline::PipelineConfig &config, const std::string &policy) {
    const pipeline::PolicySection &p = config.policy;
    const auto say = [&](const char *key, const SourceLocation &where) {
        log().warn("{}{} has no effect: policy {} never evicts",
                   where.line > 0 ? to_string(where) + ": " : "", key, policy);
    };
    const auto &count = config.kv.count_policy_state;
    if (*count) say("kv.count_policy_state", count.where);
    if (p.budget.kind() != pipeline::BudgetKind::none) say("policy.budget", p.budget.where());
    if (!p.allocator.plugin.is_default()) say("policy.allocator", p.allocator.plugin.where);
    if (p.log->has_value()) say("policy.log", p.log.where);
    const auto say_if = [&](const char *key, const auto &setting) {
        if (!setting.is_default()) say(key, setting.where);
    };
    say_if("policy.protect.prefix", p.protect.prefix);
    say_if("policy.protect.recent", p.protect.recent);
    say_if("policy.protect.system_prompt", p.protect.system_prompt);
    say_if("policy.protect.spans", p.protect.spans);
    say_if("policy.positions", p.positions);
    say_if("policy.trigger.on", p.trigger.on);
    say_if("policy.trigger.every_n", p.trigger.every_n);
    if (const SourceLocation where = p.trigger.pressure.where(); !where.file.empty())
        say("policy.trigger.pressure", where);
}

} // namespace keel
