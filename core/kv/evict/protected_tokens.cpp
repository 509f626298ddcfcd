#include "kv/evict/protected_tokens.hpp"

#include "base/error.hpp"
#include "kv/evict/check_policy.hpp"
#include "kv/evict/policy_setup.hpp"

#include <algorithm>

namespace keel {

ProtectedTokens::ProtectedTokens(const PolicySetup &setup)
    : setup_(setup), prefix_(setup.config().protect_prefix),
      recent_(setup.config().protect_recent) {
    if (setup.keeps_all()) return;
    const CacheConfig &config = setup.config();
    const size_t rows = size_t{setup.shape().layers} * setup.shape().kv_heads;
    pins_ = PinnedTokens(rows, config.pinned);
    const bool is_logged = setup.log() != nullptr && config.log_positions;
    // to repeat the context, the core must know which token is in each slot, so it needs token
    // numbers
    const bool is_repeated = setup.needs(KEEL_NEED_REPLAY);
    if ((is_logged || is_repeated) && setup.may_move_keys()) numbers_.emplace(rows);
}

void ProtectedTokens::pin(TokenRun run, const KvCache &cache, int64_t seen, int64_t tail,
                          std::string_view what) {
    check_pins(setup_.config(), setup_.budget(), seen, prefix_, pins_.count_with(prefix_, run),
               what);
    if (run.from >= seen) {
        pins_.add(run);
    } else {
        pins_.add(run, first_slots(run, cache, seen, run.from >= seen - tail));
    }
}

// Returns the slot of the first token of `run` in each head. Throws Error(usage) if a head does not
// have all tokens of `run`.
std::vector<int32_t> ProtectedTokens::first_slots(TokenRun run, const KvCache &cache, int64_t seen,
                                                  bool in_tail) const {
    std::vector<int32_t> first;
    for (size_t row = 0; row < cache.rows(); ++row) {
        const int64_t length = cache.row_length(row);
        int64_t slot = length - (seen - run.from);
        // Each head has all tokens of the tail, so their slots are counted from the end. The slot
        // of an earlier token is found by its position. This works only if no eviction rotates keys
        // to new positions (may_move_keys). Then a key's position is its token's number.
        if (!in_tail) {
            const auto positions = cache.row_positions(row);
            const auto at = std::lower_bound(positions.begin(), positions.end(), run.from);
            slot = at - positions.begin();
            const int64_t count = std::min<int64_t>(run.to, seen) - run.from;
            const auto position = [&](int64_t i) { return positions[static_cast<size_t>(i)]; };
            const bool is_whole = !setup_.may_move_keys() && slot + count <= length &&
                                  position(slot) == run.from &&
                                  position(slot + count - 1) == run.from + count - 1;
            if (!is_whole) {
                throw_error(ErrorKind::usage,
                            "it is too late to pin tokens {} to {}, because some of these tokens "
                            "were evicted; pin the tokens earlier, or raise the budget",
                            run.from, run.to - 1);
            }
        }
        first.push_back(static_cast<int32_t>(slot));
    }
    return first;
}

void ProtectedTokens::mark(const KvCache &cache, size_t row, uint8_t *mask) const {
    const int64_t length = cache.row_length(row);
    std::fill(mask, mask + std::min(length, prefix_), uint8_t{1});
    std::fill(mask + std::max<int64_t>(0, length - recent_), mask + length, uint8_t{1});
    pins_.mark(row, length, mask);
}

void ProtectedTokens::record_append(const KvCache &cache, int64_t seen, int64_t n, int64_t there) {
    if (!pins_.empty()) {
        pins_.record_append(seen, n, [&](size_t row) { return cache.row_length(row) - there; });
    }
    if (numbers_) numbers_->append(seen, n);
}

void ProtectedTokens::record_compact(uint32_t layer, const KeepLists &keep) {
    const size_t first = size_t{layer} * setup_.shape().kv_heads;
    for (size_t h = 0; h < keep.size(); ++h) {
        pins_.record_compact(first + h, keep[h]);
        if (numbers_) numbers_->record_compact(first + h, keep[h]);
    }
}

void ProtectedTokens::truncate(int64_t seen, int64_t n) {
    pins_.truncate(seen);
    if (numbers_) numbers_->truncate(n);
}

void ProtectedTokens::reset() {
    prefix_ = setup_.config().protect_prefix;
    pins_.clear();
    if (numbers_) numbers_->clear();
}

void ProtectedTokens::copy_from(const ProtectedTokens &other) {
    prefix_ = other.prefix_;
    pins_ = other.pins_;
    numbers_ = other.numbers_;
}

void ProtectedTokens::adopt(const ProtectedTokens &other, const KvCache &cache, int64_t seen,
                            bool evicted) {
    if (!evicted) {
        pins_.record_append(0, seen, [](size_t) { return int64_t{0}; });
        if (numbers_) numbers_->append(0, seen);
        return;
    }
    for (size_t row = 0; numbers_ && row < cache.rows(); ++row)
        numbers_->set(row, other.tokens(cache, row));
}

int64_t ProtectedTokens::load_prefix(StateReader &in) const {
    const CacheConfig &config = setup_.config();
    const int64_t least = config.protect_prefix;
    const int64_t prefix = in.get_count("protected tokens", 0, setup_.shape().max_slots);
    if (setup_.keeps_all()) return least;
    if (prefix != least && !config.protect_system_prompt) {
        in.fail("the session was saved with {} protected tokens at the front, but this pipeline "
                "protects {} (policy.protect.prefix)",
                prefix, least);
    }
    check_prefix(config, setup_.budget(), std::max(prefix, least), "a saved prefix");
    return prefix;
}

void ProtectedTokens::load(StateReader &in, const KvCache &cache, int64_t seen) {
    pins_.load(in, seen, [&](size_t row) { return cache.row_length(row); });
    // Saved sessions do not store token numbers. If keys were rotated to new positions, these
    // values are positions, not token numbers.
    for (size_t row = 0; numbers_ && row < cache.rows(); ++row)
        numbers_->set(row, cache.row_positions(row));
}

bool ProtectedTokens::saves_numbers() const { return numbers_ && setup_.needs(KEEL_NEED_REPLAY); }

void ProtectedTokens::save_numbers(StateWriter &out) const {
    for (size_t row = 0; saves_numbers() && row < numbers_->rows(); ++row)
        out.put_all<int32_t>(numbers_->row(row));
}

void ProtectedTokens::load_numbers(StateReader &in, const KvCache &cache, int64_t seen) {
    std::vector<int32_t> numbers;
    for (size_t row = 0; saves_numbers() && row < cache.rows(); ++row) {
        in.get_all<int32_t>(numbers, static_cast<uint64_t>(cache.row_length(row)),
                            "tokens in slots");
        int64_t last = -1;
        for (const int32_t number : numbers) {
            if (number <= last || number >= seen)
                in.fail("tokens in slots: expected rising numbers below {}, found {} after {}",
                        seen, number, last);
            last = number;
        }
        numbers_->set(row, numbers);
    }
}

} // namespace keel
