#include "ops/op_call.hpp"

#include "base/error.hpp"

#include <cstring>
#include <iterator>

namespace keel {

void OpCall::assign(keel_op op, const keel_op_args *args) {
    op_ = op;
    body_ = {};
    operands_.clear();
    links_ = 0;
    weight_at_ = weight_tensor_at_ = none;
    switch (op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID:                                                                             \
        static_assert(sizeof(Args) <= sizeof body_.args);                                          \
        std::memcpy(body_.args, args, sizeof(Args));                                               \
        break;
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default: throw_error(ErrorKind::internal, "op {} is not in the table of ops", op);
    }
    visit_linear(op);
    visit_attention(op);
    visit_policy(op);
}

uint16_t OpCall::offset(const void *member) const {
    const auto *begin = reinterpret_cast<const std::byte *>(&body_);
    return static_cast<uint16_t>(static_cast<const std::byte *>(member) - begin);
}

void OpCall::set_pointer(uint16_t at, const void *value) {
    std::memcpy(reinterpret_cast<std::byte *>(&body_) + at, &value, sizeof value);
}

keel_op_args *OpCall::args() {
    auto *begin = reinterpret_cast<std::byte *>(&body_);
    for (size_t i = 0; i < links_; ++i) set_pointer(link_[i].at, begin + link_[i].to);
    for (const Operand &operand : operands_) set_pointer(operand.at, &operand.tensor);
    return reinterpret_cast<keel_op_args *>(body_.args);
}

keel_weight *OpCall::weight() const {
    keel_weight *weight = nullptr;
    if (takes_weight())
        std::memcpy(&weight, reinterpret_cast<const std::byte *>(&body_) + weight_at_,
                    sizeof weight);
    return weight;
}

void OpCall::set_weight(keel_weight *weight, const keel_tensor *shape) {
    std::erase_if(operands_, [&](const Operand &o) { return o.at == weight_tensor_at_; });
    set_pointer(weight_at_, weight);
    set_pointer(weight_tensor_at_, shape);
}

OpCall OpCall::without_memory() const {
    OpCall copy = *this;
    for (Operand &operand : copy.operands_) operand.tensor.buffer = nullptr;
    copy.args()->plan = nullptr;
    return copy;
}

void OpCall::bytes(std::vector<std::byte> &out) const {
    out.clear();
    const auto append = [&](const auto &value) {
        const auto *bytes = reinterpret_cast<const std::byte *>(&value);
        out.insert(out.end(), bytes, bytes + sizeof value);
    };
    append(body_);
    // Clears the pointers to descriptors, because their addresses do not matter.
    const auto clear = [&](uint16_t at) { std::memset(out.data() + at, 0, sizeof(void *)); };
    for (size_t i = 0; i < links_; ++i) clear(link_[i].at);
    for (const Operand &operand : operands_) clear(operand.at);
    append(op_);
    for (const Operand &operand : operands_) {
        // the name identifies the operand, because absent tensors are not in the list
        append(operand.name);
        append(operand.tensor);
    }
}

void clear_weight(keel_op op, keel_op_args *args) {
    if (op == KEEL_OP_MATMUL) {
        reinterpret_cast<keel_matmul_args *>(args)->weight = nullptr;
        reinterpret_cast<keel_matmul_args *>(args)->w = nullptr;
    } else if (op == KEEL_OP_EMBED) {
        reinterpret_cast<keel_embed_args *>(args)->weight = nullptr;
        reinterpret_cast<keel_embed_args *>(args)->w = nullptr;
    } else if (op == KEEL_OP_EXPERT_MATMUL) {
        reinterpret_cast<keel_expert_matmul_args *>(args)->weight = nullptr;
        reinterpret_cast<keel_expert_matmul_args *>(args)->w = nullptr;
    }
}

void OpCall::add(const keel_tensor *const &tensor, Access access, const char *name) {
    if (tensor != nullptr) operands_.push_back({*tensor, access, name, tensor, offset(&tensor)});
}

template <typename T> void OpCall::link(const T *const &pointer, const T &target) {
    link_[links_++] = {offset(&pointer), offset(&target)};
}

// If the call has a handle, the tensor is ignored and can be invalid.
void OpCall::add_weight(keel_weight *const &weight, const keel_tensor *&tensor) {
    weight_at_ = offset(&weight);
    weight_tensor_at_ = offset(&tensor);
    if (weight != nullptr) tensor = nullptr;
}

void OpCall::add_kv(const keel_kv_view *const &view, keel_kv_view &copy, Access access,
                    const char *const (&names)[5]) {
    if (view == nullptr)
        throw_error(ErrorKind::internal, "an op needs a KV view, but its args have none");
    copy = *view;
    link(view, copy);
    add(copy.k, access, names[0]);
    add(copy.v, access, names[1]);
    add(copy.block_table, Access::in, names[2]);
    add(copy.lengths, Access::in, names[3]);
    add(copy.positions, access, names[4]);
}

void OpCall::add_tables(const keel_rope_tables *const &tables) {
    if (tables == nullptr) return;
    body_.tables = *tables;
    link(tables, body_.tables);
    add(body_.tables.cos, Access::in, "tables.cos");
    add(body_.tables.sin, Access::in, "tables.sin");
}

void OpCall::add_scores(const keel_scores *const &scores) {
    if (scores == nullptr) return;
    body_.scores = *scores;
    link(scores, body_.scores);
    add(body_.scores.out, Access::in_out, "scores.out");
}

void OpCall::visit_linear(keel_op op) {
    switch (op) {
    case KEEL_OP_MATMUL: {
        auto &a = member_as<keel_matmul_args>();
        add_weight(a.weight, a.w);
        add(a.x, Access::in, "x");
        add(a.w, Access::in, "w");
        add(a.bias, Access::in, "bias");
        add(a.out, (a.features & KEEL_MATMUL_ACCUMULATE) != 0 ? Access::in_out : Access::out,
            "out");
        break;
    }
    case KEEL_OP_EMBED: {
        auto &a = member_as<keel_embed_args>();
        add_weight(a.weight, a.w);
        add(a.ids, Access::in, "ids");
        add(a.w, Access::in, "w");
        add(a.out, Access::out, "out");
        break;
    }
    case KEEL_OP_CHOOSE_EXPERTS: {
        auto &a = member_as<keel_choose_experts_args>();
        add(a.logits, Access::in, "logits");
        add(a.bias, Access::in, "bias");
        add(a.index, Access::out, "index");
        add(a.weights, Access::out, "weights");
        break;
    }
    case KEEL_OP_EXPERT_MATMUL: {
        auto &a = member_as<keel_expert_matmul_args>();
        add_weight(a.weight, a.w);
        add(a.x, Access::in, "x");
        add(a.w, Access::in, "w");
        add(a.index, Access::in, "index");
        add(a.weights, Access::in, "weights");
        add(a.out, (a.features & KEEL_EXPERTS_ACCUMULATE) != 0 ? Access::in_out : Access::out,
            "out");
        break;
    }
    case KEEL_OP_RMS_NORM:
    case KEEL_OP_ADD_RMS_NORM:
    case KEEL_OP_LAYER_NORM: {
        auto &a = member_as<keel_norm_args>();
        add(a.x, Access::in, "x");
        add(a.residual, Access::in_out, "residual");
        add(a.weight, Access::in, "weight");
        add(a.bias, Access::in, "bias");
        add(a.out, Access::out, "out");
        break;
    }
    case KEEL_OP_SILU_MUL:
    case KEEL_OP_GELU_MUL: {
        auto &a = member_as<keel_gate_args>();
        add(a.gate, Access::in, "gate");
        add(a.up, Access::in, "up");
        add(a.out, Access::out, "out");
        break;
    }
    case KEEL_OP_ADD:
    case KEEL_OP_ADD_BIAS:
    case KEEL_OP_SCALE:
    case KEEL_OP_SCALED_ADD: {
        auto &a = member_as<keel_elementwise_args>();
        add(a.a, Access::in, "a");
        add(a.b, Access::in, "b");
        add(a.out, op == KEEL_OP_SCALED_ADD ? Access::in_out : Access::out, "out");
        break;
    }
    case KEEL_OP_SOFTMAX:
    case KEEL_OP_CAST:
    case KEEL_OP_COPY:
    case KEEL_OP_TRANSPOSE:
    case KEEL_OP_ZERO: {
        auto &a = member_as<keel_move_args>();
        add(a.x, Access::in, "x");
        add(a.out, Access::out, "out");
        break;
    }
    case KEEL_OP_ARGMAX_ROWS:
    case KEEL_OP_TOP_K_ROWS: {
        auto &a = member_as<keel_rows_args>();
        add(a.x, Access::in, "x");
        add(a.values, Access::out, "values");
        add(a.index, Access::out, "index");
        break;
    }
    default: break;
    }
}

namespace {
constexpr const char *kv_names[5] = {"kv.k", "kv.v", "kv.block_table", "kv.lengths",
                                     "kv.positions"};
constexpr const char *side_names[16] = {
    "side.0", "side.1", "side.2",  "side.3",  "side.4",  "side.5",  "side.6",  "side.7",
    "side.8", "side.9", "side.10", "side.11", "side.12", "side.13", "side.14", "side.15"};
constexpr const char *to_names[5] = {"to.k", "to.v", "to.block_table", "to.lengths",
                                     "to.positions"};
} // namespace

void OpCall::visit_attention(keel_op op) {
    switch (op) {
    case KEEL_OP_ROPE: {
        auto &a = member_as<keel_rope_args>();
        add(a.x, Access::in, "x");
        add(a.positions, Access::in, "positions");
        add_tables(a.tables);
        add(a.out, Access::out, "out");
        break;
    }
    case KEEL_OP_QKV_PREPARE: {
        auto &a = member_as<keel_qkv_args>();
        add(a.q, Access::in, "q");
        add(a.k, Access::in, "k");
        add(a.v, Access::in, "v");
        add(a.positions, Access::in, "positions");
        add_tables(a.tables);
        add(a.q_norm, Access::in, "q_norm");
        add(a.k_norm, Access::in, "k_norm");
        add_kv(a.kv, body_.kv[0], Access::in_out, kv_names);
        add(a.q_out, Access::out, "q_out");
        add(a.q_unrotated, Access::out, "q_unrotated");
        add(a.k_unrotated, Access::out, "k_unrotated");
        break;
    }
    case KEEL_OP_ATTENTION: {
        auto &a = member_as<keel_attention_args>();
        add(a.q, Access::in, "q");
        add_kv(a.kv, body_.kv[0], Access::in, kv_names);
        add(a.q_positions, Access::in, "q_positions");
        add(a.out, Access::out, "out");
        add(a.lse, Access::out, "lse");
        add_scores(a.scores);
        break;
    }
    case KEEL_OP_KV_APPEND: {
        auto &a = member_as<keel_kv_append_args>();
        add(a.k, Access::in, "k");
        add(a.v, Access::in, "v");
        add(a.positions, Access::in, "positions");
        add_kv(a.kv, body_.kv[0], Access::in_out, kv_names);
        break;
    }
    case KEEL_OP_KV_GATHER: {
        auto &a = member_as<keel_kv_gather_args>();
        static_assert(max_sides == std::size(side_names));
        if (a.n_sides > max_sides)
            throw_error(ErrorKind::internal, "kv_gather has {} side arrays, expected at most {}",
                        a.n_sides, max_sides);
        add_kv(a.from, body_.kv[0], Access::in, kv_names);
        add_kv(a.to, body_.kv[1], Access::in_out, to_names);
        add(a.index, Access::in, "index");
        add(a.count, Access::in, "count");
        for (uint32_t i = 0; i < a.n_sides; ++i) {
            body_.sides[i] = a.sides[i];
            add(body_.sides[i], Access::in_out, side_names[i]);
        }
        link(a.sides, body_.sides[0]);
        break;
    }
    case KEEL_OP_KV_REROTATE: {
        auto &a = member_as<keel_kv_rerotate_args>();
        add_kv(a.kv, body_.kv[0], Access::in_out, kv_names);
        add_tables(a.tables);
        add(a.row, Access::in, "row");
        add(a.new_positions, Access::in, "new_positions");
        add(a.source, Access::in, "source");
        break;
    }
    default: break;
    }
}

void OpCall::visit_policy(keel_op op) {
    switch (op) {
    case KEEL_OP_ATTENTION_SCORES: {
        auto &a = member_as<keel_attention_scores_args>();
        add(a.q, Access::in, "q");
        add_kv(a.kv, body_.kv[0], Access::in, kv_names);
        add(a.ranges, Access::in, "ranges");
        add(a.weights, Access::in, "weights");
        add(a.q_positions, Access::in, "q_positions");
        add_scores(a.scores);
        break;
    }
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: {
        auto &a = member_as<keel_keys_args>();
        add_kv(a.kv, body_.kv[0], Access::in, kv_names);
        add_tables(a.tables);
        add(a.projection, Access::in, "projection");
        add(a.out, op == KEEL_OP_KEY_SUM ? Access::out : Access::in_out, "out");
        break;
    }
    case KEEL_OP_QUERY_STATS: {
        auto &a = member_as<keel_query_stats_args>();
        add(a.q, Access::in, "q");
        add(a.sum, Access::in_out, "sum");
        add(a.second, Access::in_out, "second");
        break;
    }
    default: break;
    }
}

} // namespace keel
