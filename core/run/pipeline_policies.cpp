// A pipeline's policies: its own, and those that were added.
#include "run/pipeline.hpp"

#include "base/log.hpp"
#include "config/config_places.hpp"
#include "config/params.hpp"
#include "model/rope_frequencies.hpp"

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

} // namespace

CacheConfig Pipeline::cache_config(const pipeline::PolicySection &p, const BoundPlugin &policy,
                                   const BoundPlugin &allocator, bool has_system_prompt) const {
    CacheConfig c;
    c.policy = {policy.library->id(), &policy.library->policy(), policy.params.data(),
                policy.params.size(), policy.places};
    if (allocator.library != nullptr) {
        c.allocator = {allocator.library->id(), &allocator.library->allocator(),
                       allocator.params.data(), allocator.params.size(), allocator.places};
    }
    switch (p.budget.kind()) {
    case pipeline::BudgetKind::none:
        break;
    case pipeline::BudgetKind::tokens:
        c.budget_unit = BudgetUnit::tokens;
        c.budget = static_cast<double>(p.budget.tokens->value());
        break;
    case pipeline::BudgetKind::ratio:
        c.budget_unit = BudgetUnit::ratio;
        c.budget = p.budget.ratio->value();
        break;
    case pipeline::BudgetKind::mib:
        c.budget_unit = BudgetUnit::mib;
        c.budget = p.budget.mib->value();
        break;
    }
    c.slack = *p.budget.slack;
    c.protect_prefix = *p.protect.prefix;
    c.protect_recent = *p.protect.recent;
    c.protect_system_prompt = has_system_prompt && *p.protect.system_prompt;
    c.positions = *p.positions == pipeline::PositionMode::absolute    ? KvPositions::absolute
                  : *p.positions == pipeline::PositionMode::rerotated ? KvPositions::rerotated
                                                                      : KvPositions::automatic;
    c.at_prefill_end = p.trigger.has(pipeline::Trigger::prefill_end);
    c.at_budget = p.trigger.has(pipeline::Trigger::budget);
    c.at_insert = p.trigger.has(pipeline::Trigger::insert);
    if (p.trigger.has(pipeline::Trigger::every_n)) c.every_n = *p.trigger.every_n;
    if (p.trigger.has(pipeline::Trigger::pressure))
        c.pressure = pressure_config(p.trigger.pressure);
    c.monitor = monitor_;
    for (const pipeline::Span &span : *p.protect.spans)
        c.pinned.push_back({static_cast<int32_t>(span.from), static_cast<int32_t>(span.to)});
    c.log_positions = *p.log_positions;
    c.seed = static_cast<uint64_t>(*p.seed);
    if (p.log->has_value()) c.log = p.log->value().string();
    c.trained_context = model().max_positions;
    c.attention_scale = static_cast<float>(model().attention_scale());
    c.attention_softcap = static_cast<float>(model().attention_softcap);
    for (size_t i = 0; i < static_cast<size_t>(model().layers); ++i) {
        const int64_t window = model().window(i);
        if (window > 0 && (c.attention_window == 0 || window < c.attention_window))
            c.attention_window = window;
    }
    c.rope_frequencies =
        rope_frequencies(model().rope_theta, model().head_dim, model().rope_scaling);
    if (model().local_rope_theta) {
        c.local_rope_frequencies =
            rope_frequencies(*model().local_rope_theta, model().head_dim, {});
        for (size_t i = 0; i < static_cast<size_t>(model().layers); ++i)
            c.local_rope_layers.push_back(model().has_local_rope(i));
    }
    c.rope_mode = KEEL_ROPE_HALF_SPLIT;
    return c;
}

CacheConfig Pipeline::make_cache_config(bool has_system_prompt, const Engine &engine) const {
    CacheConfig c = cache_config(config_.policy, policy_, allocator_, has_system_prompt);
    const LayerRange &part = engine.part;
    if (part.count() == model().layers) return c;
    c.first_layer = static_cast<uint32_t>(part.first);
    c.model_layers = static_cast<uint32_t>(model().layers);
    if (c.budget_unit == BudgetUnit::mib) // of all layers
        c.budget *= static_cast<double>(part.count()) / static_cast<double>(model().layers);
    if (!c.local_rope_layers.empty()) {
        const auto all = c.local_rope_layers.begin();
        c.local_rope_layers = {all + part.first, all + part.end};
    }
    return c;
}

// Anew, where there are some already.
void Pipeline::make_cache_plans(bool has_system_prompt) {
    for (const auto &engine : engines_)
        engine->cache_plan.reset(); // a log has one writer
    at_its_line(config_, config_.policy.plugin.where, [&] {
        for (const auto &engine : engines_) {
            CacheConfig c = make_cache_config(has_system_prompt, *engine);
            if (engine != engines_.front()) c.shared_log = engines_.front()->cache_plan->log_ptr();
            engine->cache_plan = std::make_unique<CachePlan>(*engine->executor, engine->kv_shape,
                                                             host_, std::move(c));
        }
    });
}

// What only a policy that evicts has; whether it does, it says itself.
BoundPlugin Pipeline::bind_allocator(const pipeline::PipelineConfig &config,
                                     const BoundPlugin &policy) const {
    const keel_policy_needs needs = at_its_line(config, config.policy.plugin.where, [&] {
        return ask_policy(cache_config(config.policy, policy, {}, false), kv_shape(), *host_);
    });
    const pipeline::TriggerSection &trigger = config.policy.trigger;
    if ((needs.flags & KEEL_POLICY_KEEPS_ALL) != 0) {
        if (!trigger.has(pipeline::Trigger::pressure)) return {};
        throw_error(ErrorKind::input,
                    "{}: policy {} never evicts, so it could not answer memory pressure; remove "
                    "pressure from "
                    "policy.trigger.on or choose a policy that evicts",
                    to_string(trigger.on.where), policy.library->id());
    }
    pipeline::check_eviction(config.policy);
    if (trigger.has(pipeline::Trigger::pressure) && (needs.flags & KEEL_POLICY_PREFILL_ONLY) != 0) {
        throw_error(ErrorKind::input,
                    "{}: policy {} acts at the end of the prompt only, memory pressure comes at "
                    "any time; remove "
                    "pressure from policy.trigger.on or choose a policy that goes on evicting",
                    to_string(trigger.on.where), policy.library->id());
    }
    for (const auto &[on, name] : {std::pair{pipeline::Trigger::insert, "insert"},
                                   std::pair{pipeline::Trigger::every_n, "every_n"}}) {
        // `budget` is among the defaults, so it may stand there.
        if (!trigger.has(on) || (needs.flags & KEEL_POLICY_PREFILL_ONLY) == 0) continue;
        throw_error(ErrorKind::input,
                    "{}: policy {} acts at the end of the prompt only, so it never answers {}; "
                    "remove {} from "
                    "policy.trigger.on or choose a policy that goes on evicting",
                    to_string(trigger.on.where), policy.library->id(), name, name);
    }
    return bind_plugin(config.policy.allocator, KEEL_PLUGIN_ALLOCATOR);
}

void Pipeline::bind_eviction() {
    allocator_ = bind_allocator(config_, policy_);
    if (allocator_.library != nullptr || quiet_fallbacks_) return;
    // It keeps all. What was asked for beside it has nothing to act on.
    const pipeline::PolicySection &p = config_.policy;
    const auto say = [&](const char *key, const SourceLocation &where) {
        log().warn("{}{} has no effect: policy {} never evicts",
                   where.line > 0 ? to_string(where) + ": " : "", key, policy_.library->id());
    };
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

// Plans what steps run for a policy that was added.
void Pipeline::keep_arm(std::unique_ptr<Arm> arm) {
    check_trained_context(*arm->plan);
    arm->taps = engine().graph->plan_taps(arm->plan->tap_forms());
    auto ops = arm->plan->ops();
    const auto in_steps = arm->taps->list();
    ops.insert(ops.end(), in_steps.begin(), in_steps.end());
    report_fallbacks(engine().device(), ops);
    arms_.push_back(std::move(arm));
}

void Pipeline::refuse_hybrid(std::string_view what) const {
    if (!config_.hybrid.is_given()) return;
    throw_error(ErrorKind::input,
                "{}: {} run on one backend in this version; name it under 'backend' instead",
                to_string(config_.hybrid.backends.where), what);
}

CachePlan &Pipeline::add_policy(const pipeline::PolicySection &section) {
    refuse_hybrid("several policies over one model");
    auto arm = std::make_unique<Arm>();
    arm->config = config_;
    arm->config.policy = section;
    const pipeline::PipelineConfig &config = arm->config;
    arm->policy = bind_plugin(config.policy, KEEL_PLUGIN_POLICY);
    arm->allocator = bind_allocator(config, arm->policy);
    at_its_line(config, config.policy.plugin.where, [&] {
        arm->plan = std::make_unique<CachePlan>(
            *engine().executor, kv_shape(), host_,
            cache_config(config.policy, arm->policy, arm->allocator, has_system_prompt_));
    });
    keep_arm(std::move(arm));
    return *arms_.back()->plan;
}

CachePlan &Pipeline::add_shared_prefill(std::span<CachePlan *const> plans) {
    Collected all;
    for (const CachePlan *plan : plans) {
        const char *need = all.merge(plan->collected());
        if (need == nullptr) continue;
        throw_error(ErrorKind::input,
                    "policy {} needs {} in another form than a policy before it: one prefill "
                    "cannot serve both",
                    plan->config().policy.name, need);
    }
    auto arm = std::make_unique<Arm>();
    arm->config = config_;
    CacheConfig config = make_cache_config(has_system_prompt_, engine());
    config.policy = {};
    config.policy.name = "(full cache)";
    config.allocator = {};
    config.pressure.reset();
    config.pinned.clear();
    config.log.clear();
    arm->plan =
        std::make_unique<CachePlan>(*engine().executor, kv_shape(), host_, std::move(config), all);
    keep_arm(std::move(arm));
    return *arms_.back()->plan;
}

const TapOps &Pipeline::taps(const CachePlan &plan) const {
    for (const auto &engine : engines_) {
        if (engine->cache_plan.get() == &plan) return engine->graph->taps();
    }
    for (const auto &arm : arms_) {
        if (arm->plan.get() == &plan) return *arm->taps;
    }
    throw_error(ErrorKind::internal, "a cache plan of another pipeline");
}

} // namespace keel
