#include "ops/step_recorder.hpp"

#include "base/log.hpp"
#include "ops/executor.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace keel {
namespace {

// one sequence needs one recording; if sequences take turns, each needs its own
constexpr size_t most_kept = 4;
constexpr uint32_t patience = 4,
                   longest_skip = 256; // patience: unused recordings; longest_skip: steps

} // namespace

std::unique_ptr<StepRecorder> StepRecorder::make(Device &device) {
    const void *theirs = device.extension(KEEL_EXT_REPLAY);
    if (theirs == nullptr) return nullptr;
    keel_replay table;
    if (keel_adopt(&table, sizeof table, theirs, KEEL_PREFIX(keel_replay, destroy)) != KEEL_OK) {
        log().warn("backend {}: the plugin's {} table is too small or has another ABI major "
                   "version; Keel records no steps",
                   device.plugin(), KEEL_EXT_REPLAY);
        return nullptr;
    }
    return std::unique_ptr<StepRecorder>(new StepRecorder(device, table));
}

StepRecorder::StepRecorder(Device &device, const keel_replay &table)
    : device_(device), table_(table), how_(table.how != nullptr ? table.how : "") {
    device_.add_watch(this);
}

StepRecorder::~StepRecorder() {
    abandon();
    device_.remove_watch(this);
    for (const auto &recording : kept_) destroy(*recording);
}

void StepRecorder::destroy(Recording &recording) noexcept {
    if (recording.handle != nullptr) table_.destroy(device_.ctx(), recording.handle);
    recording.handle = nullptr;
}

uint64_t StepRecorder::recorded() const { return recorded_; }

void StepRecorder::begin() {
    ++step_;
    labels_.clear();
    fresh_.clear();
    failure_ = nullptr;
    current_ = nullptr;
    if (skip_ > 0) {
        --skip_;
        state_ = State::ordinary;
        return;
    }
    state_ = State::comparing;
    for (const auto &recording : kept_) {
        if (current_ == nullptr || recording->used > current_->used) current_ = recording.get();
    }
    device_.stream().set_held_back(this);
}

bool StepRecorder::fits_current() const {
    const size_t at = labels_.size();
    return current_ != nullptr && at < current_->ops.size() && current_->ops[at]->bytes == bytes_;
}

// The step has been equal to a recording so far, but differs from it in the current op. Looks for
// another recording that begins with the ops of this step, including the current op. At the end of
// the step, the recording must end there too. Returns true if there is such a recording, and uses
// it from now on.
bool StepRecorder::change_over() {
    const size_t at = labels_.size();
    const bool ends = bytes_.empty();
    for (const auto &other : kept_) {
        if (other.get() == current_ || other->ops.size() < at + (ends ? 0 : 1)) continue;
        if (ends ? other->ops.size() != at : other->ops[at]->bytes != bytes_) continue;
        bool same = at == 0 || current_ != nullptr;
        for (size_t i = 0; same && i < at; ++i)
            same = other->ops[i]->bytes == current_->ops[i]->bytes;
        if (!same) continue;
        current_ = other.get();
        return true;
    }
    return false;
}

bool StepRecorder::take(const PlannedOp &op, const keel_op_args *args) {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (state_ == State::ordinary || state_ == State::outside) return false;
    call_.assign(op.op(), args);
    call_.bytes(bytes_);
    if (state_ == State::comparing) {
        if (fits_current() || change_over()) {
            labels_.push_back(&op);
            return true;
        }
        if (!record_from_here()) return false;
    }
    return keep_recording(op, args);
}

// Begins a recording. First records the ops of this step that matched the previous recording.
bool StepRecorder::record_from_here() {
    device_.require_alive("recording a step");
    HostServices::drop_error();
    keel_status status = table_.begin(device_.ctx());
    if (status == KEEL_E_DEVICE_LOST) device_.fail(status, "recording a step");
    if (status != KEEL_OK) { // the backend cannot record this step, or cannot record now
        log().info("backend {}: this step is not recorded: {}", device_.plugin(), take_message());
        queue_one_by_one();
        note_miss();
        return false;
    }
    state_ = State::recording;
    fresh_.clear();
    for (size_t i = 0; i < labels_.size(); ++i) {
        RecordedOp &earlier = *current_->ops[i];
        status = call_op(device_.table(), earlier.call.op(), device_.ctx(), earlier.call.args());
        if (status == KEEL_E_DEVICE_LOST) device_.fail(status, labels_[i]->label());
        if (status != KEEL_OK) {
            throw_away();
            queue_one_by_one();
            note_miss();
            return false;
        }
        fresh_.push_back(
            std::make_unique<RecordedOp>(earlier.call.op(), earlier.call.args(), earlier.bytes));
    }
    return true;
}

bool StepRecorder::keep_recording(const PlannedOp &op, const keel_op_args *args) {
    device_.require_alive(op.label().c_str());
    const keel_status status = call_op(device_.table(), op.op(), device_.ctx(), args);
    if (status == KEEL_E_DEVICE_LOST)
        device_.fail(status, fmt::format("{} ({})", op.label(), op_name(op.op())));
    if (status != KEEL_OK) {
        // The step continues as an ordinary step. There the op reports its own error, or moves to
        // the next rung of the ladder.
        throw_away();
        queue_one_by_one();
        note_miss();
        return false;
    }
    fresh_.push_back(std::make_unique<RecordedOp>(op.op(), args, bytes_));
    labels_.push_back(&op);
    return true;
}

// Ends the backend's recording and discards it.
void StepRecorder::throw_away() noexcept {
    state_ = State::comparing;
    if (device_.is_lost()) return;
    HostServices::drop_error();
    table_.end(device_.ctx(), nullptr);
    HostServices::drop_error();
}

// Queues the step's ops so far. From here on the step is an ordinary step.
void StepRecorder::queue_one_by_one() {
    if (state_ == State::recording) throw_away();
    state_ = State::ordinary;
    device_.stream().set_held_back(nullptr);
    const Ops own = std::move(fresh_);
    fresh_.clear();
    const std::vector<const PlannedOp *> labels = labels_;
    labels_.clear();
    for (size_t i = 0; i < labels.size(); ++i) {
        RecordedOp &op = i < own.size() ? *own[i] : *current_->ops[i];
        const std::string &label = labels[i]->label();
        device_.require_alive(label.c_str());
        const keel_status status =
            call_op(device_.table(), op.call.op(), device_.ctx(), op.call.args());
        if (status != KEEL_OK)
            device_.fail(status, fmt::format("{} ({})", label, op_name(op.call.op())));
        device_.stream().op_queued(label.c_str(), labels[i]->part().data());
    }
}

void StepRecorder::interrupt() {
    if (state_ != State::comparing && state_ != State::recording) return;
    queue_one_by_one();
    note_miss();
}

void StepRecorder::note_miss() {
    if (++misses_ < patience) return;
    skip_ = std::min(longest_skip, 1U << std::min(misses_ - patience + 2, 8U));
}

void StepRecorder::end() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (state_ == State::comparing && !labels_.empty()) {
        bytes_.clear();
        if ((current_ != nullptr && labels_.size() == current_->ops.size()) || change_over()) {
            submit(*current_, true);
            misses_ = 0;
        } else {
            record_from_here();
        }
    }
    if (state_ == State::recording) {
        keel_recording *handle = nullptr;
        HostServices::drop_error();
        const keel_status status = table_.end(device_.ctx(), &handle);
        state_ = State::comparing; // the recording has ended, so ops can be queued again
        if (status == KEEL_E_DEVICE_LOST) device_.fail(status, "recording a step");
        if (status != KEEL_OK || handle == nullptr) {
            log().info("backend {}: this step is not recorded: {}", device_.plugin(),
                       take_message());
            queue_one_by_one();
            note_miss();
        } else {
            file(handle);
            note_miss(); // the new recording counts as unused until it is used
            submit(*kept_.back(), false);
        }
    }
    state_ = State::outside;
    device_.stream().set_held_back(nullptr);
}

// Adds the new recording to kept_. If kept_ is full, replaces the recording that was used least
// recently.
void StepRecorder::file(keel_recording *handle) {
    auto fresh = std::make_unique<Recording>();
    fresh->handle = handle;
    fresh->ops = std::move(fresh_);
    fresh_.clear();
    for (const auto &op : fresh->ops)
        op->call.list_handles([&](const void *used) { fresh->uses.insert(used); });
    if (kept_.size() == most_kept) {
        const auto oldest =
            std::min_element(kept_.begin(), kept_.end(),
                             [](const auto &a, const auto &b) { return a->used < b->used; });
        destroy(**oldest);
        kept_.erase(oldest);
    }
    current_ = nullptr;
    kept_.push_back(std::move(fresh));
    ++recorded_;
}

void StepRecorder::submit(Recording &recording, bool again) {
    recording.used = step_;
    device_.stream().set_held_back(nullptr);
    device_.check("submitting a recorded step",
                  [&] { return table_.submit(device_.ctx(), recording.handle); });
    device_.stream().step_queued(recording.ops.size(), again);
}

void StepRecorder::abandon() noexcept {
    if (state_ == State::recording) throw_away();
    state_ = State::outside;
    current_ = nullptr;
    labels_.clear();
    fresh_.clear();
    failure_ = nullptr;
    device_.stream().set_held_back(nullptr);
}

// Called before a plan, weight or buffer is destroyed. Destroys the recordings that use it.
void StepRecorder::forget(const void *handle) noexcept {
    const auto names = [&](const auto &recording) { return recording->uses.contains(handle); };
    const bool fresh = std::any_of(fresh_.begin(), fresh_.end(), [&](const auto &op) {
        bool found = false;
        op->call.list_handles([&](const void *used) { found = found || used == handle; });
        return found;
    });
    if ((state_ == State::comparing && current_ != nullptr && names(current_)) || fresh) {
        try { // ops of this step that are not queued yet can use the handle, so they are queued now
            interrupt();
        } catch (...) {
            failure_ = std::current_exception();
        }
    }
    for (auto at = kept_.begin(); at != kept_.end();) {
        if (!names(*at)) {
            ++at;
            continue;
        }
        if (current_ == at->get()) current_ = nullptr;
        destroy(**at);
        at = kept_.erase(at);
    }
}

} // namespace keel
