#include "run/step_results.hpp"

namespace keel {

void StepResults::begin(Engine &holder, uint32_t rows) {
    holder_ = &holder;
    rows_ = rows;
    first_row_ = 0;
    has_logits_ = false;
    next_token_.reset();
    pending_read_.drop();
    is_overwritten_ = false;
}

void StepResults::forget() {
    rows_ = 0;
    logits_.clear();
    has_logits_ = true;
    forget_on_device();
}

void StepResults::forget_on_device() {
    pending_read_.drop();
    is_overwritten_ = false;
}

void StepResults::copy_logits(const StepResults &other) {
    holder_ = other.holder_;
    rows_ = other.rows_;
    logits_ = other.logits_;
    has_logits_ = true;
}

std::span<const float> StepResults::read_logits(size_t vocabulary) {
    logits_.resize(rows_ * vocabulary);
    if (rows_ > 0) holder_->graph->next().read_logits(rows_, logits_.data(), first_row_);
    has_logits_ = true;
    return logits_;
}

void StepResults::put_logits(std::span<const float> logits) {
    logits_.assign(logits.begin(), logits.end());
    has_logits_ = true;
}

void StepResults::begin_repeat(Engine &holder) {
    pending_read_.drop();
    holder_ = &holder;
}

void StepResults::give_up_overwritten() {
    if (is_overwritten_ && !has_logits_) forget();
}

} // namespace keel
