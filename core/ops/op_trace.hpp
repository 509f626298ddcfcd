#pragma once

#include "ops/executor.hpp"

namespace keel {

class Trace;

// Records in `trace` that `op` ran with `args` from `begin` (Trace::now()) until now.
void trace_op(Trace &trace, const PlannedOp &op, const keel_op_args *args, double begin);

} // namespace keel
