#include "kv/inputs/context_repeat.hpp"

#include "base/error.hpp"
#include "device/device.hpp"
#include "kv/inputs/range_scores.hpp"

#include <algorithm>
#include <numeric>

namespace keel {

ContextRepeat::ContextRepeat(PolicySetup &setup, KvCache &cache, SequenceForward &forward,
                             Numbers numbers, const Tensor &out, keel_buffer_kind placement)
    : setup_(setup), cache_(cache), forward_(forward), numbers_(std::move(numbers)), out_(out),
      placement_(placement), ranges_(Tensor::allocate(setup.executor().device(), KEEL_DTYPE_I32,
                                                      {InputOps::most_ranges, 2}, placement)) {}

int64_t ContextRepeat::room(const PolicySetup &setup, const SequenceForward &forward,
                            int64_t tokens) {
    const keel_policy_needs &n = setup.needs();
    const int64_t opening = std::ssize(forward.opening()),
                  first = opening + std::ssize(forward.instruction(false)),
                  next = opening + std::ssize(forward.instruction(true));
    const int64_t piece = std::min<int64_t>(n.replay_chunk, tokens);
    return std::max(first, tokens > n.replay_chunk ? next + n.replay_lead : 0) + piece;
}

bool ContextRepeat::run(int64_t seen) {
    const auto total = std::ssize(forward_.tokens());
    for (int64_t begin = forward_.skipped(); begin < total; begin += setup_.needs().replay_chunk) {
        if (!run_piece(begin, std::min<int64_t>(total, begin + setup_.needs().replay_chunk), seen))
            return false;
    }
    return true;
}

bool ContextRepeat::run_piece(int64_t begin, int64_t end, int64_t seen) {
    const auto tokens = forward_.tokens();
    const int64_t before = begin - forward_.skipped(); // repeated tokens before this piece
    const auto instruction = forward_.instruction(before > 0), opening = forward_.opening();
    const int64_t lead = std::min<int64_t>(before, setup_.needs().replay_lead);
    ids_.assign(instruction.begin(), instruction.end());
    ids_.insert(ids_.end(), tokens.begin() + (begin - lead), tokens.begin() + begin);
    ids_.insert(ids_.end(), opening.begin(), opening.end());
    ids_.insert(ids_.end(), tokens.begin() + begin, tokens.begin() + end);
    begin_ = begin;
    end_ = end;
    appended_ = 0;
    const int64_t step = step_tokens(setup_.executor(), setup_.shape());
    try {
        for (int64_t done = 0; done < std::ssize(ids_) && !setup_.host()->cancelled();
             done += step) {
            const int64_t n = std::min(step, std::ssize(ids_) - done);
            positions_.resize(static_cast<size_t>(n));
            std::iota(positions_.begin(), positions_.end(), static_cast<int32_t>(seen + done));
            cache_.append(positions_, n);
            appended_ += n;
            peak_bytes_ = std::max(peak_bytes_, cache_.bytes_in_use());
            forward_.forward(
                std::span(ids_).subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
                positions_, *this);
        }
    } catch (...) {
        cache_.truncate(appended_);
        throw;
    }
    cache_.truncate(appended_);
    return appended_ == std::ssize(ids_);
}

void ContextRepeat::after_attention(uint32_t layer, const Tensor &q) {
    RangeScores job(setup_, cache_, layer, ranges_);
    job.q = q;
    job.out = out_.rows(int64_t{layer} * setup_.shape().kv_heads, setup_.shape().kv_heads);
    job.queries = job.group = KEEL_REDUCE_MAX;
    job.features = KEEL_SCORES_CAUSAL;
    if (setup_.logit_rules().window > 0)
        job.q_positions = query_positions_.write(setup_.executor(), placement_, positions_.front(),
                                                 std::ssize(positions_));
    job.run([&](uint32_t head) {
        const auto numbers = numbers_(layer, head);
        const int64_t length = cache_.length(layer, head), frozen = length - appended_;
        const auto all_end = numbers.begin() + frozen;
        const int64_t from = std::lower_bound(numbers.begin(), all_end, begin_) - numbers.begin();
        const int64_t to = std::lower_bound(numbers.begin(), all_end, end_) - numbers.begin();
        const int64_t sinks = std::min<int64_t>(setup_.needs().replay_sinks, from);
        return RangeScores::Ranges{{0, sinks}, {from, to}, {frozen, length}};
    });
}

} // namespace keel
