#include "graph/graph.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>
#include <optional>

namespace keel {
namespace {

int64_t logit_rows(const ModelWeights &weights, const GraphOptions &options) {
    return weights.has_output() ? std::max(options.max_logit_rows, options.batch) : 0;
}

} // namespace

Graph::Graph(Executor &executor, ModelWeights &weights, const GraphOptions &options)
    : executor_(executor), decoder_(weights, options.rope_rows, options.context), options_(options),
      // The workspace gets only shapes now, because the best place for its memory is known after
      // all ops are planned.
      workspace_(weights.config(), executor.device().info().activation_dtype, step_tokens(options),
                 logit_rows(weights, options)),
      decode_(executor, decoder_, workspace_, StepForm::decode, {1, 1}, options.kv),
      attention_(executor, decoder_, workspace_, decode_, prefill_),
      next_(executor, weights.config(), workspace_, options.batch) {
    const uint32_t m = max_step_tokens(), n = options_.batch;
    if (m > 1) {
        prefill_ = StepProgram(executor_, decoder_, workspace_, StepForm::prefill,
                               {m, std::max(options_.max_logit_rows, n)}, options_.kv);
    }
    if (n > 1) {
        batch_ = StepProgram(executor_, decoder_, workspace_, StepForm::batch, {n, n}, options_.kv);
        if (options_.batch_kv != nullptr) attention_.settle_together(n, *options_.batch_kv);
    }
    taps_ = plan_taps(options_.taps, options_.untapped);
    workspace_.allocate(executor_.device(), executor_.placement());
    decoder_.ropes().place(executor_.device(), executor_.placement());
}

std::unique_ptr<TapOps> Graph::plan_taps(const TapForms &forms, const std::vector<bool> &untapped) {
    return std::make_unique<TapOps>(executor_, decoder_, forms, options_.max_tokens, options_.kv,
                                    untapped);
}

const StepProgram &Graph::program(StepForm form) const {
    return form == StepForm::decode ? decode_ : form == StepForm::prefill ? prefill_ : batch_;
}

StepForm Graph::form_of(std::span<const Segment> segments) const {
    if (tokens_ == 1) return StepForm::decode;
    const bool is_batch = tokens_ == segments.size() && tokens_ <= options_.batch;
    return is_batch ? StepForm::batch : StepForm::prefill;
}

// Counts the tokens of a step, and lists the rows that get logits.
void Graph::gather(std::span<const Segment> segments) {
    tokens_ = 0;
    logit_rows_.clear();
    for (const Segment &s : segments) {
        const uint32_t m = s.tokens();
        if (m == 0 || s.logit_rows > m || (!s.ids.empty() && s.ids.size() != m)) {
            throw_error(ErrorKind::internal,
                        "expected one position for each token, and at most one row of logits for "
                        "each token; found {} positions, {} tokens and {} rows of logits",
                        m, s.ids.size(), s.logit_rows);
        }
        tokens_ += m;
        const RowRange rows{tokens_ - s.logit_rows, s.logit_rows};
        if (rows.count == 0) continue;
        if (!logit_rows_.empty() &&
            logit_rows_.back().first + logit_rows_.back().count == rows.first) {
            logit_rows_.back().count += rows.count;
        } else {
            logit_rows_.push_back(rows);
        }
    }
}

void Graph::forward(std::span<const Segment> segments, const CachesTogether &together) {
    gather(segments);
    const StepForm form = form_of(segments);
    const StepProgram::Limits &limits = program(form).limits();
    uint32_t rows = 0;
    for (const RowRange &range : logit_rows_) rows += range.count;
    const uint32_t most = decoder_.has_output() ? limits.logit_rows : 0;
    if (tokens_ == 0 || tokens_ > limits.tokens || rows > most) {
        throw_error(ErrorKind::internal,
                    "a step has {} tokens and {} rows of logits; the graph was planned for at most "
                    "{} tokens and {} rows",
                    tokens_, rows, limits.tokens, most);
    }
    next_.note_overwritten();
    write_input(segments);
    Segment lasting = segments.front();
    if (tokens_ == 1 && executor_.can_record()) {
        // This view is also used for steps that are not recorded. Attention splits its work
        // according to max_length. With the same max_length, recorded steps and other steps give
        // bit-identical sums.
        lasting.kv = lasting_views_.of(lasting.kv);
        segments = {&lasting, 1};
    }
    attention_.begin(segments, together);
    std::optional<Executor::Step> step; // a step that repeats can be recorded
    const bool is_usual = segments.front().tap == nullptr || segments.front().tap->is_usual();
    if (tokens_ == 1 && is_usual) step.emplace(executor_, decode_.size());
    program(form).run(executor_, decoder_, workspace_, tokens_, logit_rows_,
                      [&](size_t layer) { attention_.run(layer); });
    if (step) step->end();
}

void Graph::project(uint32_t first, uint32_t count) {
    if (count == 0 || count > most_projected_rows() || first + count > tokens_) {
        throw_error(ErrorKind::internal,
                    "rows {} to {} of the last step cannot get logits: the step has {} rows, and "
                    "the graph was planned for {} rows of logits",
                    first, first + count, tokens_, most_projected_rows());
    }
    next_.note_overwritten();
    prefill_.run_output(executor_, decoder_, workspace_, {first, count});
}

// Writes the positions, and also the token ids or the hidden states from the layers on another
// device.
void Graph::write_input(std::span<const Segment> segments) {
    const Segment &first = segments.front();
    const auto write = [&](const Tensor &rows, std::span<const int32_t> Segment::*values) {
        if (segments.size() == 1) return rows.write((first.*values).data());
        scratch_.clear();
        for (const Segment &s : segments)
            scratch_.insert(scratch_.end(), (s.*values).begin(), (s.*values).end());
        if (scratch_.size() != tokens_)
            throw_error(ErrorKind::internal,
                        "expected one value for each token, found {} values for {} tokens",
                        scratch_.size(), tokens_);
        rows.write(scratch_.data());
    };
    write(workspace_.positions.rows(0, tokens_), &Segment::positions);
    if (decoder_.has_embedding()) {
        if (!first.ids.empty()) write(workspace_.ids.rows(0, tokens_), &Segment::ids);
        return;
    }
    uint32_t row = 0;
    for (const Segment &s : segments) {
        const auto hidden = static_cast<size_t>(decoder_.config().hidden_size);
        if (s.residual.size() != s.tokens() * hidden)
            throw_error(ErrorKind::internal,
                        "expected one row of the residual stream for each token, found {} values "
                        "for {} tokens",
                        s.residual.size(), s.tokens());
        workspace_.x.rows(row, s.tokens()).write(s.residual.data());
        row += s.tokens();
    }
}

void Graph::read_residual(std::vector<float> &out) const {
    out.resize(size_t{tokens_} * static_cast<size_t>(decoder_.config().hidden_size));
    workspace_.x.rows(0, tokens_).read(out.data());
}

std::vector<const PlannedOp *> Graph::ops(StepForm form) const {
    std::vector<const PlannedOp *> all = program(form).list();
    if (form == StepForm::decode && next_.argmax() != nullptr) all.push_back(next_.argmax());
    if (form == StepForm::batch && next_.batch_argmax() != nullptr)
        all.push_back(next_.batch_argmax());
    return all;
}

std::string Graph::why_not_recorded() const {
    const std::vector<const PlannedOp *> all = ops(StepForm::decode);
    const auto elsewhere = std::find_if(all.begin(), all.end(), [](const PlannedOp *op) {
        return op->rung() == Rung::fallback || op->rung() == Rung::reference;
    });
    if (executor_.can_record() && elsewhere != all.end())
        return fmt::format("{} does not run on the backend itself", (*elsewhere)->label());
    return executor_.why_not_recorded(decode_.size());
}

} // namespace keel
