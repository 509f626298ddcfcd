#pragma once

#include "kv/evict/pinned_tokens.hpp"
#include "kv/evict/token_numbers.hpp"
#include "kv/store/kv_cache.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace keel {

class PolicySetup;

// Knows which slots of a sequence are never evicted: the first `prefix` slots, the newest `recent`
// slots, and the slots of pinned tokens. If the log or the policy needs token numbers, this class
// also knows which token is in each slot. Not thread-safe.
class ProtectedTokens {
  public:
    // Makes the state at the start of a sequence under `setup`. `setup` must stay valid.
    explicit ProtectedTokens(const PolicySetup &setup);

    int64_t prefix() const { return prefix_; }
    int64_t recent() const { return recent_; }
    // The number of pinned tokens after the prefix, including tokens that are not in the cache yet.
    int64_t pinned() const { return pins_.count(prefix_); }
    // Number of protected slots of a head.
    int64_t slots() const { return prefix_ + recent_ + pinned(); }
    void set_prefix(int64_t slots) { prefix_ = slots; }

    // Pins the tokens run.from to run.to - 1. Tokens that are not in the cache yet can be pinned
    // too. `seen`: number of tokens so far. `tail`: number of the newest tokens that all heads
    // have. `what`: a name for the pins in messages. Throws Error(usage) if some of the tokens were
    // evicted. Throws Error(input), with the key to change, if the budget has no room for the
    // tokens.
    void pin(TokenRun run, const KvCache &cache, int64_t seen, int64_t tail, std::string_view what);
    // Removes all pins with a token whose number is `from` or larger.
    void unpin(int64_t from) { pins_.truncate(from); }

    // Sets mask[slot] to 1 for each protected slot of a head; the other entries stay.
    void mark(const KvCache &cache, size_t row, uint8_t *mask) const;
    // Returns the number of the token in each slot of a head. The numbers rise.
    std::span<const int32_t> tokens(const KvCache &cache, size_t row) const {
        return numbers_ ? numbers_->row(row) : cache.row_positions(row);
    }

    // Records that the n tokens after the first `seen` tokens get the next slots. `there`: the
    // number of these slots that are already in `cache`.
    void record_append(const KvCache &cache, int64_t seen, int64_t n, int64_t there = 0);
    // Call it before a layer is compacted to the slots in `keep`.
    void record_compact(uint32_t layer, const KeepLists &keep);
    // Call it after the last n tokens were removed. `seen`: the number of tokens that are left.
    void truncate(int64_t seen, int64_t n);
    // Call it when the sequence begins again.
    void reset();

    // Copies the pins of another sequence. This sequence will read the pinned tokens again.
    void pin_like(const ProtectedTokens &other) { pins_ = other.pins_.to_come(); }
    // Used for a fork with the same setup, and for a sequence that moves to another device.
    void copy_from(const ProtectedTokens &other);
    // Used for a fork with another setup. `cache`: the cache of the fork. `seen`: number of tokens
    // so far. `evicted`: true if some of these tokens were evicted.
    void adopt(const ProtectedTokens &other, const KvCache &cache, int64_t seen, bool evicted);

    // Reads a saved prefix and checks it against the config. Does not change this object.
    int64_t load_prefix(StateReader &in) const;
    void save(StateWriter &out) const { pins_.save(out); } // does not write the prefix
    void load(StateReader &in, const KvCache &cache, int64_t seen);
    // Writes and reads the token numbers for a policy that needs KEEL_NEED_REPLAY. Does nothing for
    // other policies.
    void save_numbers(StateWriter &out) const;
    void load_numbers(StateReader &in, const KvCache &cache, int64_t seen);

  private:
    std::vector<int32_t> first_slots(TokenRun run, const KvCache &cache, int64_t seen,
                                     bool in_tail) const;
    bool saves_numbers() const;

    const PolicySetup &setup_;
    int64_t prefix_, recent_;
    PinnedTokens pins_;
    // nullopt: a position is a token's number, or token numbers are not needed
    std::optional<TokenNumbers> numbers_;
};

} // namespace keel
