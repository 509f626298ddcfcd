#pragma once

#include "config/config.hpp"
#include "platform/memory.hpp"
#include "run/bind_plugin.hpp"
#include "run/engine.hpp"
#include "run/open_engines.hpp"
#include "run/policy_set.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <functional>
#include <memory>
#include <string>

namespace keel {

// Called while a pipeline is made and used. `stage` is "loading" or "prefill". The function can
// throw an exception to stop the work.
using Progress = std::function<void(const char *stage, uint64_t done, uint64_t total)>;

// Opens the model that a section names. If the model does not exist, throws Error(input) with the
// place in the config.
std::shared_ptr<const ModelSource> open_model(const pipeline::ModelSection &section);

struct PipelineOptions {
    std::shared_ptr<HostServices> host; // NULL: the pipeline makes its own
    Progress progress;
    uint32_t max_logit_rows = 1; // evaluation reads the logits of many tokens at once
    // false: also accepts a model folder without a tokenizer. For benchmarks.
    bool need_tokenizer = true;
    // true: stops before the first weight is read. Then the pipeline can report its sizes and
    // plans, but cannot run.
    bool check_only = false;
    // true: sequences can protect a system prompt (CacheManager::protect_prefix), if the config
    // protects system prompts.
    bool has_system_prompt = false;
    // Returns the memory to plan with (total and available). If empty, Keel asks the device and the
    // system. For tests.
    std::function<MemoryInfo()> memory;
    // Reports memory pressure. NULL: the system's monitor. For tests.
    std::shared_ptr<SystemMonitor> monitor;
    // the number of sessions, including forks, that share the memory of the cache at the same time
    uint32_t sequences = 1;
    // true: policies will be added, and sessions will be forked into them. Then a sequence under a
    // policy that keeps all slots keeps all tokens, even if all layers of the model have an
    // attention window.
    bool several_policies = false;
    // The most sequences that run steps together, see SessionBatch. If this is above 1, the config
    // must not have a hybrid or kv.max_mib.
    uint32_t batch = 1;
    // With `batch`: the caller lets all caches together take at most this many bytes. 0: no limit.
    // Keel then plans memory for this many bytes instead of `batch` full caches.
    uint64_t cache_bytes = 0;
    // The most tokens of a chunk of a prompt. 0: the backend's size, which is also the upper limit.
    // Policies that act between chunks keep other tokens if the chunks have another size.
    uint32_t prefill_chunk = 0;
    // true: does not warn about ops that fall back, because --explain prints them. Also does not
    // warn about keys that have no effect under the policy.
    bool quiet_fallbacks = false;
    // Functions that open the backends and the fallback, see DeviceOpener. For tests.
    std::function<std::shared_ptr<Device>(const std::string &name)> device;
    std::function<std::shared_ptr<Device>()> fallback;
};

// Everything that a config describes, ready to run: the model, its tokenizer, the engines and the
// policies. Sessions run on it. The constructor throws Error if it cannot do exactly what the
// config says. It checks config and plugins before it reads the first weight.
class Pipeline {
  public:
    explicit Pipeline(const pipeline::PipelineConfig &config, const PipelineOptions &options = {});
    ~Pipeline();
    Pipeline(const Pipeline &) = delete;
    Pipeline &operator=(const Pipeline &) = delete;

    const pipeline::PipelineConfig &config() const { return config_; }
    pipeline::HybridMode mode() const { return config_.hybrid.mode(); }
    HostServices &host() { return *host_; }
    const std::shared_ptr<SystemMonitor> &monitor() const { return monitor_; } // never NULL
    const ModelConfig &model() const { return source_->config(); }
    const ModelSource &source() const { return *source_; }
    // NULL if the model has no tokenizer and PipelineOptions::need_tokenizer is false.
    const Tokenizer *tokenizer() const { return tokenizer_.get(); }
    EngineSet &engines() { return engines_; }
    const EngineSet &engines() const { return engines_; }
    PolicySet &policies() { return *policies_; }
    const PolicySet &policies() const { return *policies_; }
    static constexpr uint32_t most_batch = 256; // sequences that take steps together
    uint32_t batch() const { return batch_; }   // PipelineOptions::batch
    double load_seconds() const { return load_seconds_; }
    std::string backends_text() const; // the plugin's name; for a hybrid: "NAME (PLUGIN), NAME
                                       // (PLUGIN)"

    // The engine on which sequences begin to decode. If layers are split, this is the first engine.
    // The functions below return members of this engine.
    Engine &engine() const { return engines_.decode(); }
    Device &device() { return engine().device(); }
    Executor &executor() { return *engine().executor; }
    ModelWeights &weights() { return *engine().weights; }
    Graph &graph() { return *engine().graph; }
    const KvShape &kv_shape() const { return engine().kv_shape; }
    // The setup of the engine that has layers on which the policy acts.
    PolicySetup &policy_setup() const { return *engines_.acting().policy_setup; }
    keel_buffer_kind placement() const { return engine().placement(); } // of buffers that ops share
    int64_t context() const { return engine().kv_shape.max_slots; }

  private:
    void check_batch() const;
    void check_lookup() const;
    void read_tokenizer(bool is_needed);

    pipeline::PipelineConfig config_;
    std::shared_ptr<HostServices> host_;
    std::shared_ptr<SystemMonitor> monitor_;
    std::shared_ptr<const ModelSource> source_;
    std::unique_ptr<Tokenizer> tokenizer_;
    EngineSet engines_;
    std::unique_ptr<PolicySet> policies_;
    uint32_t batch_ = 1;
    double load_seconds_ = 0;
};

} // namespace keel
