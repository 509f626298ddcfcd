#pragma once

#include "kv/evict/pressure.hpp"

#include <keel/policy.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace keel {

// The tokens `from` to `to` - 1.
struct TokenRun {
    int32_t from = 0, to = 0;
    bool operator==(const TokenRun &) const = default;
};
// Turns rising numbers into runs of consecutive numbers.
std::vector<TokenRun> token_runs(std::span<const int32_t> rising);

// The effects of an eviction on one layer. Each field of the log has a member.
struct EvictionRecord {
    uint64_t sequence = 0; // number of the sequence in its setup, from 0
    int64_t tokens = 0;    // number of tokens that the cache has seen so far
    double seconds = 0;    // seconds since the cache was made or reset
    std::chrono::system_clock::time_point when{};
    keel_trigger trigger = KEEL_TRIGGER_BUDGET;
    const char *rule = nullptr; // the rule that decided instead of the policy; NULL if the policy
                                // decided
    uint32_t layer = 0, heads = 0; // heads: KV heads
    int64_t held_max = 0;          // slots of the longest head before the eviction
    int64_t budget = 0; // slots per head that can stay, on average over all layers and heads
    // Slots of the shortest and of the longest head after the eviction.
    int64_t kept_min = 0, kept_max = 0;
    // Number of evicted slots: in all heads together, and in the head that lost the most.
    int64_t evicted = 0, evicted_max = 0;
    uint64_t freed_bytes = 0; // bytes of freed blocks
    // Time on the host for deciding and moving in this layer, plus the layer's share of the work
    // for all layers. The work for all layers is dividing the budget, computing and reading the
    // policy's inputs, and repeating the context. The sum over the records of an eviction is the
    // time of the whole eviction, without the time to write this log.
    double microseconds = 0;
    int64_t moved_keys = 0; // keys of all heads that were rotated to new positions
    // The reason why memory is short. NULL: memory is not short, or Keel does not watch memory.
    std::shared_ptr<const PressureState> pressure;
    // The slots of each head after the eviction, [heads]. Filled only if there is a log.
    std::vector<int64_t> kept;
    // The tokens that are left in each head, [heads]. Filled only with policy.log_positions.
    std::vector<std::vector<TokenRun>> tokens_kept;
    // Quantiles of the scores of all heads, including protected slots. They are valid only if
    // has_scores is true. has_scores is false if the policy has no scores.
    bool has_scores = false;
    float score_min = 0, score_p25 = 0, score_median = 0, score_p75 = 0, score_max = 0;

    // Computes the quantiles from scores [heads, stride] and lengths [heads].
    void summarize(std::span<const float> scores, std::span<const int32_t> lengths, int64_t stride,
                   uint32_t n_heads);
};

const char *trigger_name(keel_trigger trigger); // "prefill_end"

// The policy and the allocator of a log. They are equal in all records.
struct EvictionSource {
    std::string policy;
    std::string allocator = {};        // empty: no allocator
    std::string allocator_params = {}; // as JSON, {"beta":20}
    // Three properties of the model. windowed_layers: number of layers that hold only a window, on
    // which the policy does not act. all_layers: number of all layers. window: the window in
    // tokens. All three are 0 if no layer holds only a window.
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t window = 0;
};
// Returns "the policy acts on 3 of 18 layers; the other 15 layers hold only their window of 512
// tokens".
std::string windows_text(uint32_t windowed_layers, uint32_t all_layers, int64_t window);
// Returns a plugin's parameters as a JSON object.
std::string params_json(const keel_param *const *params, uint32_t n);

// Writes records as JSON lines. Each line is flushed at once, so a run that is killed leaves a
// readable log. In a process, only one EvictionLog at a time may write to a file.
class EvictionLog {
  public:
    // Reserves the file and checks that it can be written, but does not change it. So if the
    // pipeline is only checked or is refused later, an older log stays. Throws Error(input) with
    // the key policy.log if the file cannot be written, or if another log of this process has it.
    EvictionLog(const std::string &path, EvictionSource source);
    EvictionLog(const std::string &path, std::string policy)
        : EvictionLog(path, EvictionSource{std::move(policy)}) {}
    ~EvictionLog();
    EvictionLog(const EvictionLog &) = delete;
    EvictionLog &operator=(const EvictionLog &) = delete;

    // The first call empties the file. Throws Error(input) if this fails.
    void open();
    // Opens the file if necessary. Throws Error(resource) if the disk is full.
    void write(const EvictionRecord &record);

  private:
    struct Close {
        void operator()(std::FILE *file) const noexcept { std::fclose(file); }
    };
    std::string path_;
    EvictionSource source_;
    // The canonical path of the reserved file. Empty if the file is not a regular file; several
    // logs may write to such a file.
    std::string claim_;
    std::unique_ptr<std::FILE, Close> file_;
};

// Returns one record as a line of JSON, without the newline.
std::string to_json(const EvictionRecord &record, const EvictionSource &source);

} // namespace keel
