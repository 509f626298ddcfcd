#pragma once

#include "config/config.hpp"
#include "platform/memory.hpp"
#include "plugin/registry.hpp"
#include "run/engine.hpp"
#include "text/tokenizer/tokenizer.hpp"

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

// Loads what a section of the config names and binds its params; every error carries the config's
// line.
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
    bool check_only = false; // stop before the first weight is read; what is known by then can be
                             // asked for, nothing runs
    bool has_system_prompt = false; // sequences may call CacheManager::protect_prefix, if the
                                    // config protects system prompts
    std::function<MemoryInfo()>
        memory; // what there is to plan with; empty: what device and system say. For tests
    std::shared_ptr<SystemMonitor>
        monitor;            // who tells of memory pressure; NULL: the system. For tests
    uint32_t sequences = 1; // sessions and their forks that share the cache's memory at once
    // Sequences that take steps together at most, see SessionBatch. Above 1 a config may name
    // neither a hybrid nor kv.max_mib.
    uint32_t batch = 1;
    bool quiet_fallbacks = false; // do not warn about ops that fall back (--explain prints them
                                  // anyway), nor about what has no effect under the policy
    // Who opens a hybrid's backend of that name, or the one backend of that plugin; NULL from it,
    // or empty: open_device. For tests
    std::function<std::shared_ptr<Device>(const std::string &name)> device;
    std::function<std::shared_ptr<Device>()>
        fallback; // who opens the fallback; empty: as the config says. For tests
};

// Everything that a config describes, ready to run: one engine (device, weights, planned ops), or a
// hybrid's several. Sequences run on it one at a time, see Session. What cannot be done as the
// config says throws Error: config and plugins are checked before the first weight is read.
class Pipeline {
  public:
    explicit Pipeline(const pipeline::PipelineConfig &config, const PipelineOptions &options = {});
    ~Pipeline();
    Pipeline(const Pipeline &) = delete;
    Pipeline &operator=(const Pipeline &) = delete;

    const pipeline::PipelineConfig &config() const { return config_; }
    HostServices &host() { return *host_; }
    // The engine where sequences begin to write; of split layers the first.
    Engine &engine() const { return *engines_[main_]; }
    // All of them. Taking turns: in the order of the config, each with all layers. Layers split: in
    // the order of the layers.
    const std::vector<std::unique_ptr<Engine>> &engines() const { return engines_; }
    pipeline::HybridMode mode() const { return config_.hybrid.mode(); }
    Engine &prefill_engine() const { return *engines_[prefill_]; } // where prompts are read
    Engine *find_engine(std::string_view name) const; // NULL: there is none of that name
    // Each device once: whose streams run a step.
    const std::vector<std::shared_ptr<Device>> &devices() const { return devices_; }
    Stream::Counters counters() const; // of all of them
    // A device that was lost, of those or one that ops fall back to; NULL: none was.
    const Device *lost_device() const;
    // Throws Error(input), "PLACE: `what` run on one backend ...", if there is a hybrid.
    void refuse_hybrid(std::string_view what) const;
    const std::shared_ptr<SystemMonitor> &monitor() const { return monitor_; } // never NULL
    // Whether `plan` is of an engine, and not of a policy that was added.
    bool is_own(const CachePlan &plan) const;
    // Ops and streams are recorded there from now on; NULL: nowhere. It outlives this, or NULL is
    // set before it goes.
    void set_trace(Trace *trace);
    // Called round every op (Executor::Observer), with whose it is; an empty one: nothing is.
    using Observer =
        std::function<void(Executor &, const PlannedOp &, const keel_op_args *args, bool after)>;
    void set_observer(const Observer &observer);
    std::string backends_text() const; // the plugin, or of a hybrid "NAME (PLUGIN), NAME (PLUGIN)"
    uint64_t crossing_bytes_per_token()
        const; // between a hybrid's backends in a decode step; moves of the cache aside
    uint32_t step_tokens() const;            // of a prefill step at most, wherever it runs
    uint64_t weight_bytes_per_token() const; // of all that a decode step reads
    uint64_t weight_bytes() const;           // held on all devices
    uint64_t kv_bytes_per_token() const;     // of all layers, where they lie

    // What follows is engine()'s.
    Device &device() { return engine().device(); }
    Executor &executor() { return *engine().executor; }
    const ModelConfig &model() const { return source_->config(); }
    const ModelSource &source() const { return *source_; }
    ModelWeights &weights() { return *engine().weights; }
    Graph &graph() { return *engine().graph; }
    const Tokenizer *tokenizer() const {
        return tokenizer_.get();
    } // NULL: the model has none and none was wanted
    const KvShape &kv_shape() const { return engine().kv_shape; }
    CachePlan &cache_plan() const { return *engine().cache_plan; }
    // Another policy over the same weights and cache memory, for sessions of its own: `section` is
    // as a config's `policy:`. The plan lives as long as this. Throws as the constructor does, and
    // for a hybrid.
    CachePlan &add_policy(const pipeline::PolicySection &section);
    // A plan that keeps all and collects what the policies of `plans` need, so that one prefill
    // under it can be forked into each of them (Session::fork). Throws Error(input) naming the need
    // that cannot be collected for all of them at once.
    CachePlan &add_shared_prefill(std::span<CachePlan *const> plans);
    // What steps run for the by-products of a plan of this.
    const TapOps &taps(const CachePlan &plan) const;
    keel_buffer_kind placement() const { return engine().placement(); } // of buffers that ops share
    int64_t context() const { return engine().kv_shape.max_slots; }
    static constexpr uint32_t most_batch = 256; // sequences that take steps together
    uint32_t batch() const { return batch_; }   // PipelineOptions::batch
    const BoundPlugin &policy() const { return policy_; }
    const BoundPlugin &allocator() const {
        return allocator_;
    } // library NULL under a policy that keeps all
    double load_seconds() const { return load_seconds_; }

    // All ops that were planned, each once: of prefill and decode steps, and of the cache when
    // slots go.
    std::vector<const PlannedOp *> ops() const;
    // What `--explain` prints: device, sync, weights, who runs each op, what crosses.
    std::string explain() const;

  private:
    // A policy that was added.
    struct Arm {
        pipeline::PipelineConfig config;
        BoundPlugin policy, allocator;
        std::unique_ptr<CachePlan> plan;
        std::unique_ptr<TapOps> taps;
    };
    // Of an engine, under the config's own policy.
    CacheConfig make_cache_config(bool has_system_prompt, const Engine &engine) const;
    CacheConfig cache_config(const pipeline::PolicySection &section, const BoundPlugin &policy,
                             const BoundPlugin &allocator, bool has_system_prompt) const;
    void make_cache_plans(bool has_system_prompt);
    std::shared_ptr<Device> open_fallback() const;
    void open_engines();
    void add_engine(const std::string &name, std::shared_ptr<Device> device,
                    const LayerRange &part);
    std::shared_ptr<Device> open_backend(const pipeline::HybridBackend &backend) const;
    void open_layers();
    void make_kv_shape(Engine &engine) const;
    LoadOptions load_options(const Engine &engine, const PipelineOptions &options) const;
    std::string explain_engine(const Engine &engine) const;
    std::string explain_hybrid() const;
    BoundPlugin bind_allocator(const pipeline::PipelineConfig &config,
                               const BoundPlugin &policy) const;
    void check_trained_context(const CachePlan &plan) const;
    void check_cap() const;
    void check_batch() const;
    void compare_budgets() const;
    void bind_eviction();
    void keep_arm(std::unique_ptr<Arm> arm);
    void check_tables() const;
    bool fit_context();
    bool fit_context(const Engine &engine, int64_t &slots) const;
    void load_weights(const PipelineOptions &options);
    void report_fallbacks(const Device &device, const std::vector<const PlannedOp *> &ops) const;

    pipeline::PipelineConfig config_;
    std::shared_ptr<HostServices> host_;
    std::function<MemoryInfo()> memory_; // empty: asked where it is needed
    std::shared_ptr<SystemMonitor> monitor_;
    std::function<std::shared_ptr<Device>(const std::string &)> open_device_;
    std::function<std::shared_ptr<Device>()> open_fallback_;
    Executor::Options executor_options_;
    std::vector<std::shared_ptr<Device>> devices_;
    std::vector<std::unique_ptr<Engine>> engines_;
    size_t main_ = 0, prefill_ = 0;
    BoundPlugin policy_, allocator_;
    bool has_system_prompt_ = false, quiet_fallbacks_ = false;
    uint32_t sequences_ = 1, batch_ = 1;
    std::shared_ptr<const ModelSource> source_;
    std::unique_ptr<Tokenizer> tokenizer_;
    std::vector<std::unique_ptr<Arm>> arms_;
    double load_seconds_ = 0;
};

} // namespace keel
