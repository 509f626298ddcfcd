#pragma once

#include "kv/evict/eviction_log.hpp"
#include "kv/store/state_io.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace keel {

// Spans of tokens that are never evicted. A span is given by the tokens' numbers since the start.
// For each head the class knows the slot of the span's first token. The other slots follow it
// without gaps, because all tokens of a span stay. So the class needs no positions, and keys may be
// rotated. Not thread-safe.
class PinnedTokens {
  public:
    PinnedTokens() = default; // none
    // `rows`: heads of all layers. `always`: spans of every sequence.
    PinnedTokens(size_t rows, std::vector<TokenRun> always);

    bool empty() const { return spans_.empty(); }
    // Pins tokens to come.
    void add(TokenRun span) { add(span, {}); }
    // Pins tokens that are in the cache. first_slots [rows]: the slot of the span's first token.
    void add(TokenRun span, std::vector<int32_t> first_slots) {
        spans_.push_back({span, false, std::move(first_slots)});
        counted_for_ = -1;
    }
    // The number of pinned tokens after the first `prefix` tokens, including tokens that are still
    // to come.
    int64_t count(int64_t prefix) const;
    // The same, with one more span.
    int64_t count_with(int64_t prefix, TokenRun span) const;

    // Call it before the tokens seen..seen + n - 1 take the next slots. length(row): slots in use
    // of a head.
    void record_append(int64_t seen, int64_t n, const std::function<int64_t(size_t row)> &length);
    // Sets mask[slot] to 1 for each pinned slot of a head. `length`: slots in use.
    void mark(size_t row, int64_t length, uint8_t *mask) const;
    // A head was compacted to the slots of `keep`, which rise.
    void record_compact(size_t row, std::span<const int32_t> keep);
    // The tokens from number `seen` on were removed. Removes the spans that reach beyond `seen`,
    // except for the spans that every sequence has.
    void truncate(int64_t seen);
    // The sequence begins again. Only the spans that every sequence has stay; their tokens are to
    // come.
    void clear();
    // The same spans for a sequence whose tokens will be read again from the first one.
    PinnedTokens to_come() const;

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
    // Argument and result of the last count(), because each step calls it. -1: none.
    mutable int64_t counted_for_ = -1, count_ = 0;
};

} // namespace keel
