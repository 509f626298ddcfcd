#pragma once

#include "eval/ab/runner.hpp"

#include <map>
#include <optional>

// Internal to the runner's files.
namespace keel {

// A task with its items made ready.
struct AbRunner::Task {
    const AbTask *task = nullptr;
    std::unique_ptr<AbTaskItems> items; // NULL: speed
    size_t documents = 0;               // after --items
    bool one_by_one = true;             // continuation: fed as decode steps, because an arm evicts in them
    std::string last_metric;            // written last of an item: what is there is whole
};

// What a session holds while it is measured: means over the steps that give numbers.
struct AbRunner::Measured {
    // `session`: that of `opened`, or a copy of it.
    Measured(AbArms &arms, Session &session, const AbArms::Opened &opened)
        : arms_(arms), session_(session), peak_(opened.peak_bytes),
          eviction_seconds_(opened.eviction_seconds),
          evictions_before_(&session == opened.session.get() ? 0 : opened.session->cache().evictions()) {}

    void sample() {
        const KvCache &cache = session_.cache().cache();
        const uint64_t bytes = cache.bytes_in_use();
        bytes_ += static_cast<double>(bytes);
        full_ += static_cast<double>(arms_.full_bytes(session_.tokens()));
        kept_ += mean_length(cache);
        peak_ = std::max(peak_, bytes);
        ++samples_;
    }
    void fill(AbItem &item) const {
        const double n = std::max<double>(1, static_cast<double>(samples_));
        item.kv_bytes = static_cast<uint64_t>(bytes_ / n);
        item.full_kv_bytes = static_cast<uint64_t>(full_ / n);
        item.kept_slots = kept_ / n;
        item.peak_kv_bytes = peak_;
        item.seen = static_cast<uint64_t>(session_.tokens());
        item.evictions = evictions_before_ + session_.cache().evictions();
        item.eviction_us = 1e6 * eviction_seconds_;
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
    AbArms &arms_;
    Session &session_;
    double bytes_ = 0, full_ = 0, kept_ = 0;
    uint64_t peak_ = 0, samples_ = 0;
    double eviction_seconds_;
    uint64_t evictions_before_;
};

// Which of a prompt's positions a cache still holds. Nothing where keys were rotated to other positions: those do not tell.
std::optional<AbKeepMap> ab_keep_map(Session &session, int64_t prompt_tokens);

} // namespace keel
