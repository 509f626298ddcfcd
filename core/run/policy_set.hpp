#pragma once

#include "run/bind_policy.hpp"
#include "run/engine_set.hpp"

#include <memory>
#include <span>
#include <vector>

namespace keel {

// The policies that sequences of a pipeline can have: the one of its config, and those that were
// added over the same weights and cache memory.
class PolicySet {
  public:
    // Binds the config's policy and its allocator. `quiet`: does not warn of keys without effect,
    // nor of ops that fall back. config and engines outlive this.
    PolicySet(const pipeline::PipelineConfig &config, BoundPlugin policy, PolicyContext context,
              const EngineSet &engines, bool quiet);

    const PolicyBinding &own() const { return own_; }
    // Makes the cache plans of the engines, again after their context has changed.
    void make_own_plans();
    // Throws or warns if the config's policy does not fit the context or its budget.
    void check_own() const;
    // Is it the plan of an engine, not of an added policy?
    bool is_own(const PolicySetup &plan) const;

    // Adds another policy, for sessions that use it. `section` is like the `policy:` of a config.
    // The plan lives as long as this. Throws as the pipeline does for the config's policy, and
    // throws for a hybrid.
    PolicySetup &add(const pipeline::PolicySection &section);
    // A plan that keeps all, and collects what the policies of `plans` need: one prefill under it
    // can be forked into each of them (Session::fork). Throws Error(input) that names a need which
    // cannot be collected for all of them together.
    PolicySetup &add_shared_prefill(std::span<PolicySetup *const> plans);
    // The ops that steps run for the by-products of a plan of this set.
    const TapOps &taps(const PolicySetup &plan) const;

  private:
    struct Added {
        pipeline::PipelineConfig config;
        PolicyBinding binding;
        std::unique_ptr<PolicySetup> plan;
        std::unique_ptr<TapOps> taps;
    };
    Engine &engine() const { return engines_.decode(); }
    PolicySetup &keep(std::unique_ptr<Added> added);
    void check_trained_context(const PolicySetup &plan) const;
    void compare_budgets() const;
    void compare_limits() const;
    void check_window_cap(const Engine &engine) const;
    void compare_window(const Engine &engine) const;

    const pipeline::PipelineConfig &config_;
    PolicyContext context_;
    const EngineSet &engines_;
    bool quiet_;
    PolicyBinding own_;
    std::vector<std::unique_ptr<Added>> added_;
};

// If the config has the section 'hybrid', throws Error(input): `what` cannot run on several
// backends. `what` is a plural noun, the first words of the message.
void refuse_hybrid(const pipeline::PipelineConfig &config, std::string_view what);

} // namespace keel
