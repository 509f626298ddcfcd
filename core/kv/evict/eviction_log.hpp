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
// Rising numbers as runs of neighbours.
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
    int64_t held_max = 0;          // slots of the longest head before
    int64_t budget = 0; // slots per head that might stay, on average over all layers and heads
    int64_t kept_min = 0, kept_max = 0; // slots per head after
    int64_t evicted = 0,
            evicted_max = 0;  // slots that went: of all heads together, of the head that lost most
    uint64_t freed_bytes = 0; // of blocks given back
    // Time on the host for deciding and moving in this layer, plus its share of the work for all
    // layers (dividing the budget, computing and reading the policy's inputs, a replay). The
    // records of an eviction add up to its whole time, without writing this log.
    double microseconds = 0;
    int64_t moved_keys = 0; // keys that were rotated again, all heads
    std::shared_ptr<const PressureState>
        pressure; // why, where memory is short; NULL: it is not, or nobody looks
    // Filled in where there is a log.
    std::vector<int64_t> kept; // [heads] slots after
    std::vector<std::vector<TokenRun>>
        tokens_kept; // [heads] which tokens these are; empty: not asked for
    bool has_scores = false;
    float score_min = 0, score_p25 = 0, score_median = 0, score_p75 = 0,
          score_max = 0; // all heads, protected slots included

    // Fills in the quantiles: scores [heads, stride], lengths [heads].
    void summarize(std::span<const float> scores, std::span<const int32_t> lengths, int64_t stride,
                   uint32_t n_heads);
};

const char *trigger_name(keel_trigger trigger); // "prefill_end"

// Who decides, for each record.
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

// Writes records as JSON lines, flushed one by one, so that a run that is killed leaves a readable
// log. A file is the log of one EvictionLog of the process at a time.
class EvictionLog {
  public:
    // Claims the file and looks whether it could be written, without touching it: a pipeline that
    // is only checked, or refused later, leaves an older log as it was. Throws Error(input) naming
    // policy.log if it cannot, or if another log of this process has it.
    EvictionLog(const std::string &path, EvictionSource source);
    EvictionLog(const std::string &path, std::string policy)
        : EvictionLog(path, EvictionSource{std::move(policy)}) {}
    ~EvictionLog();
    EvictionLog(const EvictionLog &) = delete;
    EvictionLog &operator=(const EvictionLog &) = delete;

    void open(); // empties the file, the first time; throws Error(input) if it cannot
    void write(const EvictionRecord
                   &record); // opens it if need be; throws Error(resource) when the disk is full

  private:
    struct Close {
        void operator()(std::FILE *file) const noexcept { std::fclose(file); }
    };
    std::string path_;
    EvictionSource source_;
    std::string claim_; // canonical path; empty: not a regular file, any number may write to it
    std::unique_ptr<std::FILE, Close> file_;
};

// One record as a line of JSON, without the newline.
std::string to_json(const EvictionRecord &record, const EvictionSource &source);

} // namespace keel
