#pragma once

#include "kv/evict/eviction_log.hpp"
#include "kv/store/state_io.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace keel {

// Spans of tokens that are never evicted. A span has a range of token numbers, which count from the
// start of the sequence. For each head the class knows the slot of the span's first token. The
// other slots follow it without gaps, because all tokens of a span stay. So the class needs no
// positions, and keys can be rotated. Not thread-safe.
class PinnedTokens {
  public:
    PinnedTokens() = default; // no spans
    // `rows`: the number of heads of all layers. `always`: spans that every sequence has.
    PinnedTokens(size_t rows, std::vector<TokenRun> always);

    bool empty() const { return spans_.empty(); }
    // Pins tokens that are not in the cache yet.
    void add(TokenRun span) { add(span, {}); }
    // Pins tokens that are in the cache. first_slots [rows]: for each head, the slot of the span's
    // first token.
    void add(TokenRun span, std::vector<int32_t> first_slots) {
        spans_.push_back({span, false, std::move(first_slots)});
        counted_for_ = -1;
    }
    // The number of pinned tokens after the first `prefix` tokens, including tokens that are still
    // to come.
    int64_t count(int64_t prefix) const;
    // Returns count(prefix) for these spans and one more span.
    int64_t count_with(int64_t prefix, TokenRun span) const;

    // Call it before the tokens seen..seen + n - 1 get the next slots. length(row) returns the
    // number of slots in use of a head.
    void record_append(int64_t seen, int64_t n, const std::function<int64_t(size_t row)> &length);
    // Sets mask[slot] to 1 for each pinned slot of a head. `length`: slots in use.
    void mark(size_t row, int64_t length, uint8_t *mask) const;
    // Call it after a head was compacted to the slots in `keep`. The slots must be strictly rising.
    void record_compact(size_t row, std::span<const int32_t> keep);
    // Call it after the tokens from number `seen` on were removed. Removes the spans that reach
    // beyond `seen`, except for the spans that every sequence has.
    void truncate(int64_t seen);
    // Call it when the sequence is emptied. Only the spans that every sequence has are left.
    void clear();
    // Returns the spans of this object for a new sequence that will read all tokens again.
    PinnedTokens to_come() const;

    void save(StateWriter &out) const;
    void load(StateReader &in, int64_t seen, const std::function<int64_t(size_t row)> &length);

  private:
    struct Span {
        TokenRun tokens;
        bool always = false;
        std::vector<int32_t> first; // [rows]; empty: the tokens are not in the cache yet
    };
    size_t rows_ = 0;
    std::vector<TokenRun> always_;
    std::vector<Span> spans_;
    // Argument and result of the last count(). They are stored, because each step calls count().
    // -1: none.
    mutable int64_t counted_for_ = -1, count_ = 0;
};

} // namespace keel
