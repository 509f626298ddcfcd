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

// Tokens `from` to `to` - 1.
struct TokenRun {
    int32_t from = 0, to = 0;
    bool operator==(const TokenRun &) const = default;
};
// Rising numbers as runs of consecutive numbers.
std::vector<TokenRun> token_runs(std::span<const int32_t> rising);

// What an eviction did to one layer: a member for each field of the log.
struct EvictionRecord {
    uint64_t sequence = 0; // which of the setup's sequences, from 0
    int64_t tokens = 0;    // seen by the cache so far
    double seconds = 0;    // since the cache was made or reset
    std::chrono::system_clock::time_point when{};
    keel_trigger trigger = KEEL_TRIGGER_BUDGET;
    const char *rule = nullptr; // the rule that decided instead of the policy; NULL: the policy did
    uint32_t layer = 0, heads = 0; // heads: KV heads
    int64_t held_max = 0;          // slots of the longest head before the eviction
    int64_t budget = 0; // slots per head that may stay, on average over all layers and heads
    // Slots of the shortest and of the longest head after the eviction.
    int64_t kept_min = 0, kept_max = 0;
    // Evicted slots: of all heads together, and of the head that lost the most.
    int64_t evicted = 0, evicted_max = 0;
    uint64_t freed_bytes = 0; // bytes of freed blocks
    // Time on the host for deciding and moving in this layer, plus its share of the work for all
    // layers (dividing the budget, computing and reading the policy's inputs, a replay). The
    // records of an eviction add up to its whole time, without writing this log.
    double microseconds = 0;
    int64_t moved_keys = 0; // keys that were rotated again, all heads
    // Why memory is short. NULL: it is not short, or it is not watched.
    std::shared_ptr<const PressureState> pressure;
    // Only with a log: the slots of each head after the eviction, [heads].
    std::vector<int64_t> kept;
    // Only with policy.log_positions: the tokens that are left in each head, [heads].
    std::vector<std::vector<TokenRun>> tokens_kept;
    // Quantiles of the scores of all heads, protected slots included. false: the policy has no
    // scores.
    bool has_scores = false;
    float score_min = 0, score_p25 = 0, score_median = 0, score_p75 = 0, score_max = 0;

    // Fills in the quantiles: scores [heads, stride], lengths [heads].
    void summarize(std::span<const float> scores, std::span<const int32_t> lengths, int64_t stride,
                   uint32_t n_heads);
};

const char *trigger_name(keel_trigger trigger); // "prefill_end"

// The policy and the allocator that decided, the same in all records of a log.
struct EvictionSource {
    std::string policy;
    std::string allocator = {};        // empty: none
    std::string allocator_params = {}; // as JSON, {"beta":20}
    // Of the model: the number of layers that hold only a window, and on which the policy does not
    // act; the number of all layers; the window in tokens. 0: no layer holds only a window.
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t window = 0;
};
// "the policy acts on 3 of 18 layers; 15 hold their window of 512 tokens".
std::string windows_text(uint32_t windowed_layers, uint32_t all_layers, int64_t window);
// A plugin's parameters as a JSON object.
std::string params_json(const keel_param *const *params, uint32_t n);

// Writes records as JSON lines. Each line is flushed at once, so a run that is killed leaves a
// readable log. In a process, only one EvictionLog at a time may write to a file.
class EvictionLog {
  public:
    // Reserves the file and checks that it can be written, but does not change it. So an older log
    // stays if the pipeline is only checked or is refused later. Throws Error(input) with the key
    // policy.log if the file cannot be written, or if another log of this process has it.
    EvictionLog(const std::string &path, EvictionSource source);
    EvictionLog(const std::string &path, std::string policy)
        : EvictionLog(path, EvictionSource{std::move(policy)}) {}
    ~EvictionLog();
    EvictionLog(const EvictionLog &) = delete;
    EvictionLog &operator=(const EvictionLog &) = delete;

    // The first call empties the file. Throws Error(input) if it cannot.
    void open();
    // Opens the file if necessary. Throws Error(resource) if the disk is full.
    void write(const EvictionRecord &record);

  private:
    struct Close {
        void operator()(std::FILE *file) const noexcept { std::fclose(file); }
    };
    std::string path_;
    EvictionSource source_;
    // The canonical path of the reserved file. Empty: it is no regular file, so several logs may
    // have it.
    std::string claim_;
    std::unique_ptr<std::FILE, Close> file_;
};

// One record as a line of JSON, without the newline.
std::string to_json(const EvictionRecord &record, const EvictionSource &source);

} // namespace keel
