#pragma once

#include "base/error.hpp"
#include "kv/evict/cache_config.hpp"
#include "kv/store/state_io.hpp"

#include <keel/allocator.h>
#include <keel/policy.h>

#include <memory>
#include <span>
#include <string>

namespace keel {

// A policy's state for one sequence. If a call of the policy fails, throws Error(plugin) with the
// policy's name and the policy's message.
class PolicyState {
  public:
    // The constructor writes the policy's needs to `needs`. Host, plugin and geometry must outlive
    // this object.
    PolicyState(const KvPlugin<keel_policy> &plugin, const keel_host *host,
                const keel_geometry &geometry, uint64_t seed, keel_policy_needs &needs);
    ~PolicyState();
    PolicyState(const PolicyState &) = delete;
    PolicyState &operator=(const PolicyState &) = delete;

    void decide(const keel_policy_input &input, keel_policy_decision &decision);
    void reset();
    void truncate(int64_t position);
    std::unique_ptr<PolicyState> fork() const;
    // Write and read the policy's state. A policy without state writes nothing. A policy that has
    // `fork` has state. If it has no `save`, check_savable() and save() throw Error(plugin).
    static void check_savable(const KvPlugin<keel_policy> &plugin);
    void save(StateWriter &out) const;
    void load(StateReader &in);

  private:
    PolicyState(const PolicyState &parent, keel_policy_state *state);
    void create(keel_policy_needs &needs);
    [[noreturn]] void fail(keel_status status, const std::string &what) const;

    const KvPlugin<keel_policy> &plugin_;
    const keel_host *host_;
    const keel_geometry &geometry_;
    uint64_t seed_;
    keel_policy_state *state_ = nullptr;
};

// A budget allocator's state for one sequence.
class AllocatorState {
  public:
    AllocatorState(const KvPlugin<keel_allocator> &plugin, const keel_host *host,
                   const keel_geometry &geometry, keel_allocator_needs &needs);
    ~AllocatorState();
    AllocatorState(const AllocatorState &) = delete;
    AllocatorState &operator=(const AllocatorState &) = delete;

    // Divides the budget: writes `budgets`, [layers, kv_heads]. Throws Error(plugin) if the answer
    // breaks the rules of allocator.h.
    void allocate(const keel_allocator_input &input, std::span<int32_t> budgets);

  private:
    const KvPlugin<keel_allocator> &plugin_;
    keel_allocator_state *state_ = nullptr;
};

} // namespace keel
