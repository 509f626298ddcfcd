#include "graph/segment_attention.hpp"

#include "graph/tap_ops.hpp"

#include <algorithm>

namespace keel {
namespace {

// Runs the ops of a segment's attention. A tap (StepTap) collects by-products of these ops for a
// policy. For each plain op, TapOps can have an op that also writes by-products. If the tap needs
// these by-products, this op runs instead of the plain op.
struct TapHand {
    Executor &executor;
    std::span<const OpHandle> plain;
    const TapOps *tap_ops; // NULL: all ops are plain
    StepForm form;
    size_t layer;
    const StepTap::Places &places;
    size_t next = 0;

    template <typename Args>
    void operator()(const OpTag &tag, keel_op, const Args &args, Weight * = nullptr) {
        PlannedOp *op = plain[next++].get();
        PlannedOp *tapped = is_changed(tag.role) ? tap_ops->find(form, layer, tag.role) : nullptr;
        executor.run(tapped != nullptr ? *tapped : *op, args);
    }
    void again() { --next; }
    // Returns true if the op must write more than the plain op.
    bool is_changed(Role role) const {
        if (tap_ops == nullptr) return false;
        if (places.queries != nullptr) return true;
        return role == Role::attention ? places.scores != nullptr : places.unrotated != nullptr;
    }
};

} // namespace

size_t plain_decodes(std::span<const Segment> segments) {
    const auto end = std::find_if(segments.begin(), segments.end(), [](const Segment &segment) {
        return segment.tokens() != 1 || segment.tap != nullptr;
    });
    return static_cast<size_t>(end - segments.begin());
}

// Also plans a call for the layers with a window, because the backend can accept one kind of layer
// and refuse the other.
void SegmentAttention::settle_together(uint32_t sequences, const keel_batch_kv &kv) {
    if (decoder_.config().query_scale_beta != 0) return; // the call has one scale for all sequences
    for (size_t i = 0; i < decoder_.layers(); ++i) {
        const bool is_first = i == 0 || (decoder_.window(i) > 0) != (decoder_.window(i - 1) > 0);
        if (!is_first) continue;
        const AttentionCall call(decoder_, i, workspace_.qkv.rows(0, sequences),
                                 workspace_.attention.rows(0, sequences),
                                 workspace_.positions.rows(0, sequences), nullptr);
        batched_ = BatchedDecode::settle(executor_, call.prepare, call.attention, kv);
        if (!batched_) return;
    }
}

void SegmentAttention::begin(std::span<const Segment> segments, const CachesTogether &together) {
    segments_ = segments;
    has_rotations_ = ensure_rotations();
    const bool can =
        batched_ && has_rotations_ && together.sequences > 1 && !together.views.empty();
    together_ = can ? together : CachesTogether{};
}

// Writes the rows of the RoPE tables for all segments. Returns false if positions of two sequences
// need the same row of the tables. Then the rows of each segment are written before its attention.
bool SegmentAttention::ensure_rotations() {
    LayerRopes &ropes = decoder_.ropes();
    if (segments_.size() == 1) {
        ropes.ensure(segments_.front().positions);
        return true;
    }
    positions_.clear();
    for (const Segment &segment : segments_)
        positions_.insert(positions_.end(), segment.positions.begin(), segment.positions.end());
    if (ropes.collide(positions_)) return false;
    ropes.ensure(positions_);
    return true;
}

void SegmentAttention::run(size_t layer) {
    if (together_.sequences > 0) attend_together(layer);
    auto row = static_cast<uint32_t>(together_.sequences);
    for (const Segment &segment : segments_.subspan(together_.sequences)) {
        if (!has_rotations_) decoder_.ropes().ensure(segment.positions);
        attend(layer, segment, row);
        row += segment.tokens();
    }
}

void SegmentAttention::attend_together(size_t layer) {
    const auto n = static_cast<uint32_t>(together_.sequences);
    const keel_batch_kv &kv = *together_.views[layer];
    const AttentionCall call(decoder_, layer, workspace_.qkv.rows(0, n),
                             workspace_.attention.rows(0, n), workspace_.positions.rows(0, n),
                             nullptr);
    batched_->qkv_prepare(call.prepare, kv);
    batched_->attention(call.attention, kv);
}

void SegmentAttention::attend(size_t layer, const Segment &segment, uint32_t row) {
    const uint32_t m = segment.tokens();
    AttentionCall call(decoder_, layer, workspace_.qkv.rows(row, m),
                       workspace_.attention.rows(row, m), workspace_.positions.rows(row, m),
                       segment.kv[layer]);
    const auto number = static_cast<uint32_t>(layer);
    const StepTap::Places places =
        segment.tap != nullptr ? segment.tap->places(number) : StepTap::Places{};
    call.host_at = segment.positions;
    call.add(places);
    const bool is_decode = m == 1;
    TapHand hand{executor_,
                 (is_decode ? decode_ : prefill_).attention(layer),
                 segment.tap != nullptr ? segment.tap_ops : nullptr,
                 is_decode ? StepForm::decode : StepForm::prefill,
                 layer,
                 places};
    walk_attention(decoder_, layer, call, hand);
    if (segment.tap == nullptr) return;
    segment.tap->after_attention(number, places.queries != nullptr ? *places.queries : call.q);
}

} // namespace keel
