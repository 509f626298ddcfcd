#include "kv/evict/pinned_tokens.hpp"

#include <algorithm>

namespace keel {
namespace {

constexpr int64_t most_spans = 100'000; // limit for a saved sequence

// Returns the number of tokens that are in any of `runs` and not among the first `prefix` tokens.
int64_t count_union(std::vector<TokenRun> runs, int64_t prefix) {
    std::sort(runs.begin(), runs.end(),
              [](const TokenRun &a, const TokenRun &b) { return a.from < b.from; });
    int64_t count = 0, end = prefix;
    for (const TokenRun &run : runs) {
        count += std::max<int64_t>(0, run.to - std::max<int64_t>(end, run.from));
        end = std::max<int64_t>(end, run.to);
    }
    return count;
}

} // namespace

PinnedTokens::PinnedTokens(size_t rows, std::vector<TokenRun> always)
    : rows_(rows), always_(std::move(always)) {
    clear();
}

int64_t PinnedTokens::count(int64_t prefix) const {
    if (counted_for_ == prefix) return count_;
    std::vector<TokenRun> runs;
    for (const Span &span : spans_) runs.push_back(span.tokens);
    counted_for_ = prefix;
    return count_ = count_union(std::move(runs), prefix);
}

int64_t PinnedTokens::count_with(int64_t prefix, TokenRun added) const {
    std::vector<TokenRun> runs = {added};
    for (const Span &span : spans_) runs.push_back(span.tokens);
    return count_union(std::move(runs), prefix);
}

PinnedTokens PinnedTokens::to_come() const {
    PinnedTokens copy = *this;
    for (Span &span : copy.spans_) span.first.clear();
    return copy;
}

void PinnedTokens::record_append(int64_t seen, int64_t n,
                                 const std::function<int64_t(size_t row)> &length) {
    for (Span &span : spans_) {
        if (!span.first.empty() || span.tokens.from < seen || span.tokens.from >= seen + n)
            continue;
        span.first.resize(rows_);
        for (size_t row = 0; row < rows_; ++row)
            span.first[row] = static_cast<int32_t>(length(row) + span.tokens.from - seen);
    }
}

void PinnedTokens::mark(size_t row, int64_t length, uint8_t *mask) const {
    for (const Span &span : spans_) {
        if (span.first.empty()) continue;
        const int64_t first = span.first[row];
        const int64_t end = std::min<int64_t>(length, first + span.tokens.to - span.tokens.from);
        if (first < end) std::fill(mask + first, mask + end, uint8_t{1});
    }
}

void PinnedTokens::record_compact(size_t row, std::span<const int32_t> keep) {
    for (Span &span : spans_) {
        if (span.first.empty()) continue;
        span.first[row] = static_cast<int32_t>(
            std::lower_bound(keep.begin(), keep.end(), span.first[row]) - keep.begin());
    }
}

void PinnedTokens::truncate(int64_t seen) {
    counted_for_ = -1;
    std::erase_if(spans_, [&](const Span &span) { return !span.always && span.tokens.to > seen; });
    for (Span &span : spans_) {
        if (span.tokens.from >= seen) span.first.clear();
    }
}

void PinnedTokens::clear() {
    counted_for_ = -1;
    spans_.clear();
    for (const TokenRun &run : always_) spans_.push_back({run, true, {}});
}

void PinnedTokens::save(StateWriter &out) const {
    out.put(static_cast<int64_t>(spans_.size()));
    for (const Span &span : spans_) {
        out.put(static_cast<int64_t>(span.tokens.from));
        out.put(static_cast<int64_t>(span.tokens.to));
        out.put(static_cast<uint32_t>(span.always ? 1 : 0));
        out.put(static_cast<uint32_t>(span.first.empty() ? 0 : 1));
        out.put_all<int32_t>(span.first);
    }
}

void PinnedTokens::load(StateReader &in, int64_t seen,
                        const std::function<int64_t(size_t row)> &length) {
    constexpr int64_t most = int64_t{1} << 30;
    spans_.clear();
    counted_for_ = -1;
    const int64_t count = in.get_count("pinned spans", 0, most_spans);
    std::vector<TokenRun> always;
    for (int64_t i = 0; i < count; ++i) {
        Span span;
        span.tokens.from = static_cast<int32_t>(in.get_count("a pinned span", 0, most));
        span.tokens.to =
            static_cast<int32_t>(in.get_count("a pinned span", span.tokens.from + 1, most));
        span.always = in.get<uint32_t>("a pinned span") != 0;
        const bool is_there = in.get<uint32_t>("a pinned span") != 0;
        if (is_there != (span.tokens.from < seen))
            in.fail("a pinned span: the file contradicts the cache on whether the span was read; "
                    "the file is damaged");
        if (is_there) in.get_all<int32_t>(span.first, rows_, "a pinned span");
        for (size_t row = 0; row < span.first.size(); ++row) {
            const int64_t tokens = std::min<int64_t>(seen, span.tokens.to) - span.tokens.from;
            if (span.first[row] < 0 || span.first[row] + tokens > length(row))
                in.fail(
                    "a pinned span names slots that the cache does not have; the file is damaged");
        }
        if (span.always) always.push_back(span.tokens);
        spans_.push_back(std::move(span));
    }
    if (always != always_)
        in.fail("the session was saved with other pinned spans than those of this pipeline; set "
                "policy.protect.spans to the value of the saved session");
}

} // namespace keel
