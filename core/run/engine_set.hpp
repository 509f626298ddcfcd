#pragma once

#include "run/engine.hpp"

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace keel {

// The engines of a pipeline and their devices: one engine, or the engines of a hybrid. If backends
// take turns, the engines are in the order of the config, and each engine has all layers. If layers
// are split, the engines are in the order of the layers.
class EngineSet {
  public:
    EngineSet() = default;
    explicit EngineSet(bool takes_turns) : takes_turns_(takes_turns) {}

    void add(std::unique_ptr<Engine> engine, const std::shared_ptr<Device> &device);
    // Set the engines on which decode and prefill begin. By default this is the first engine.
    void set_decode(size_t number) { decode_ = number; }
    void set_prefill(size_t number) { prefill_ = number; }

    auto begin() const { return engines_.begin(); }
    auto end() const { return engines_.end(); }
    size_t size() const { return engines_.size(); }
    const std::unique_ptr<Engine> &operator[](size_t i) const { return engines_[i]; }
    const std::unique_ptr<Engine> &front() const { return engines_.front(); }
    const std::unique_ptr<Engine> &back() const { return engines_.back(); }
    Engine &decode() const { return *engines_[decode_]; }
    Engine &prefill() const { return *engines_[prefill_]; }
    // Returns decode() if policies act on its layers. Otherwise returns the first engine with
    // layers on which policies act.
    Engine &acting() const;
    Engine *find(std::string_view name) const; // NULL: no engine has that name
    // Returns the devices of all engines, each device once.
    const std::vector<std::shared_ptr<Device>> &devices() const { return devices_; }
    // Returns a lost device: the device of an engine, or a device to which ops fall back. Returns
    // NULL if no device was lost.
    const Device *lost_device() const;

    Stream::Counters counters() const; // the sum over all devices
    // From now on `trace` records ops and streams; NULL: no trace. The trace must outlive the
    // engines, or the caller must set NULL before it destroys the trace.
    void set_trace(Trace *trace);
    // `observer` is called before and after each op (Executor::Observer), with the op's executor.
    // An empty observer removes the current one.
    using Observer =
        std::function<void(Executor &, const PlannedOp &, const keel_op_args *args, bool after)>;
    void set_observer(const Observer &observer);

    // Returns all planned ops of prefill steps, decode steps and evictions. Each op occurs once per
    // engine.
    std::vector<const PlannedOp *> ops() const;
    uint32_t step_tokens() const;  // the most tokens of a prefill step, on any engine
    uint64_t weight_bytes() const; // bytes of weights on all devices
    // bytes of weights that a decode step of this many tokens reads
    uint64_t weight_bytes_per_token(uint32_t tokens = 1) const;
    // kv_bytes_per_token() returns the bytes that a token adds to the cache of the layers that hold
    // all tokens. held_window_bytes() returns the most cache bytes of the layers that hold only
    // their window.
    uint64_t kv_bytes_per_token() const;
    uint64_t held_window_bytes() const;

  private:
    std::vector<std::unique_ptr<Engine>> engines_;
    std::vector<std::shared_ptr<Device>> devices_;
    bool takes_turns_ = false;
    size_t decode_ = 0, prefill_ = 0;
};

} // namespace keel
