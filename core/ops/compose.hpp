#pragma once

#include "ops/ladder.hpp"

namespace keel {

// The second rung of the ladder: the op made of smaller ops that the device has itself. NULL: not
// possible. Possible for matmul with bias or accumulate, add_rms_norm, scaled_add, qkv_prepare and
// attention with scores.
std::unique_ptr<Composition> compose(Ladder &ladder, keel_op op, const keel_op_args *args,
                                     const OpTag &tag, Weight *weight);

} // namespace keel
