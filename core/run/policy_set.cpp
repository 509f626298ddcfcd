#include "run/policy_set.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "config/config_places.hpp"
#include "run/explain.hpp"

#include <algorithm>

namespace keel {

PolicySet::PolicySet(const pipeline::PipelineConfig &config, BoundPlugin policy,
                     PolicyContext context, const EngineSet &engines, bool quiet)
    : config_(config), context_(std::move(context)), engines_(engines), quiet_(quiet),
      own_(bind_policy(config, std::move(policy), context_, engines.acting())) {
    own_.cache.keeps_for_forks = context_.several_policies;
    if (own_.allocator.library == nullptr && !quiet)
        warn_without_effect(config, own_.policy.library->id());
}

void PolicySet::make_own_plans() {
    // a log must have only one writer
    for (const auto &engine : engines_) engine->policy_setup.reset();
    at_its_line(config_, config_.policy.plugin.where, [&] {
        std::shared_ptr<EvictionLog> log; // the log of the first engine with a policy; the other
                                          // engines share it
        for (const auto &engine : engines_) {
            CacheConfig c = cache_of_engine(own_.cache, context_.model, *engine);
            c.shared_log = log;
            engine->policy_setup = std::make_unique<PolicySetup>(
                *engine->executor, engine->kv_shape, context_.host, std::move(c));
            log = engine->policy_setup->log_ptr();
        }
    });
}

void PolicySet::check_own() const {
    check_trained_context(*engines_.acting().policy_setup);
    compare_budgets();
    compare_limits();
    for (const auto &engine : engines_) {
        check_window_cap(*engine);
        compare_window(*engine);
    }
}

// If all layers have a window and nothing is evicted, checks that the cache has room for the
// window.
void PolicySet::check_window_cap(const Engine &engine) const {
    const KvShape &shape = engine.policy_setup->shape();
    if (shape.window == 0 || shape.max_bytes == 0) return;
    const uint64_t needed = shape.bytes_of(shape.max_slots);
    if (shape.max_bytes >= needed) return;
    throw_error(ErrorKind::input,
                "{}: expected 'kv.max_mib' to hold the window of {} tokens and the tokens of a "
                "step, which take {:.3f} MiB; found {}",
                to_string(config_.kv.max_mib.where), shape.window,
                static_cast<double>(needed) / bytes_per_mib, **config_.kv.max_mib);
}

// Warns about a budget above the window. Tokens outside of the window would count against the
// budget, but no query attends to them.
void PolicySet::compare_window(const Engine &engine) const {
    const PolicySetup &plan = *engine.policy_setup;
    const int64_t window = plan.config().attention_window;
    if (plan.keeps_all() || window == 0 || plan.budget().fixed() <= window) return;
    log().warn("{} keeps {} slots per head, but all layers of this model have an attention window "
               "of {} tokens, so the other slots have no effect; lower the budget to {}",
               plan.budget().key(), plan.budget().fixed(), window, window);
}

bool PolicySet::is_own(const PolicySetup &plan) const {
    return std::any_of(engines_.begin(), engines_.end(),
                       [&](const auto &engine) { return engine->policy_setup.get() == &plan; });
}

// Refuses a context that is longer than the model was trained for, if the policy keeps all slots.
// With a policy that evicts, the model can read more tokens than it was trained for.
void PolicySet::check_trained_context(const PolicySetup &plan) const {
    const int64_t context = engine().kv_shape.max_slots, trained = context_.model.max_positions;
    if (context <= trained || !plan.keeps_all()) return;
    throw_at(config_.model.context.where, ErrorKind::input,
             "model.context is {}, but the model was made for {} tokens; lower model.context, or "
             "choose a policy that evicts",
             context, trained);
}

// A policy can have its own budget in addition to the config's budget. Then both budgets apply, and
// an eviction keeps the smaller number of slots. A user may not expect this, so Keel reports the
// difference.
void PolicySet::compare_budgets() const {
    const PolicySetup &plan = *engines_.acting().policy_setup;
    const keel_policy_needs &needs = plan.needs();
    const pipeline::PolicySection &p = config_.policy;
    const auto kind = p.budget.kind();
    if (plan.keeps_all() || needs.own_budget == 0 || kind == pipeline::BudgetKind::none ||
        kind == pipeline::BudgetKind::ratio)
        return;
    const int64_t own = int64_t{needs.own_budget} + *p.protect.prefix,
                  budget = plan.budget().at(0).tokens;
    if (own == budget) return;
    const std::string key =
        kind == pipeline::BudgetKind::tokens ? "policy.budget.tokens" : "policy.budget.mib";
    const SourceLocation where = p.budget.where();
    log().warn(
        "{}{} allows {} slots per head, but policy {} itself sets a budget of {} slots plus a "
        "protected prefix of {}; the smaller budget applies, so an eviction leaves {} slots",
        where.line > 0 ? to_string(where) + ": " : "", key, budget, own_.policy.library->id(),
        needs.own_budget, *p.protect.prefix, std::min(own, budget));
}

void PolicySet::compare_limits() const {
    const PolicySetup &plan = *engines_.acting().policy_setup;
    if (plan.keeps_all()) return;
    const auto kind = config_.policy.budget.kind();
    const auto &count = config_.kv.count_policy_state;
    const auto place = [](const SourceLocation &where) {
        return where.line > 0 ? to_string(where) + ": " : std::string{};
    };
    if (*count && !config_.kv.max_mib->has_value() && kind != pipeline::BudgetKind::mib)
        log().warn("{}kv.count_policy_state has no effect without kv.max_mib or policy.budget.mib",
                   place(count.where));
    const auto &trigger = config_.policy.trigger;
    const bool evicts_below_budget =
        trigger.has(pipeline::Trigger::insert) || trigger.has(pipeline::Trigger::pressure);
    if (kind == pipeline::BudgetKind::tokens && !evicts_below_budget &&
        plan.budget().fixed() >= plan.shape().max_slots)
        log().warn("{}policy.budget.tokens is {} and model.context {}, so nothing will be evicted",
                   place(config_.policy.budget.where()), plan.budget().fixed(),
                   plan.shape().max_slots);
}

// Plans the ops that steps run for the policy.
PolicySetup &PolicySet::keep(std::unique_ptr<Added> added) {
    check_trained_context(*added->plan);
    added->taps = engine().graph->plan_taps(added->plan->tap_forms(),
                                            added->plan->layout().windowed.has_window);
    if (!quiet_) {
        auto ops = added->plan->ops();
        const auto in_steps = added->taps->list();
        ops.insert(ops.end(), in_steps.begin(), in_steps.end());
        warn_of_fallbacks(engine().device(), ops);
    }
    added_.push_back(std::move(added));
    return *added_.back()->plan;
}

PolicySetup &PolicySet::add(const pipeline::PolicySection &section) {
    refuse_hybrid(config_, "several policies over one model");
    auto added = std::make_unique<Added>();
    added->config = config_;
    added->config.policy = section;
    const pipeline::PipelineConfig &config = added->config;
    added->binding =
        bind_policy(config, bind_plugin(config.policy, KEEL_PLUGIN_POLICY), context_, engine());
    added->binding.cache.keeps_for_forks = context_.several_policies;
    at_its_line(config, config.policy.plugin.where, [&] {
        added->plan = std::make_unique<PolicySetup>(
            *engine().executor, engine().kv_shape, context_.host,
            cache_of_engine(added->binding.cache, context_.model, engine()));
    });
    return keep(std::move(added));
}

void PolicySet::remove(const PolicySetup &plan) {
    std::erase_if(added_, [&](const auto &added) { return added->plan.get() == &plan; });
}

PolicySetup &PolicySet::add_shared_prefill(std::span<PolicySetup *const> plans) {
    Collected all;
    for (const PolicySetup *plan : plans) {
        const char *need = all.merge(plan->collected());
        if (need == nullptr) continue;
        throw_error(ErrorKind::input,
                    "policy {} needs {} in another form than an earlier policy of this pipeline, "
                    "and one prefill cannot collect both forms",
                    plan->config().policy.name, need);
    }
    CacheConfig config = cache_of_engine(own_.cache, context_.model, engine());
    config.keeps_for_forks = true;
    config.policy = {};
    config.policy.name = "(full cache)";
    config.allocator = {};
    config.pressure.reset();
    config.pinned.clear();
    config.log.clear();
    auto added = std::make_unique<Added>();
    added->plan = std::make_unique<PolicySetup>(*engine().executor, engine().kv_shape,
                                                context_.host, std::move(config), all);
    return keep(std::move(added));
}

const TapOps &PolicySet::taps(const PolicySetup &plan) const {
    for (const auto &engine : engines_) {
        if (engine->policy_setup.get() == &plan) return engine->graph->taps();
    }
    for (const auto &added : added_) {
        if (added->plan.get() == &plan) return *added->taps;
    }
    throw_error(ErrorKind::internal, "the policy setup belongs to another pipeline");
}

void refuse_hybrid(const pipeline::PipelineConfig &config, std::string_view what) {
    if (!config.hybrid.is_given()) return;
    throw_at(config.hybrid.backends.where, ErrorKind::input,
             "{} run only on one backend in this version; remove 'hybrid', and name the backend "
             "under 'backend'",
             what);
}

} // namespace keel
