#include "ops/op_trace.hpp"

#include "device/trace.hpp"

#include <fmt/format.h>

namespace keel {
namespace {

std::string shape_text(const keel_tensor &t) {
    std::string out = fmt::format("{} [", keel_dtype_name(t.dtype));
    for (uint32_t i = 0; i < t.rank && i < KEEL_MAX_RANK; ++i)
        out += fmt::format("{}{}", i == 0 ? "" : ", ", t.shape[i]);
    return out + "]";
}

} // namespace

void trace_op(Trace &trace, const PlannedOp &op, const keel_op_args *args, double begin) {
    const double end = trace.now();
    std::vector<TraceArg> more{{"op", Trace::text(op_name(op.op()))},
                               {"kernel", Trace::text(op.kernel())}};
    if (op.tag().layer >= 0) more.emplace_back("layer", std::to_string(op.tag().layer));
    more.emplace_back("label", Trace::text(op.label()));
    if (op.weight() != nullptr)
        more.emplace_back("weight", Trace::text(shape_text(*op.weight()->shape())));
    const OpCall call(op.op(), args);
    for (const OpCall::Operand &operand : call.tensors())
        more.emplace_back(operand.name, Trace::text(shape_text(operand.tensor)));
    trace.span(op.part(), "op", begin, end, more);
}

} // namespace keel
