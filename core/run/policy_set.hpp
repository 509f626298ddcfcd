#pragma once

#include "run/bind_policy.hpp"
#include "run/engine_set.hpp"

#include <memory>
#include <span>
#include <vector>

namespace keel {

// The policies that sequences of a pipeline can have: the policy of the config, and policies that
// were added. All policies use the same weights and the same memory for caches.
class PolicySet {
  public:
    // Binds the config's policy and its allocator. `quiet`: true turns off the warnings about keys
    // without effect and about ops that fall back. config and engines must outlive this object.
    PolicySet(const pipeline::PipelineConfig &config, BoundPlugin policy, PolicyContext context,
              const EngineSet &engines, bool quiet);

    const PolicyBinding &own() const { return own_; }
    // Makes the policy setups of the engines. Call it again after their context has changed.
    void make_own_plans();
    // Throws or warns if the config's policy does not fit the context or its budget.
    void check_own() const;
    // Returns true if `plan` is the setup of an engine, and not of an added policy.
    bool is_own(const PolicySetup &plan) const;

    // Adds another policy and returns its setup. Sessions can be made with this setup. `section` is
    // like the section `policy` of a config. The setup is valid as long as this object. Throws the
    // errors that a pipeline throws for a wrong policy in its config, and Error(input) for a
    // hybrid.
    PolicySetup &add(const pipeline::PolicySection &section);
    // Frees a setup that add() returned. No session may use it.
    void remove(const PolicySetup &plan);
    // Returns a setup that keeps all tokens and collects the inputs of all policies of `plans`.
    // After one prefill with it, the session can be forked for each of these policies
    // (Session::fork). Throws Error(input) if two policies need the same input in different forms.
    // The message names the input.
    PolicySetup &add_shared_prefill(std::span<PolicySetup *const> plans);
    // Returns the ops that steps run to collect the inputs of a setup of this object.
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

// Throws Error(input) if the config has the section 'hybrid'. The message begins with `what`, a
// plural noun, and says that `what` can run only on one backend.
void refuse_hybrid(const pipeline::PipelineConfig &config, std::string_view what);

} // namespace keel
