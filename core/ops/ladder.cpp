#include "ops/ladder.hpp"

#include "base/log.hpp"
#include "ops/compose.hpp"

#include <algorithm>

namespace keel {

Ladder::Ladder(std::shared_ptr<Device> device, std::shared_ptr<Device> fallback, bool strict)
    : device_(std::move(device)), fallback_(std::move(fallback)),
      reference_(Device::open_reference(device_->host())), strict_(strict) {}

void Ladder::set_trace(Trace *trace) {
    device_->stream().set_trace(trace);
    reference_->stream().set_trace(trace);
    if (fallback_ != nullptr) fallback_->stream().set_trace(trace);
}

// The reference's op_plan checks the rules of every op. If op_plan returns KEEL_E_INVALID_ARG, Keel
// has a bug. KEEL_E_UNSUPPORTED is not a bug, because a backend can support a dtype or feature that
// the reference does not.
void Ladder::check_template(keel_op op, keel_op_args *args, const OpTag &tag,
                            const Weight *weight) {
    OpCall call(op, args);
    if (weight != nullptr) {
        if (!call.takes_weight())
            throw_error(ErrorKind::internal,
                        "{} ({}): this op takes no weight, but a weight was passed",
                        label_text(tag), op_name(op));
        call.set_weight(nullptr, weight->shape());
    }
    keel_plan *plan = nullptr;
    HostServices::drop_error();
    const keel_status status =
        reference_->table().op_plan(reference_->ctx(), op, call.args(), &plan);
    if (plan != nullptr) reference_->table().plan_destroy(reference_->ctx(), plan);
    if (status == KEEL_OK) return;
    const std::string message = take_message();
    if (status == KEEL_E_UNSUPPORTED) return;
    throw_error(status == KEEL_E_OUT_OF_MEMORY ? ErrorKind::resource : ErrorKind::internal,
                "{} ({}): {}", label_text(tag), op_name(op),
                message.empty() ? status_text(status) : message);
}

OpHandle Ladder::settle(keel_op op, keel_op_args *args, const OpTag &tag, Weight *weight) {
    check_template(op, args, tag, weight);
    std::string reason;
    if (OpHandle native = settle_native(op, args, tag, weight, &reason)) return native;
    if (strict_) {
        throw_error(ErrorKind::plugin,
                    "strict: {}: backend {} cannot run {} itself: {}; set strict: false to run the "
                    "op on the fallback",
                    label_text(tag), device_->plugin(), op_name(op), reason);
    }
    OpHandle planned(new PlannedOp(op, tag, weight));
    planned->reason_ = reason;
    if (weight != nullptr) clear_weight(op, args);
    planned->template_ = OpCall(op, args).without_memory();
    if ((planned->composition_ = compose(*this, op, args, tag, weight))) {
        planned->rung_ = Rung::composed;
        planned->kernel_ = planned->composition_->kernel();
        planned->device_ = device_;
        return planned;
    }
    if (!settle_elsewhere(*planned, args)) {
        throw_error(ErrorKind::plugin,
                    "{}: backend {} cannot run {} ({}), and no fallback can run the op",
                    planned->label_, device_->plugin(), op_name(op), reason);
    }
    return planned;
}

namespace {

bool has_plans(const keel_backend &table) {
    return table.op_plan != nullptr && table.plan_destroy != nullptr && table.plan_info != nullptr;
}

} // namespace

OpHandle Ladder::settle_native(keel_op op, keel_op_args *args, const OpTag &tag, Weight *weight,
                               std::string *reason) {
    const keel_backend &table = device_->table();
    if (!has_op(table, op)) {
        if (reason != nullptr) *reason = "the backend does not have this op";
        return nullptr;
    }
    device_->require_alive("op_plan");
    if (weight != nullptr) weight->prepare(*device_);
    OpHandle planned(new PlannedOp(op, tag, weight));
    planned->device_ = device_;
    if (weight != nullptr) clear_weight(op, args);
    planned->template_ = OpCall(op, args).without_memory();
    set_weight(op, args, weight, *device_);
    if (!has_plans(table)) {
        // the backend has no plans, so it can refuse the first call, see demote()
        planned->kernel_ = "as it comes";
        return planned;
    }
    const keel_status status = device_->with_memory(
        [&] { return table.op_plan(device_->ctx(), op, args, &planned->plan_); });
    if (status != KEEL_OK) planned->plan_ = nullptr;
    if (status == KEEL_E_UNSUPPORTED) {
        const std::string message = take_message();
        if (reason != nullptr)
            *reason = message.empty()
                          ? "the backend does not support these dtypes, shapes or features"
                          : message;
        return nullptr;
    }
    if (status != KEEL_OK) fail(*planned, *device_, status);
    keel_plan_info info = {KEEL_HEADER(keel_plan_info)};
    HostServices::drop_error();
    const keel_status told = table.plan_info(device_->ctx(), planned->plan_, &info);
    if (told != KEEL_OK) fail(*planned, *device_, told);
    info.kernel[sizeof info.kernel - 1] = 0;
    planned->kernel_ = info.kernel;
    planned->scratch_bytes_ = info.scratch_bytes;
    return planned;
}

// Tries the rungs below the current rung of the op that use another device.
bool Ladder::settle_elsewhere(PlannedOp &op, keel_op_args *args) {
    const bool try_fallback =
        op.rung_ != Rung::fallback && fallback_ != nullptr && fallback_ != device_;
    if (try_fallback && settle_on(op, args, fallback_, Rung::fallback)) return true;
    return settle_on(op, args, reference_, Rung::reference);
}

bool Ladder::settle_on(PlannedOp &op, keel_op_args *args, const std::shared_ptr<Device> &target,
                       Rung rung) {
    const keel_backend &table = target->table();
    if (!has_op(table, op.op_)) return false;
    target->require_alive("op_plan");
    if (op.weight_ != nullptr) {
        op.weight_->prepare(*target);
        // clears the weight, because each device has its own prepared weight
        clear_weight(op.op_, args);
    }
    keel_plan *plan = nullptr;
    std::string kernel = "as it comes";
    uint64_t scratch = 0;
    if (has_plans(table)) {
        OpCall call(op.op_, args);
        call.args()->plan = nullptr;
        set_weight(op.op_, call.args(), op.weight_, *target);
        const keel_status status = target->with_memory(
            [&] { return table.op_plan(target->ctx(), op.op_, call.args(), &plan); });
        if (status == KEEL_E_UNSUPPORTED) {
            take_message();
            return false;
        }
        if (status != KEEL_OK) fail(op, *target, status);
        keel_plan_info info = {KEEL_HEADER(keel_plan_info)};
        HostServices::drop_error();
        const keel_status told = table.plan_info(target->ctx(), plan, &info);
        if (told != KEEL_OK) {
            table.plan_destroy(target->ctx(), plan);
            fail(op, *target, told);
        }
        info.kernel[sizeof info.kernel - 1] = 0;
        kernel = info.kernel;
        scratch = info.scratch_bytes;
    }
    op.device_ = target;
    op.plan_ = plan;
    op.rung_ = rung;
    op.kernel_ = fmt::format("{}: {}", target->plugin(), kernel);
    op.scratch_bytes_ = scratch;
    op.crossing_bytes_ = crossing_to(target).bytes(op.op_, args);
    ++crossings_planned_;
    return true;
}

Crossing &Ladder::crossing_to(const std::shared_ptr<Device> &target) {
    for (const auto &crossing : crossings_) {
        if (&crossing->to() == target.get()) return *crossing;
    }
    crossings_.push_back(std::make_unique<Crossing>(device_, target));
    return *crossings_.back();
}

keel_buffer_kind Ladder::placement() const {
    const bool shares = std::any_of(crossings_.begin(), crossings_.end(),
                                    [](const auto &c) { return c->shares(); });
    return any_fallback() && shares ? KEEL_BUFFER_HOST_VISIBLE : KEEL_BUFFER_DEVICE;
}

Tensor Ladder::scratch(const keel_tensor &like) {
    const int64_t *d = like.shape;
    const Tensor shape = like.rank == 1   ? Tensor::shape(like.dtype, {d[0]})
                         : like.rank == 2 ? Tensor::shape(like.dtype, {d[0], d[1]})
                         : like.rank == 3 ? Tensor::shape(like.dtype, {d[0], d[1], d[2]})
                                          : Tensor::shape(like.dtype, {d[0], d[1], d[2], d[3]});
    if (scratch_ == nullptr || scratch_->size() < shape.bytes())
        scratch_ = device_->allocate(shape.bytes());
    return shape.at(scratch_, 0);
}

const Device *Ladder::lost_device() const {
    if (device_->is_lost()) return device_.get();
    for (const auto &crossing : crossings_)
        if (crossing->to().is_lost()) return &crossing->to();
    return nullptr;
}

uint64_t Ladder::crossed_bytes() const {
    uint64_t bytes = 0;
    for (const auto &crossing : crossings_) bytes += crossing->copied_bytes();
    return bytes;
}

// Called if a backend refuses a call without a side effect. This happens if the backend has no
// plans, or if a call contradicts its plan. Moves the op to the next rung and logs the move.
void Ladder::demote(PlannedOp &op, keel_op_args *args) {
    const std::string message = take_message(),
                      reason = message.empty() ? "the call was refused" : message;
    const std::string refused_by = op.device_->plugin();
    if (strict_) {
        throw_error(ErrorKind::plugin,
                    "strict: {}: backend {} refused {}: {}; set strict: false to run the op on the "
                    "fallback",
                    op.label_, refused_by, op_name(op.op_), reason);
    }
    if (op.plan_ != nullptr) {
        op.device_->before_destroy(op.plan_);
        op.device_->table().plan_destroy(op.device_->ctx(), op.plan_);
    }
    op.plan_ = nullptr;
    // Plans the next rung for the largest shapes, like the first rung, because the current call can
    // be smaller.
    keel_op_args *planned = op.template_.args();
    if (op.rung_ == Rung::native &&
        (op.composition_ = compose(*this, op.op_, planned, op.tag_, op.weight_))) {
        op.rung_ = Rung::composed;
        op.kernel_ = op.composition_->kernel();
    } else if (!settle_elsewhere(op, planned)) {
        fail(op, *op.device_, KEEL_E_UNSUPPORTED);
    } else {
        if (op.weight_ != nullptr) clear_weight(op.op_, args);
        op.crossing_bytes_ = crossing_to(op.device_).bytes(op.op_, args);
    }
    op.reason_ = reason;
    args->plan = nullptr;
    if (!warned_of_.emplace(op.op_, reason).second) return; // other layers would log the same text
    log().warn("{}: backend {} refused {} ({}); from now on the op runs as {}: {}", op.label_,
               refused_by, op_name(op.op_), reason, rung_name(op.rung_), op.kernel_);
}

void Ladder::fail(const PlannedOp &op, Device &device, keel_status status) const {
    device.fail(status, fmt::format("{} ({})", op.label_, op_name(op.op_)));
}

} // namespace keel
