#include "ops/planned_op.hpp"

namespace keel {

const char *rung_name(Rung rung) {
    switch (rung) {
    case Rung::native: return "native";
    case Rung::composed: return "composed";
    case Rung::fallback: return "fallback";
    case Rung::reference: break;
    }
    return "reference";
}

PlannedOp::~PlannedOp() {
    if (plan_ == nullptr) return;
    device_->before_destroy(plan_);
    device_->table().plan_destroy(device_->ctx(), plan_);
}

void set_weight(keel_op op, keel_op_args *args, const Weight *weight, const Device &device) {
    if (weight == nullptr || !weight->is_ready(device)) return;
    if (op == KEEL_OP_MATMUL) {
        auto *a = reinterpret_cast<keel_matmul_args *>(args);
        a->weight = weight->handle(device);
        a->w = weight->tensor(device);
    } else if (op == KEEL_OP_EMBED) {
        auto *a = reinterpret_cast<keel_embed_args *>(args);
        a->weight = weight->handle(device);
        a->w = weight->tensor(device);
    } else if (op == KEEL_OP_EXPERT_MATMUL) {
        auto *a = reinterpret_cast<keel_expert_matmul_args *>(args);
        a->weight = weight->handle(device);
        a->w = weight->tensor(device);
    }
}

} // namespace keel
