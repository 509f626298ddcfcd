#include "ops/op_args.hpp"

#include "base/error.hpp"
#include "plugin/host.hpp"

#include <cstring>
#include <iterator>

namespace keel {

const char *op_name(keel_op op) {
    switch (op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID:                                                                             \
        return #slot;
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default:
        return "?";
    }
}

bool has_op(const keel_backend &table, keel_op op) {
    switch (op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID:                                                                             \
        return table.slot != nullptr;
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default:
        return false;
    }
}

keel_status call_op(const keel_backend &table, keel_op op, keel_ctx *ctx,
                    const keel_op_args *args) {
    HostServices::drop_error(); // a store to a thread's own memory
    switch (op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID:                                                                             \
        return table.slot(ctx, reinterpret_cast<const Args *>(args));
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default:
        return KEEL_E_UNSUPPORTED;
    }
}

ArgsCopy::ArgsCopy(keel_op op, const keel_op_args *args) : op_(op) {
    switch (op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID:                                                                             \
        static_assert(sizeof(Args) <= sizeof(storage_));                                           \
        std::memcpy(storage_.data(), args, sizeof(Args));                                          \
        break;
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default:
        throw_error(ErrorKind::internal, "op {} is not in the table", op);
    }
    visit_linear(op);
    visit_attention(op);
    visit_policy(op);
}

void ArgsCopy::spend(std::vector<std::byte> &out) {
    const auto append = [&](const auto &part) {
        const auto *bytes = reinterpret_cast<const std::byte *>(&part);
        out.insert(out.end(), bytes, bytes + sizeof part);
    };
    append(op_);
    for (const Slot &slot : tensors()) {
        append(slot.name); // which one it is: those that are absent have no slot
        append(**slot.tensor);
        *slot.tensor = nullptr; // where the caller has the descriptor does not matter
    }
    if (weight_ != nullptr && *weight_ != nullptr) *weight_tensor_ = nullptr;
    append(storage_);
    append(kv_);
    append(tables_);
    append(scores_);
}

ArgsTemplate::ArgsTemplate(keel_op op, const keel_op_args *args) : copy_(op, args) {
    const auto slots = copy_.tensors();
    tensors_.resize(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
        tensors_[i] = **slots[i].tensor;
        tensors_[i].buffer = nullptr;
        *slots[i].tensor = &tensors_[i];
    }
    copy_.args()->plan = nullptr;
}

void clear_weight(keel_op op, keel_op_args *args) {
    if (op == KEEL_OP_MATMUL) {
        reinterpret_cast<keel_matmul_args *>(args)->weight = nullptr;
        reinterpret_cast<keel_matmul_args *>(args)->w = nullptr;
    } else if (op == KEEL_OP_EMBED) {
        reinterpret_cast<keel_embed_args *>(args)->weight = nullptr;
        reinterpret_cast<keel_embed_args *>(args)->w = nullptr;
    }
}

void ArgsCopy::add(const keel_tensor *&tensor, Role role, const char *name) {
    if (tensor != nullptr) slots_[n_slots_++] = {&tensor, role, name};
}

const keel_kv_view *ArgsCopy::copy_kv(const keel_kv_view *view, keel_kv_view &to, Role role,
                                      const char *const (&names)[5]) {
    if (view == nullptr) throw_error(ErrorKind::internal, "an op on no KV view");
    to = *view;
    add(to.k, role, names[0]);
    add(to.v, role, names[1]);
    add(to.block_table, Role::in, names[2]);
    add(to.lengths, Role::in, names[3]);
    add(to.positions, role, names[4]);
    return &to;
}

void ArgsCopy::copy_tables(const keel_rope_tables *&tables) {
    if (tables == nullptr) return;
    tables_ = *tables;
    tables = &tables_;
    add(tables_.cos, Role::in, "tables.cos");
    add(tables_.sin, Role::in, "tables.sin");
}

void ArgsCopy::copy_scores(const keel_scores *&scores) {
    if (scores == nullptr) return;
    scores_ = *scores;
    scores = &scores_;
    add(scores_.out, Role::in_out, "scores.out");
}

void ArgsCopy::visit_linear(keel_op op) {
    switch (op) {
    case KEEL_OP_MATMUL: {
        auto &a = as<keel_matmul_args>();
        weight_ = &a.weight;
        weight_tensor_ = &a.w;
        add(a.x, Role::in, "x");
        if (a.weight == nullptr) add(a.w, Role::in, "w");
        add(a.bias, Role::in, "bias");
        add(a.out, (a.features & KEEL_MATMUL_ACCUMULATE) != 0 ? Role::in_out : Role::out, "out");
        break;
    }
    case KEEL_OP_EMBED: {
        auto &a = as<keel_embed_args>();
        weight_ = &a.weight;
        weight_tensor_ = &a.w;
        add(a.ids, Role::in, "ids");
        if (a.weight == nullptr) add(a.w, Role::in, "w");
        add(a.out, Role::out, "out");
        break;
    }
    case KEEL_OP_RMS_NORM:
    case KEEL_OP_ADD_RMS_NORM:
    case KEEL_OP_LAYER_NORM: {
        auto &a = as<keel_norm_args>();
        add(a.x, Role::in, "x");
        add(a.residual, Role::in_out, "residual");
        add(a.weight, Role::in, "weight");
        add(a.bias, Role::in, "bias");
        add(a.out, Role::out, "out");
        break;
    }
    case KEEL_OP_SILU_MUL:
    case KEEL_OP_GELU_MUL: {
        auto &a = as<keel_gate_args>();
        add(a.gate, Role::in, "gate");
        add(a.up, Role::in, "up");
        add(a.out, Role::out, "out");
        break;
    }
    case KEEL_OP_ADD:
    case KEEL_OP_ADD_BIAS:
    case KEEL_OP_SCALE:
    case KEEL_OP_SCALED_ADD: {
        auto &a = as<keel_elementwise_args>();
        add(a.a, Role::in, "a");
        add(a.b, Role::in, "b");
        add(a.out, op == KEEL_OP_SCALED_ADD ? Role::in_out : Role::out, "out");
        break;
    }
    case KEEL_OP_SOFTMAX:
    case KEEL_OP_CAST:
    case KEEL_OP_COPY:
    case KEEL_OP_TRANSPOSE:
    case KEEL_OP_ZERO: {
        auto &a = as<keel_move_args>();
        add(a.x, Role::in, "x");
        add(a.out, Role::out, "out");
        break;
    }
    case KEEL_OP_ARGMAX_ROWS:
    case KEEL_OP_TOP_K_ROWS: {
        auto &a = as<keel_rows_args>();
        add(a.x, Role::in, "x");
        add(a.values, Role::out, "values");
        add(a.index, Role::out, "index");
        break;
    }
    default:
        break;
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

void ArgsCopy::visit_attention(keel_op op) {
    switch (op) {
    case KEEL_OP_ROPE: {
        auto &a = as<keel_rope_args>();
        add(a.x, Role::in, "x");
        add(a.positions, Role::in, "positions");
        copy_tables(a.tables);
        add(a.out, Role::out, "out");
        break;
    }
    case KEEL_OP_QKV_PREPARE: {
        auto &a = as<keel_qkv_args>();
        add(a.q, Role::in, "q");
        add(a.k, Role::in, "k");
        add(a.v, Role::in, "v");
        add(a.positions, Role::in, "positions");
        copy_tables(a.tables);
        add(a.q_norm, Role::in, "q_norm");
        add(a.k_norm, Role::in, "k_norm");
        a.kv = copy_kv(a.kv, kv_[0], Role::in_out, kv_names);
        add(a.q_out, Role::out, "q_out");
        add(a.q_unrotated, Role::out, "q_unrotated");
        add(a.k_unrotated, Role::out, "k_unrotated");
        break;
    }
    case KEEL_OP_ATTENTION: {
        auto &a = as<keel_attention_args>();
        add(a.q, Role::in, "q");
        a.kv = copy_kv(a.kv, kv_[0], Role::in, kv_names);
        add(a.q_positions, Role::in, "q_positions");
        add(a.out, Role::out, "out");
        add(a.lse, Role::out, "lse");
        copy_scores(a.scores);
        break;
    }
    case KEEL_OP_KV_APPEND: {
        auto &a = as<keel_kv_append_args>();
        add(a.k, Role::in, "k");
        add(a.v, Role::in, "v");
        add(a.positions, Role::in, "positions");
        a.kv = copy_kv(a.kv, kv_[0], Role::in_out, kv_names);
        break;
    }
    case KEEL_OP_KV_GATHER: {
        auto &a = as<keel_kv_gather_args>();
        static_assert(max_sides == std::size(side_names));
        if (a.n_sides > max_sides)
            throw_error(ErrorKind::internal, "kv_gather with {} side arrays, at most {}", a.n_sides,
                        max_sides);
        a.from = copy_kv(a.from, kv_[0], Role::in, kv_names);
        a.to = copy_kv(a.to, kv_[1], Role::in_out, to_names);
        add(a.index, Role::in, "index");
        add(a.count, Role::in, "count");
        for (uint32_t i = 0; i < a.n_sides; ++i) {
            sides_[i] = a.sides[i];
            add(sides_[i], Role::in_out, side_names[i]);
        }
        a.sides = sides_.data();
        break;
    }
    case KEEL_OP_KV_REROTATE: {
        auto &a = as<keel_kv_rerotate_args>();
        a.kv = copy_kv(a.kv, kv_[0], Role::in_out, kv_names);
        copy_tables(a.tables);
        add(a.row, Role::in, "row");
        add(a.new_positions, Role::in, "new_positions");
        add(a.source, Role::in, "source");
        break;
    }
    default:
        break;
    }
}

void ArgsCopy::visit_policy(keel_op op) {
    switch (op) {
    case KEEL_OP_ATTENTION_SCORES: {
        auto &a = as<keel_attention_scores_args>();
        add(a.q, Role::in, "q");
        a.kv = copy_kv(a.kv, kv_[0], Role::in, kv_names);
        add(a.ranges, Role::in, "ranges");
        add(a.weights, Role::in, "weights");
        copy_scores(a.scores);
        break;
    }
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: {
        auto &a = as<keel_keys_args>();
        a.kv = copy_kv(a.kv, kv_[0], Role::in, kv_names);
        copy_tables(a.tables);
        add(a.projection, Role::in, "projection");
        add(a.out, op == KEEL_OP_KEY_SUM ? Role::out : Role::in_out, "out");
        break;
    }
    case KEEL_OP_QUERY_STATS: {
        auto &a = as<keel_query_stats_args>();
        add(a.q, Role::in, "q");
        add(a.sum, Role::in_out, "sum");
        add(a.second, Role::in_out, "second");
        break;
    }
    default:
        break;
    }
}

} // namespace keel
