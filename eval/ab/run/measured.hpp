#pragma once

#include "eval/ab/run/arms.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Measures the memory and the evictions of a session while it processes an item.
namespace keel::ab {

// Measures the memory of a session: the means over all calls of sample().
class Measured {
  public:
    // `session` is opened.session, or a copy of opened.session.
    Measured(Arms &arms, size_t run, Session &session, const Arms::Opened &opened)
        : arms_(arms), run_(run), session_(session), opened_policy_bytes_(opened.policy_bytes),
          peak_(std::max(opened.peak_bytes, opened.session->held_peak_bytes())) {
        // The counters of a copy begin at 0, so the counters of the original are added.
        const CacheManager &before = opened.session->cache();
        if (&session == opened.session.get()) return;
        evictions_before_ = before.evictions();
        eviction_us_before_ = before.eviction_us();
    }

    // Call this after each step that counts.
    void sample() {
        const uint64_t policy = policy_bytes(), bytes = session_.kv_bytes() + policy;
        bytes_ += static_cast<double>(bytes);
        policy_ += static_cast<double>(policy);
        full_ += static_cast<double>(arms_.full_bytes(session_.tokens()));
        own_full_ += static_cast<double>(arms_.full_bytes(run_, session_.tokens()));
        kept_ += mean_length(session_.cache().cache());
        peak_ = std::max({peak_, bytes, session_.held_peak_bytes()});
        ++samples_;
    }
    void fill(Item &item) const {
        const double n = std::max<double>(1, static_cast<double>(samples_));
        item.kv_bytes = static_cast<uint64_t>(bytes_ / n);
        item.full_kv_bytes = static_cast<uint64_t>(full_ / n);
        if (own_full_ != full_) item.own_full_kv_bytes = static_cast<uint64_t>(own_full_ / n);
        item.policy_bytes = static_cast<uint64_t>(policy_ / n);
        item.kept_slots = kept_ / n;
        item.peak_kv_bytes = peak_;
        item.seen = static_cast<uint64_t>(session_.tokens());
        item.evictions = evictions_before_ + session_.cache().evictions();
        item.eviction_us = eviction_us_before_ + session_.cache().eviction_us();
    }
    static double mean_length(const KvCache &cache) {
        const KvShape &s = cache.shape();
        double sum = 0;
        for (uint32_t l = 0; l < s.layers; ++l) {
            for (uint32_t h = 0; h < s.kv_heads; ++h)
                sum += static_cast<double>(cache.length(l, h));
        }
        return sum / (static_cast<double>(s.layers) * s.kv_heads);
    }

  private:
    uint64_t policy_bytes() const {
        return std::max(opened_policy_bytes_, session_.policy_bytes());
    }

    Arms &arms_;
    size_t run_;
    Session &session_;
    uint64_t opened_policy_bytes_;
    uint64_t peak_; // peak of the bytes of cache and policy data
    double bytes_ = 0, policy_ = 0, full_ = 0, own_full_ = 0, kept_ = 0;
    uint64_t samples_ = 0;
    uint64_t evictions_before_ = 0;
    double eviction_us_before_ = 0;
};

// Records the state of a session's cache after each step.
class TimelineNotes {
  public:
    TimelineNotes(std::vector<Arms::Note> notes, Session &session)
        : notes_(std::move(notes)), session_(session), evicted_(session.cache().evicted_slots()) {}
    void add() {
        const uint64_t gone = session_.cache().evicted_slots();
        notes_.push_back(
            {static_cast<uint64_t>(session_.tokens()), held_bytes_of(session_), gone - evicted_});
        evicted_ = gone;
    }
    Timeline timeline(const Place &place, const std::string &item) const {
        Timeline line;
        static_cast<Place &>(line) = place;
        line.item = item;
        for (const Arms::Note &note : notes_)
            line.points.push_back({note.tokens, note.kv_bytes, note.evicted_slots});
        return line;
    }

  private:
    std::vector<Arms::Note> notes_;
    Session &session_;
    uint64_t evicted_;
};

// Returns the positions of the prompt that the cache still holds. Returns nullopt if keys were
// rotated to other positions, because then the positions do not show which tokens stayed.
std::optional<KeepMap> read_keep_map(Session &session, int64_t prompt_tokens);

} // namespace keel::ab
