#pragma once

#include "run/pipeline.hpp"
#include "schedule/request.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace keel {

// The policy setups that requests choose. Equal choices share a setup. A setup that no request uses
// is kept for later requests, up to a limit.
class PolicyChoices {
  public:
    struct Setup {
        PolicySetup *plan;
        std::string name;  // of the policy
        uint64_t used = 0; // rises with each lookup; guarded by the mutex
    };
    // While a lease exists, its setup exists.
    using Lease = std::shared_ptr<const Setup>;
    // Runs a function in the thread that runs the pipeline, between two steps, and waits for it.
    using RunBetweenSteps = std::function<void(const std::function<void()> &)>;

    static constexpr size_t most_unused = 32;

    explicit PolicyChoices(Pipeline &pipeline);
    // The setup of a choice. Any thread may call it. If no request has made this choice before, a
    // new setup is made by `between_steps`. Throws Error(input) or Error(plugin), with the key of
    // the choice, for a policy that does not exist and for a wrong key or value. A choice must not
    // name files: a policy or an allocator by its path, an eviction log, or a parameter that is a
    // path. A value that is equal to the value of the pipeline's file is allowed.
    Lease find(const std::optional<PolicyChoice> &choice, const RunBetweenSteps &between_steps);

  private:
    pipeline::PolicySection section_of(const PolicyChoice &choice) const;
    Lease known(const std::string &key);
    Lease make(const std::string &key, const pipeline::PolicySection &section);
    void check_paths(const pipeline::PolicySection &section) const;
    static void check_effect(const PolicyChoice &choice, const Setup &setup);
    void drop_unused();

    Pipeline &pipeline_;
    const Lease own_; // the policy of the pipeline's file
    std::mutex mutex_;
    uint64_t lookups_ = 0;
    std::map<std::string, std::shared_ptr<Setup>> made_; // by the values of all keys
};

} // namespace keel
