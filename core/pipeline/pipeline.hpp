#pragma once

#include "device/executor.hpp"
#include "kv/cache_plan.hpp"
#include "model/graph.hpp"
#include "model/weights.hpp"
#include "pipeline/config.hpp"
#include "platform/memory.hpp"
#include "plugin/registry.hpp"
#include "text/tokenizer.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace keel {

// Called while a pipeline is made and used: stage is "loading" or "prefill". May throw to stop.
using Progress = std::function<void(const char *stage, uint64_t done, uint64_t total)>;

// A plugin that a config names, loaded, with its parameters bound.
struct BoundPlugin {
    const PluginLibrary *library = nullptr; // lives as long as the process
    ParamValues params;
    PluginPlaces places; // in the config
};

// Loads what a section of the config names and binds its params; every error carries the config's line.
BoundPlugin bind_plugin(const pipeline::PluginSection &section, keel_plugin_kind kind);
// The model that a section names; one that is not there is Error(input) with the config's line.
std::shared_ptr<const ModelSource> open_model(const pipeline::ModelSection &section);
// The device that a backend section names; "reference" is the core's own.
std::shared_ptr<Device> open_device(const pipeline::BackendSection &section,
                                    const std::shared_ptr<HostServices> &host);

struct PipelineOptions {
    std::shared_ptr<HostServices> host; // NULL: one of its own
    Progress progress;
    uint32_t max_logit_rows = 1; // evaluation wants logits of many tokens at once
    bool need_tokenizer = true;  // false: a model folder without one will do (benchmarks)
    bool check_only =
        false; // stop before the first weight is read; what is known by then can be asked for, nothing runs
    bool has_system_prompt =
        false; // sequences may call CacheManager::protect_prefix, if the config protects system prompts
    std::function<MemoryInfo()>
        memory; // what there is to plan with; empty: what device and system say. For tests
    std::shared_ptr<SystemMonitor> monitor; // who tells of memory pressure; NULL: the system. For tests
    uint32_t sequences = 1;                 // sessions and their forks that share the cache's memory at once
    bool quiet_fallbacks = false; // do not warn about ops that fall back (--explain prints them anyway), nor
                                  // about what has no effect under the policy
};

// Everything that a config describes, ready to run: device, weights, planned ops. Sequences run on it one at a time, see Session. What
// cannot be done as the config says throws Error: config and plugins are checked before the first weight is read.
class Pipeline {
  public:
    explicit Pipeline(const pipeline::PipelineConfig &config, const PipelineOptions &options = {});
    ~Pipeline();
    Pipeline(const Pipeline &) = delete;
    Pipeline &operator=(const Pipeline &) = delete;

    const pipeline::PipelineConfig &config() const { return config_; }
    HostServices &host() { return *host_; }
    Device &device() { return executor_->device(); }
    Executor &executor() { return *executor_; }
    const ModelConfig &model() const { return source_->config(); }
    const ModelSource &source() const { return *source_; }
    ModelWeights &weights() { return *weights_; }
    Graph &graph() { return *graph_; }
    const Tokenizer *tokenizer() const {
        return tokenizer_.get();
    } // NULL: the model has none and none was wanted
    const KvShape &kv_shape() const { return kv_shape_; }
    CachePlan &cache_plan() const { return *cache_plan_; }
    // Another policy over the same weights and cache memory, for sessions of its own: `section` is as a config's `policy:`. The plan lives
    // as long as this. Throws as the constructor does.
    CachePlan &add_policy(const pipeline::PolicySection &section);
    // A plan that keeps all and collects what the policies of `plans` need, so that one prefill under it can be forked into each of
    // them (Session::fork). Throws Error(input) naming the need that cannot be collected for all of them at once.
    CachePlan &add_shared_prefill(std::span<CachePlan *const> plans);
    // What steps run for the by-products of a plan of this.
    const GraphTaps &taps(const CachePlan &plan) const;
    keel_buffer_kind placement() const { return executor_->placement(); } // of buffers that ops share
    int64_t context() const { return kv_shape_.max_slots; }
    const BoundPlugin &policy() const { return policy_; }
    const BoundPlugin &allocator() const { return allocator_; } // library NULL under a policy that keeps all
    double load_seconds() const { return load_seconds_; }

    // All ops that were planned, each once: of prefill and decode steps, and of the cache when slots go.
    std::vector<const PlannedOp *> ops() const;
    // What `--explain` prints: device, sync, weights, who runs each op, what crosses.
    std::string explain() const;

  private:
    KvShape make_kv_shape() const;
    // A policy that was added.
    struct Arm {
        pipeline::PipelineConfig config;
        BoundPlugin policy, allocator;
        std::unique_ptr<CachePlan> plan;
        std::unique_ptr<GraphTaps> taps;
    };
    CacheConfig make_cache_config(bool has_system_prompt) const {
        return cache_config(config_.policy, policy_, allocator_, has_system_prompt);
    }
    CacheConfig cache_config(const pipeline::PolicySection &section, const BoundPlugin &policy,
                             const BoundPlugin &allocator, bool has_system_prompt) const;
    std::unique_ptr<CachePlan> make_cache_plan(bool has_system_prompt);
    BoundPlugin bind_allocator(const pipeline::PipelineConfig &config, const BoundPlugin &policy) const;
    void check_trained_context(const CachePlan &plan) const;
    void check_cap() const;
    void compare_budgets() const;
    void bind_eviction();
    void keep_arm(std::unique_ptr<Arm> arm);
    std::string policies_that_act_in_prefill() const;
    MemoryInfo memory() const;
    uint64_t table_bytes(int64_t context) const;
    void check_tables() const;
    bool fit_context();
    uint32_t prefill_chunk() const; // tokens of a prefill step at most
    void load_weights(const PipelineOptions &options);
    void report_fallbacks(const std::vector<const PlannedOp *> &ops) const;

    pipeline::PipelineConfig config_;
    std::shared_ptr<HostServices> host_;
    std::function<MemoryInfo()> memory_; // empty: asked where it is needed
    std::shared_ptr<SystemMonitor> monitor_;
    std::unique_ptr<Executor> executor_;
    BoundPlugin policy_, allocator_;
    bool has_system_prompt_ = false, quiet_fallbacks_ = false;
    uint32_t sequences_ = 1;
    std::shared_ptr<const ModelSource> source_;
    std::unique_ptr<Tokenizer> tokenizer_;
    KvShape kv_shape_;
    std::unique_ptr<KvTemplate> kv_template_;
    std::unique_ptr<ModelWeights> weights_;
    std::unique_ptr<Graph> graph_;
    std::unique_ptr<CachePlan> cache_plan_;
    std::vector<std::unique_ptr<Arm>> arms_;
    double load_seconds_ = 0;
};

} // namespace keel
