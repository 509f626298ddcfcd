#include "conformance/larger_plan.hpp"

#include <cstring>

namespace keel::conformance {
namespace {

int64_t larger(int64_t n) { return 2 * n + 1; }

// Enlarges a dimension, and the strides of the dimensions outside of it.
void grow_dimension(keel_tensor &own, uint32_t dim) {
    const int64_t more = larger(own.shape[dim]) - own.shape[dim];
    int64_t bytes =
        dim + 1 < own.rank
            ? more * own.stride[dim]
            : static_cast<int64_t>(keel_dtype_row_bytes(own.dtype, static_cast<uint64_t>(more)));
    own.shape[dim] += more;
    for (uint32_t outer = dim; outer-- > 0;) {
        own.stride[outer] += bytes;
        bytes *= own.shape[outer];
    }
}

} // namespace

template <typename Args>
Args &LargerPlan::start(const void *args, Members<Args> rows, Members<Args> same) {
    args_.assign((sizeof(Args) + 7) / 8, 0);
    std::memcpy(args_.data(), args, sizeof(Args));
    auto &own = *reinterpret_cast<Args *>(args_.data());
    own.h = {sizeof(Args), KEEL_ABI_VERSION};
    own.plan = nullptr;
    for (const auto member : rows) own.*member = grow(own.*member, 0);
    for (const auto member : same) own.*member = copy(own.*member);
    return own;
}

const keel_tensor *LargerPlan::copy(const keel_tensor *t) {
    if (t == nullptr) return nullptr;
    const auto found = grown_.find(t);
    if (found != grown_.end()) return found->second;
    keel_tensor own = *t;
    own.buffer = nullptr;
    own.offset = 0;
    tensors_.push_back(own);
    return grown_[t] = &tensors_.back();
}

const keel_tensor *LargerPlan::grow(const keel_tensor *t, uint32_t dim) {
    if (t == nullptr || grown_.count(t) != 0) return copy(t);
    copy(t);
    grow_dimension(tensors_.back(), dim);
    return &tensors_.back();
}

const keel_tensor *LargerPlan::grow_all(const keel_tensor *t) {
    if (t == nullptr || grown_.count(t) != 0) return copy(t);
    copy(t);
    keel_tensor &own = tensors_.back();
    for (uint32_t dim = 0; dim < own.rank; ++dim)
        if (dim + 1 < own.rank || keel_dtype_block(own.dtype) == 1) grow_dimension(own, dim);
    return &own;
}

const keel_tensor *LargerPlan::grow_rows(const keel_tensor *t) {
    return t != nullptr && t->rank > 1 ? grow(t, 0) : copy(t);
}

const keel_kv_view *LargerPlan::grow(const keel_kv_view *view) {
    const auto found = grown_views_.find(view);
    if (found != grown_views_.end()) return found->second;
    keel_kv_view own = *view;
    own.k = grow(view->k, 0);
    own.v = grow(view->v, 0);
    own.block_table = grow(view->block_table, 1);
    own.positions = grow(view->positions, 1);
    own.lengths = copy(view->lengths);
    own.max_length = larger(view->max_length);
    views_.push_back(own);
    return grown_views_[view] = &views_.back();
}

const keel_scores *LargerPlan::grow(const keel_scores *scores) {
    if (scores == nullptr) return nullptr;
    keel_scores own = *scores;
    own.out = grow(scores->out, 1);
    scores_.push_back(own);
    return &scores_.back();
}

LargerPlan::LargerPlan(keel_op op, const void *args) {
    switch (op) {
    case KEEL_OP_MATMUL: {
        using A = keel_matmul_args;
        start<A>(args, {&A::x, &A::out}, {&A::w, &A::bias});
        return;
    }
    case KEEL_OP_EMBED: {
        using A = keel_embed_args;
        start<A>(args, {&A::ids, &A::out}, {&A::w});
        return;
    }
    case KEEL_OP_CHOOSE_EXPERTS: {
        using A = keel_choose_experts_args;
        start<A>(args, {&A::logits, &A::index, &A::weights}, {&A::bias});
        return;
    }
    case KEEL_OP_EXPERT_MATMUL: {
        using A = keel_expert_matmul_args;
        start<A>(args, {&A::x, &A::index, &A::weights, &A::out}, {&A::w});
        return;
    }
    case KEEL_OP_RMS_NORM:
    case KEEL_OP_ADD_RMS_NORM:
    case KEEL_OP_LAYER_NORM: {
        using A = keel_norm_args;
        start<A>(args, {&A::x, &A::residual, &A::out}, {&A::weight, &A::bias});
        return;
    }
    case KEEL_OP_SILU_MUL:
    case KEEL_OP_GELU_MUL: {
        using A = keel_gate_args;
        start<A>(args, {&A::gate, &A::up, &A::out});
        return;
    }
    case KEEL_OP_ADD:
    case KEEL_OP_ADD_BIAS:
    case KEEL_OP_SCALE:
    case KEEL_OP_SCALED_ADD: {
        auto &a = start<keel_elementwise_args>(args);
        a.a = grow_rows(a.a);
        a.b = op == KEEL_OP_ADD_BIAS ? copy(a.b) : grow_rows(a.b);
        a.out = grow_rows(a.out);
        return;
    }
    case KEEL_OP_TRANSPOSE: {
        auto &a = start<keel_move_args>(args);
        a.x = grow(a.x, 0);
        a.out = grow(a.out, 1);
        return;
    }
    case KEEL_OP_COPY:
    case KEEL_OP_ZERO: {
        auto &a = start<keel_move_args>(args);
        a.x = grow_all(a.x);
        a.out = grow_all(a.out);
        return;
    }
    case KEEL_OP_SOFTMAX:
    case KEEL_OP_CAST: {
        auto &a = start<keel_move_args>(args);
        a.x = grow_rows(a.x);
        a.out = grow_rows(a.out);
        return;
    }
    case KEEL_OP_ROPE: {
        using A = keel_rope_args;
        start<A>(args, {&A::x, &A::positions, &A::out});
        return;
    }
    case KEEL_OP_QKV_PREPARE: {
        using A = keel_qkv_args;
        auto &a = start<A>(args, {&A::q, &A::k, &A::v, &A::positions, &A::q_out, &A::q_unrotated,
                                  &A::k_unrotated});
        a.kv = grow(a.kv);
        return;
    }
    case KEEL_OP_ATTENTION: {
        using A = keel_attention_args;
        auto &a = start<A>(args, {&A::q, &A::out, &A::q_positions, &A::lse});
        a.kv = grow(a.kv);
        a.scores = grow(a.scores);
        return;
    }
    case KEEL_OP_ATTENTION_SCORES: {
        using A = keel_attention_scores_args;
        auto &a = start<A>(args, {&A::q, &A::ranges, &A::q_positions});
        a.weights = grow(a.weights, 1);
        a.kv = grow(a.kv);
        a.scores = grow(a.scores);
        return;
    }
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: {
        using A = keel_keys_args;
        auto &a = start<A>(args, {}, {&A::projection});
        a.kv = grow(a.kv);
        a.out = op == KEEL_OP_KEY_SUM ? copy(a.out) : grow(a.out, 1);
        a.begin = 0;
        a.end = larger(a.end);
        return;
    }
    case KEEL_OP_QUERY_STATS: {
        using A = keel_query_stats_args;
        start<A>(args, {&A::q}, {&A::sum, &A::second});
        return;
    }
    case KEEL_OP_KV_APPEND: {
        using A = keel_kv_append_args;
        auto &a = start<A>(args, {&A::k, &A::v, &A::positions});
        a.kv = grow(a.kv);
        return;
    }
    case KEEL_OP_KV_GATHER: {
        using A = keel_kv_gather_args;
        auto &a = start<A>(args, {}, {&A::count});
        a.from = grow(a.from);
        a.to = grow(a.to);
        a.index = grow(a.index, 1);
        for (uint32_t i = 0; i < a.n_sides; ++i) sides_.push_back(grow(a.sides[i], 1));
        tensors_.push_back(*a.index); // a separate, larger copy
        tensors_.back().dtype = KEEL_DTYPE_F32;
        sides_.push_back(&tensors_.back());
        a.sides = sides_.data();
        ++a.n_sides;
        return;
    }
    case KEEL_OP_KV_REROTATE: {
        auto &a = start<keel_kv_rerotate_args>(args);
        a.kv = grow(a.kv);
        a.row = grow(a.row, 1);
        a.new_positions = grow(a.new_positions, 1);
        if (a.source == nullptr) { // without `source`, the args do not contain the number of slots
            a.begin = 0;
            a.end = larger(a.end);
            return;
        }
        a.source = grow(a.source, 1);
        a.begin = 0;
        a.end = a.source->shape[1];
        return;
    }
    case KEEL_OP_ARGMAX_ROWS:
    case KEEL_OP_TOP_K_ROWS: {
        using A = keel_rows_args;
        start<A>(args, {&A::x, &A::values, &A::index});
        return;
    }
    default: throw Unusable{"an op without a larger plan"};
    }
}

} // namespace keel::conformance
