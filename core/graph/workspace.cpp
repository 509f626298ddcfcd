#include "graph/workspace.hpp"

#include "device/device.hpp"

#include <array>

namespace keel {
namespace {

constexpr std::array tensors = {&Workspace::ids,
                                &Workspace::positions,
                                &Workspace::x,
                                &Workspace::h,
                                &Workspace::qkv,
                                &Workspace::attention,
                                &Workspace::gate_up,
                                &Workspace::act,
                                &Workspace::logits,
                                &Workspace::router,
                                &Workspace::chosen,
                                &Workspace::chosen_weights,
                                &Workspace::expert_gate_up,
                                &Workspace::expert_act,
                                &Workspace::shared_logit,
                                &Workspace::shared_weight,
                                &Workspace::shared_index};

} // namespace

Workspace::Workspace(const ModelConfig &c, keel_dtype A, int64_t m, int64_t logit_rows)
    : ids(Tensor::shape(KEEL_DTYPE_I32, {m})), positions(ids),
      x(Tensor::shape(KEEL_DTYPE_F32, {m, c.hidden_size})), h(Tensor::shape(A, {m, c.hidden_size})),
      qkv(Tensor::shape(A, {m, c.q_size() + 2 * c.kv_size()})),
      attention(Tensor::shape(A, {m, c.q_size()})) {
    const Experts &e = c.experts;
    const int64_t ordinary = e.count == 0 ? c.intermediate_size : e.shared_size;
    if (ordinary > 0) {
        gate_up = Tensor::shape(A, {m, 2 * ordinary});
        act = Tensor::shape(A, {m, ordinary});
    }
    if (e.count > 0) {
        router = Tensor::shape(KEEL_DTYPE_F32, {m, e.count});
        chosen = Tensor::shape(KEEL_DTYPE_I32, {m, e.used});
        chosen_weights = Tensor::shape(KEEL_DTYPE_F32, {m, e.used});
        expert_gate_up = Tensor::shape(A, {m, e.used * 2 * e.size});
        expert_act = Tensor::shape(A, {m, e.used * e.size});
    }
    if (e.shared_size > 0) {
        shared_logit = shared_weight = Tensor::shape(KEEL_DTYPE_F32, {m, 1});
        shared_index = Tensor::shape(KEEL_DTYPE_I32, {m, 1});
    }
    if (logit_rows > 0) logits = Tensor::shape(KEEL_DTYPE_F32, {logit_rows, c.vocab_size});
}

void Workspace::allocate(Device &device, keel_buffer_kind kind) {
    for (Tensor Workspace::*tensor : tensors) {
        Tensor &t = this->*tensor;
        if (!t.empty()) t = t.at(device.allocate(t.bytes(), kind), 0);
    }
}

uint64_t Workspace::bytes() const {
    uint64_t bytes = 0;
    for (Tensor Workspace::*tensor : tensors) bytes += (this->*tensor).bytes();
    return bytes;
}

} // namespace keel
