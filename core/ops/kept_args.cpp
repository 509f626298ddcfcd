#include "ops/kept_args.hpp"

namespace keel {

KeptArgs::KeptArgs(keel_op op, const keel_op_args *args) : copy_(op, args) {
    const auto slots = copy_.tensors();
    tensors_.resize(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
        tensors_[i] = **slots[i].tensor;
        *slots[i].tensor = &tensors_[i];
    }
    // Beside a handle the tensor is not looked at, and may be anything.
    if (copy_.weight() != nullptr && *copy_.weight() != nullptr) *copy_.weight_tensor() = nullptr;
}

void ArgsBytes::read(keel_op op, const keel_op_args *args, std::vector<std::byte> &out) {
    out.clear();
    copy_.emplace(op, args);
    copy_->spend(out);
}

} // namespace keel
