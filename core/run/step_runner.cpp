#include "run/step_runner.hpp"

#include "device/trace.hpp"

namespace keel {

void StepRunner::step(Sequence &sequence, std::span<const int32_t> ids, StepKind kind,
                      uint32_t logit_rows) {
    Stream &stream = sequence.cache.first_engine().executor->stream();
    const TraceSpan span(stream.trace(), kind == StepKind::decode ? "decode" : "prefill", "step");
    sequence.take_in(ids, kind, logit_rows);
    run(sequence.step);
}

void StepRunner::run(const SequenceRows &rows) {
    const SequenceRows *list = &rows;
    run({&list, 1});
}

void StepRunner::run(std::span<const SequenceRows *const> rows, LayerBatchView *view) {
    const size_t stages = rows.front()->stages.size();
    for (size_t s = 0; s < stages; ++s) {
        Graph &graph = *rows.front()->stages[s].engine->graph;
        const bool is_last = s + 1 == stages;
        segments_.clear();
        caches_.clear();
        for (const SequenceRows *r : rows) {
            const StageStep &stage = r->stages[s];
            if (view != nullptr)
                stage.caches->refresh(); // the arenas can have grown for another sequence
            caches_.push_back(stage.caches);
            Segment segment{.positions = r->positions,
                            .kv = stage.caches->views(),
                            .logit_rows = is_last ? r->logit_rows : 0,
                            .tap = stage.tap,
                            .tap_ops = stage.tap_ops};
            if (s == 0) segment.ids = r->ids;
            segments_.push_back(segment);
        }
        if (s > 0) share_residual();
        graph.forward(segments_, view != nullptr ? together(*view) : CachesTogether{});
        if (!is_last) graph.read_residual(residual_);
    }
}

CachesTogether StepRunner::together(LayerBatchView &view) const {
    const size_t n = plain_decodes(segments_);
    if (n < 2) return {};
    return {view.of(std::span(caches_).first(n)), n};
}

// Gives each segment its rows of the residual stream from the previous engine.
void StepRunner::share_residual() {
    size_t tokens = 0;
    for (const Segment &segment : segments_) tokens += segment.tokens();
    const size_t hidden = residual_.size() / tokens;
    std::span<const float> left = residual_;
    for (Segment &segment : segments_) {
        segment.residual = left.first(segment.tokens() * hidden);
        left = left.subspan(segment.residual.size());
    }
}

} // namespace keel
