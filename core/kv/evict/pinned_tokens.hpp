#pragma once

#include "kv/evict/eviction_log.hpp"
#include "kv/store/state_io.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace keel {

// Spans of tokens that are never evicted. A span goes by the tokens' numbers since the start; where
// it lies is known per head: since all of it stays, its slots lie side by side, and an eviction
// moves only the first. So positions may be rotated meanwhile. Not thread-safe.
class PinnedTokens {
  public:
    PinnedTokens() = default; // none
    // `rows`: heads of all layers. `always`: spans of every sequence.
    PinnedTokens(size_t rows, std::vector<TokenRun> always);

    bool empty() const { return spans_.empty(); }
    // Pins tokens to come.
    void add(TokenRun span) { add(span, {}); }
    // Pins tokens that are there: first_slots [rows] is where the span begins.
    void add(TokenRun span, std::vector<int32_t> first_slots) {
        spans_.push_back({span, false, std::move(first_slots)});
        counted_for_ = -1;
    }
    // How many tokens are pinned behind the first `prefix`, those to come included.
    int64_t count(int64_t prefix) const;
    // The same, with one more span.
    int64_t count_with(int64_t prefix, TokenRun span) const;

    // Before tokens seen..seen + n - 1 take the next slots: length(row) is what a head holds.
    void record_append(int64_t seen, int64_t n, const std::function<int64_t(size_t row)> &length);
    // Sets mask[slot] to 1 for what is pinned of a head of `length` slots.
    void mark(size_t row, int64_t length, uint8_t *mask) const;
    // Only the slots of `keep`, rising, are left of a head.
    void record_compact(size_t row, std::span<const int32_t> keep);
    // Tokens from number `seen` on were taken back. Removes spans that reach beyond it, except for
    // those that every sequence has.
    void truncate(int64_t seen);
    void clear(); // except for those that every sequence has: their tokens come again
    PinnedTokens
    to_come() const; // the same spans, of a sequence that is read anew from its first token

    void save(StateWriter &out) const;
    void load(StateReader &in, int64_t seen, const std::function<int64_t(size_t row)> &length);

  private:
    struct Span {
        TokenRun tokens;
        bool always = false;
        std::vector<int32_t> first; // [rows]; empty: still to come
    };
    size_t rows_ = 0;
    std::vector<TokenRun> always_;
    std::vector<Span> spans_;
    mutable int64_t counted_for_ = -1, count_ = 0; // the last answer of count(): each step asks
};

} // namespace keel
