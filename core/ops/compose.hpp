#pragma once

#include "ops/ladder.hpp"

namespace keel {

// The second rung of the fallback ladder: composes the op from smaller ops that the device itself
// has. Returns NULL if the op cannot be composed. These ops can be composed: matmul with bias or
// accumulate, add_rms_norm, scaled_add, qkv_prepare and attention with scores.
std::unique_ptr<Composition> compose(Ladder &ladder, keel_op op, const keel_op_args *args,
                                     const OpTag &tag, Weight *weight);

} // namespace keel
