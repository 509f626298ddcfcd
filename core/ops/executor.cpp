#include "ops/executor.hpp"

#include "device/trace.hpp"
#include "ops/op_trace.hpp"

namespace keel {

Executor::Executor(std::shared_ptr<Device> device, Options options)
    : ladder_(device, std::move(options.fallback), options.strict),
      recorder_(StepRecorder::make(*device)), replay_(options.replay), ahead_(options.ahead) {
    stream().set_strategy(options.sync);
}

// Returns the first reason why steps with this number of ops are not recorded.
Executor::NotRecorded Executor::not_recorded(size_t ops) const {
    const SyncStrategy &sync = stream().strategy();
    if (!recorder_) return NotRecorded::no_extension;
    if (!replay_) return NotRecorded::off;
    if (sync.kind == SyncStrategy::Kind::eager) return NotRecorded::eager;
    if (sync.kind == SyncStrategy::Kind::batched && sync.ops <= ops) return NotRecorded::batched;
    if (stream().trace() != nullptr) return NotRecorded::traced;
    return observer_ ? NotRecorded::observed : NotRecorded::none;
}

std::string Executor::why_not_recorded(size_t ops) const {
    switch (not_recorded(ops)) {
    case NotRecorded::no_extension:
        return fmt::format("backend {} has no {}", device().plugin(), KEEL_EXT_REPLAY);
    case NotRecorded::off: return "sync.replay: off";
    case NotRecorded::eager: return "sync: eager waits after every op";
    case NotRecorded::batched:
        return fmt::format("sync: {} submits within a step of {} ops and its argmax",
                           to_string(stream().strategy()), ops);
    case NotRecorded::traced: return "a trace shows each op";
    case NotRecorded::observed: return "each op is watched";
    case NotRecorded::none: break;
    }
    return {};
}

StepRecorder *Executor::recorder_for(size_t ops) const {
    return not_recorded(ops) == NotRecorded::none ? recorder_.get() : nullptr;
}

std::string Executor::why_not_ahead() const {
    if (can_run_ahead()) return "";
    if (!ahead_) return "sync.ahead: off";
    const SyncStrategy &sync = stream().strategy();
    if (sync.kind == SyncStrategy::Kind::eager) return "sync: eager waits after every op";
    if (!stream().reads_later())
        return fmt::format("backend {} does not serve {} on this device", device().plugin(),
                           KEEL_EXT_READ_LATER);
    return observer_ ? "each op is watched" : "some ops do not run on the backend itself";
}

void Executor::run_any(PlannedOp &op, keel_op_args *args) {
    Trace *trace = stream().trace();
    if (trace == nullptr || depth_ > 0) return run_observed(op, args);
    const double begin = trace->now();
    run_observed(op, args);
    trace_op(*trace, op, args, begin);
}

void Executor::run_observed(PlannedOp &op, keel_op_args *args) {
    const bool outermost = depth_ == 0 && observer_;
    if (outermost) observer_(op, args, false);
    ++depth_;
    try {
        run_here(op, args);
    } catch (...) {
        --depth_;
        throw;
    }
    --depth_;
    if (outermost) observer_(op, args, true);
}

void Executor::run_here(PlannedOp &op, keel_op_args *args) {
    switch (op.rung_) {
    case Rung::native: {
        device().require_alive(op.label_.c_str());
        args->plan = op.plan_;
        set_weight(op.op_, args, op.weight_, device());
        if (recorder_ && recorder_->take(op, args)) return;
        const keel_status status = call_op(device().table(), op.op_, device().ctx(), args);
        if (status == KEEL_OK) return stream().op_queued(op.label_.c_str(), op.part().data());
        if (status != KEEL_E_UNSUPPORTED) ladder_.fail(op, device(), status);
        ladder_.demote(op, args);
        return run_here(op, args);
    }
    case Rung::composed:
        set_weight(op.op_, args, op.weight_, device());
        return op.composition_->run(*this, args);
    case Rung::fallback:
    case Rung::reference: {
        if (op.weight_ != nullptr) clear_weight(op.op_, args);
        const keel_status status = ladder_.crossing(op).run(op.op_, args, op.weight_, op.plan_);
        if (status == KEEL_OK) return;
        if (status != KEEL_E_UNSUPPORTED || op.rung_ == Rung::reference)
            ladder_.fail(op, *op.device_, status);
        ladder_.demote(op, args);
        return run_here(op, args);
    }
    }
}

} // namespace keel
