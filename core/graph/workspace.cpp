#include "graph/workspace.hpp"

#include "device/device.hpp"

#include <array>

namespace keel {
namespace {

constexpr std::array tensors = {&Workspace::ids,     &Workspace::positions, &Workspace::x,
                                &Workspace::h,       &Workspace::qkv,       &Workspace::attention,
                                &Workspace::gate_up, &Workspace::act,       &Workspace::logits};

} // namespace

Workspace::Workspace(const ModelConfig &c, keel_dtype A, int64_t m, int64_t logit_rows)
    : ids(Tensor::shape(KEEL_DTYPE_I32, {m})), positions(ids),
      x(Tensor::shape(KEEL_DTYPE_F32, {m, c.hidden_size})), h(Tensor::shape(A, {m, c.hidden_size})),
      qkv(Tensor::shape(A, {m, c.q_size() + 2 * c.kv_size()})),
      attention(Tensor::shape(A, {m, c.q_size()})),
      gate_up(Tensor::shape(A, {m, 2 * c.intermediate_size})),
      act(Tensor::shape(A, {m, c.intermediate_size})) {
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
