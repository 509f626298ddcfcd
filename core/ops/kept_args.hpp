#pragma once

#include "ops/op_args.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace keel {

// An op's args that outlive the call: a deep copy, tensors' descriptors included, that means the same buffers, weight and plan.
class KeptArgs {
  public:
    KeptArgs(keel_op op, const keel_op_args *args);
    KeptArgs(const KeptArgs &) = delete;
    KeptArgs &operator=(const KeptArgs &) = delete;

    keel_op op() const { return copy_.op(); }
    keel_op_args *args() { return copy_.args(); }
    // Calls visit(handle) for each buffer, weight and plan that they name.
    template <typename Visit>
    void list_handles(const Visit &visit) {
        for (const keel_tensor &tensor : tensors_)
            visit(static_cast<const void *>(tensor.buffer));
        if (copy_.weight() != nullptr) visit(static_cast<const void *>(*copy_.weight()));
        visit(static_cast<const void *>(copy_.args()->plan));
    }

  private:
    ArgsCopy copy_;
    std::vector<keel_tensor> tensors_;
};

// Tells calls of ops apart: what it reads of two of them is equal where the backend is asked for the same. Only what the same object has
// read can be compared.
class ArgsBytes {
  public:
    ArgsBytes() = default;
    ArgsBytes(const ArgsBytes &) = delete; // pointers into copy_ are part of what it reads
    ArgsBytes &operator=(const ArgsBytes &) = delete;
    void read(keel_op op, const keel_op_args *args, std::vector<std::byte> &out);

  private:
    std::optional<ArgsCopy> copy_;
};

} // namespace keel
