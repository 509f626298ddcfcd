#include "eval/compare/op_outputs.hpp"

#include "eval/compare/op_dump.hpp"
#include "ops/op_call.hpp"

#include <algorithm>
#include <string_view>

namespace keel {
namespace {

bool is_view_part(std::string_view name) {
    return name.substr(0, 3) == "kv." || name.substr(0, 3) == "to.";
}

bool is_output(const OpCall::Operand &slot) {
    return slot.access != OpCall::Access::in && !is_view_part(slot.name) &&
           is_readable(slot.tensor.dtype);
}

// Returns the slots of the cache that the op wrote. Empty if the op wrote no slots.
std::vector<SlotRange> written_slots(Device &device, keel_op op, const keel_op_args *args,
                                     const std::vector<int32_t> &lengths) {
    std::vector<SlotRange> ranges;
    const auto last = [&](int64_t m) {
        for (const int32_t length : lengths)
            ranges.emplace_back(std::max<int64_t>(length - m, 0), length);
    };
    switch (op) {
    case KEEL_OP_QKV_PREPARE:
        last(reinterpret_cast<const keel_qkv_args *>(args)->k->shape[0]);
        break;
    case KEEL_OP_KV_APPEND:
        last(reinterpret_cast<const keel_kv_append_args *>(args)->k->shape[0]);
        break;
    case KEEL_OP_KV_GATHER:
        for (const int32_t n :
             read_ints(device, *reinterpret_cast<const keel_kv_gather_args *>(args)->count))
            ranges.emplace_back(0, n);
        break;
    case KEEL_OP_KV_REROTATE: {
        const auto &a = *reinterpret_cast<const keel_kv_rerotate_args *>(args);
        for (const int32_t length : lengths)
            ranges.emplace_back(a.begin, std::min<int64_t>(a.end, length));
        break;
    }
    default: break;
    }
    return ranges;
}

// Arrays with a column for each slot are written up to the length of each head. The columns after
// this length have old values, so these columns are not compared.
void set_limits(OpOutput &output, keel_op op, const std::vector<int32_t> &lengths) {
    const auto &shape = output.values.shape;
    const bool per_slot = op == KEEL_OP_ATTENTION_SCORES || op == KEEL_OP_KEY_PROJECT ||
                          op == KEEL_OP_VALUE_NORMS ||
                          (op == KEEL_OP_ATTENTION && output.values.name == "scores.out");
    const auto heads = static_cast<int64_t>(lengths.size());
    if (!per_slot || shape.size() < 2 || heads == 0 || shape[0] % heads != 0) return;
    for (int64_t row = 0; row < shape[0]; ++row)
        output.limits.push_back(lengths[static_cast<size_t>(row / (shape[0] / heads))]);
}

} // namespace

bool OpOutput::counts(size_t element) const {
    if (limits.empty()) return true;
    size_t within = 1; // number of elements of one entry of the second dimension
    for (size_t i = 2; i < values.shape.size(); ++i) within *= static_cast<size_t>(values.shape[i]);
    const auto columns = static_cast<size_t>(values.shape[1]);
    const size_t row = element / (within * columns), column = element / within % columns;
    return static_cast<int64_t>(column) < limits[row];
}

std::vector<OpOutput> read_outputs(Device &device, keel_op op, const keel_op_args *args) {
    std::vector<OpOutput> outputs;
    const keel_kv_view *view = cache_of(op, args);
    const std::vector<int32_t> lengths =
        view != nullptr ? read_ints(device, *view->lengths) : std::vector<int32_t>{};
    const OpCall copy(op, args);
    for (const OpCall::Operand &slot : copy.tensors()) {
        if (!is_output(slot)) continue;
        OpOutput output;
        output.values = read_values(device, slot.tensor, slot.name);
        set_limits(output, op, lengths);
        outputs.push_back(std::move(output));
    }
    if (view == nullptr) return outputs;
    const std::vector<SlotRange> ranges = written_slots(device, op, args, lengths);
    for (const bool keys : {true, false}) {
        if (ranges.empty() || !is_readable(keys ? view->k->dtype : view->v->dtype)) continue;
        OpOutput output;
        output.values = read_kv(device, *view, keys, ranges);
        output.is_kv_row = true;
        output.is_key = keys;
        outputs.push_back(std::move(output));
    }
    return outputs;
}

void write_outputs(Device &device, keel_op op, const keel_op_args *args,
                   const std::vector<OpOutput> &outputs) {
    const OpCall copy(op, args);
    size_t i = 0;
    for (const OpCall::Operand &slot : copy.tensors()) {
        if (!is_output(slot)) continue;
        write_values(device, slot.tensor, outputs[i++].values);
    }
    for (; i < outputs.size(); ++i)
        write_kv(device, *cache_of(op, args), outputs[i].is_key, outputs[i].values);
}

} // namespace keel
