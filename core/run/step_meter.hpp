#pragma once

#include "run/backend_move.hpp"
#include "run/sequence_cache.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace keel {

// Counters and notes of a session, for reports.
struct SessionStats {
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    double prefill_seconds = 0, decode_seconds = 0; // time in steps, including evictions
    uint64_t evictions = 0; // how often a trigger fired and slots were evicted
    // Tokens that the head with the most losses lost, summed over evictions.
    uint64_t evicted_tokens = 0;
    uint64_t evicted_bytes = 0;  // bytes of blocks that evictions freed, summed over evictions
    double eviction_seconds = 0; // part of the steps' seconds, see CacheManager::eviction_us
    uint64_t kv_bytes = 0, kv_peak_bytes = 0;
    // Memory of the policy in addition to the cache. See CacheManager::policy_bytes.
    uint64_t policy_bytes = 0, policy_peak_bytes = 0;
    // The peak of the sum of cache and policy. If layers are split between backends, this is the
    // sum of the backends' peaks.
    uint64_t held_peak_bytes = 0;
    // The bytes that evictions saved. See CacheManager::freed_bytes.
    uint64_t freed_bytes = 0;
    Stream::Counters stream;        // work of all steps, including discarded steps
    Stream::Counters decode_stream; // the stream's work in decode steps, including discarded steps
    // Decode steps that were queued before their token was read, see Session::greedy.
    uint64_t ahead_steps = 0;
    // Steps that were queued ahead and then discarded. They are not in ahead_steps.
    uint64_t discarded_steps = 0;
    uint64_t replay_parts = 0; // stages of a decode step that a backend can submit as a recording
    std::string no_replay;     // the reason why decode steps are not recorded; empty if they are
                               // recorded
    // Tokens that were guessed, and how many of them were right. See Session::decode_guess.
    uint64_t guessed_tokens = 0, right_guesses = 0;
    std::vector<BackendMove> moves; // moves between the backends of a hybrid
    uint64_t held_bytes() const { return kv_bytes + policy_bytes; }
    double prefill_rate() const {
        return prefill_seconds > 0 ? static_cast<double>(prefill_tokens) / prefill_seconds : 0;
    }
    double decode_rate() const {
        return decode_seconds > 0 ? static_cast<double>(decode_tokens) / decode_seconds : 0;
    }
};

// Counts and times the steps of one sequence.
class StepMeter {
  public:
    explicit StepMeter(const Pipeline &pipeline) : pipeline_(pipeline) {}

    // Measures from its construction to its destruction. Adds the time, and the stream's work
    // during this time, to the counters of prefill or of decode.
    class Span {
      public:
        Span(StepMeter &meter, bool is_decode);
        ~Span();
        Span(const Span &) = delete;
        Span &operator=(const Span &) = delete;

      private:
        StepMeter &meter_;
        bool is_decode_;
        std::chrono::steady_clock::time_point start_;
        Stream::Counters before_;
    };

    uint64_t prefill_tokens() const { return stats_.prefill_tokens; }
    void set_prefill_tokens(uint64_t n) { stats_.prefill_tokens = n; }
    void count_decode() { ++stats_.decode_tokens; }
    // Counts a step of several sequences. The whole time of the step counts for each sequence.
    void count_decode(double seconds);
    void count_prefill(uint64_t tokens, double seconds);
    void count_guess(uint64_t guessed, uint64_t right) {
        stats_.guessed_tokens += guessed;
        stats_.right_guesses += right;
        stats_.decode_tokens += right;
    }
    void count_ahead() { ++stats_.ahead_steps; }
    void count_discarded() { ++stats_.discarded_steps; }
    void add_move(BackendMove move) { stats_.moves.push_back(std::move(move)); }
    void reset() { stats_ = {}; }
    // Returns all counters. The counters of the cache have their current values.
    const SessionStats &read(const SequenceCache &cache);

  private:
    const Pipeline &pipeline_;
    SessionStats stats_;
};

} // namespace keel
