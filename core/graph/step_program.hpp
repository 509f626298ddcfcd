#pragma once

#include "graph/step_args.hpp"
#include "graph/workspace.hpp"
#include "ops/executor.hpp"

#include <span>
#include <vector>

namespace keel {

// This file has the only list of a step's ops. The walk functions call a `hand` for each op, in
// order. The hand plans the op or runs it:
//     hand(tag, op, args, weight)  an op; the tag has no form
//     hand.attend(layer)           attention: walk_attention(), once or for each segment
//     hand.again()                 the next call repeats the last op for other rows
// A new op in a layer is a new call here and a new Role.

// Rows of a step.
struct RowRange {
    uint32_t first = 0, count = 0;
};

// The rows of the workspace that a step of m tokens uses.
struct StepRows {
    StepRows(const Workspace &w, uint32_t m)
        : ids(w.ids.rows(0, m)), x(w.x.rows(0, m)), h(w.h.rows(0, m)), qkv(w.qkv.rows(0, m)),
          attention(w.attention.rows(0, m)) {
        if (!w.gate_up.empty()) {
            const int64_t intermediate = w.act.dim(1);
            gate_up = w.gate_up.rows(0, m);
            gate = gate_up.columns(0, intermediate);
            up = gate_up.columns(intermediate, intermediate);
            act = w.act.rows(0, m);
        }
    }
    Tensor ids, x, h, qkv, attention, gate_up, gate, up, act;
};

// The rows of the workspace for a feed-forward with experts.
struct ExpertRows {
    ExpertRows(const Workspace &w, const Experts &e, int64_t m)
        : router(w.router.rows(0, m)), chosen(w.chosen.rows(0, m)),
          weights(w.chosen_weights.rows(0, m)),
          gate_up(w.expert_gate_up.rows(0, m).reshape({m, e.used, 2 * e.size})),
          act(w.expert_act.rows(0, m).reshape({m, e.used, e.size})) {
        const Tensor pairs = w.expert_gate_up.rows(0, m).reshape({m * e.used, 2 * e.size});
        gates = pairs.columns(0, e.size);
        ups = pairs.columns(e.size, e.size);
        acts = w.expert_act.rows(0, m).reshape({m * e.used, e.size});
    }
    Tensor router, chosen, weights;
    Tensor gate_up, act;     // [m, used, ...]
    Tensor gates, ups, acts; // the same memory, [m * used, size]
};

inline OpTag layer_tag(const Decoder &d, size_t layer, Role role) {
    return {StepForm::none, role, static_cast<int32_t>(d.number(layer))};
}

// For models that scale queries by their position. The scale changes only every query_scale_context
// positions, so there is an op for each run of rows with one scale.
template <typename Hand>
void walk_query_scales(const Decoder &d, size_t layer, const AttentionCall &call, Hand &hand) {
    const auto rows = static_cast<uint32_t>(call.q.dim(0));
    for (uint32_t first = 0, end = 0; first < rows; first = end) {
        if (first > 0) hand.again();
        const double scale = call.host_at.empty() ? 1 : d.config().query_scale(call.host_at[first]);
        end = call.host_at.empty() ? rows : first + 1;
        while (end < rows && d.config().query_scale(call.host_at[end]) == scale) ++end;
        const Tensor q = call.q.rows(first, end - first);
        hand(layer_tag(d, layer, Role::query_scale), KEEL_OP_SCALE, scale_args(q, scale));
    }
}

// A layer's ops between its projections.
template <typename Hand>
void walk_attention(const Decoder &d, size_t layer, const AttentionCall &call, Hand &hand) {
    if (d.config().query_scale_beta != 0) walk_query_scales(d, layer, call, hand);
    hand(layer_tag(d, layer, Role::qkv_prepare), KEEL_OP_QKV_PREPARE, call.prepare);
    hand(layer_tag(d, layer, Role::attention), KEEL_OP_ATTENTION, call.attention);
}

// out = x times a matrix, which may be stored in parts.
template <typename Hand>
void walk_parts(OpTag tag, RowParts &parts, const Tensor &x, const Tensor &bias, const Tensor &out,
                Hand &hand) {
    if (parts.size() == 1) {
        return hand(tag, KEEL_OP_MATMUL, matmul_args(x, bias, out), parts.front().get());
    }
    int64_t at = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t n = parts[i]->rows();
        const Tensor columns = out.columns(at, n), b = bias.empty() ? bias : bias.columns(at, n);
        tag.part = static_cast<uint8_t>(i);
        hand(tag, KEEL_OP_MATMUL, matmul_args(x, b, columns), parts[i].get());
        at += n;
    }
}

// Adds the result of attention or feed-forward to the residual stream. Some models first normalize
// the result (post_norms) or multiply it by a number (residual_scale). Then the result is in h.
// Otherwise the op that computes the result also adds it, and no op is left to do here.
struct ResidualAdd {
    Role norm, add;
    const Tensor &norm_weight;
};

template <typename Hand>
void walk_add(const Decoder &d, const StepRows &rows, size_t layer, const ResidualAdd &r,
              Hand &hand) {
    const ModelConfig &c = d.config();
    if (adds_directly(c)) return;
    if (c.post_norms)
        hand(layer_tag(d, layer, r.norm), norm_op(c), norm_args(c, rows.h, r.norm_weight, rows.h));
    if (c.residual_scale == 1) {
        hand(layer_tag(d, layer, r.add), KEEL_OP_ADD, add_args(rows.x, rows.h));
    } else {
        hand(layer_tag(d, layer, r.add), KEEL_OP_SCALED_ADD,
             scaled_add_args(rows.x, rows.h, c.residual_scale));
    }
}

// The product with a matrix whose result is added to the residual stream.
struct ResidualProduct {
    Role product, norm, add;
    Weight *weight;
    const Tensor &bias, &norm_weight;
};

template <typename Hand>
void walk_residual(const Decoder &d, const StepRows &rows, size_t layer, const Tensor &x,
                   const ResidualProduct &p, Hand &hand) {
    const bool is_direct = adds_directly(d.config());
    hand(layer_tag(d, layer, p.product), KEEL_OP_MATMUL,
         matmul_args(x, p.bias, is_direct ? rows.x : rows.h, is_direct), p.weight);
    walk_add(d, rows, layer, {p.norm, p.add, p.norm_weight}, hand);
}

// The norms on queries and keys that are computed over all heads together. Norms on single heads
// are a part of KEEL_OP_QKV_PREPARE.
template <typename Hand>
void walk_joint_norms(const Decoder &d, const StepRows &rows, size_t layer, Hand &hand) {
    const ModelConfig &c = d.config();
    const LayerWeights &w = d.layer(layer);
    const Tensor q = rows.qkv.columns(0, c.q_size()), k = rows.qkv.columns(c.q_size(), c.kv_size());
    hand(layer_tag(d, layer, Role::q_norm), KEEL_OP_RMS_NORM, norm_args(c, q, w.q_norm, q));
    hand(layer_tag(d, layer, Role::k_norm), KEEL_OP_RMS_NORM, norm_args(c, k, w.k_norm, k));
}

// The expert that all tokens use, up to its last product. The ops of experts multiply the result of
// the last product by a sigmoid: there is one expert, and its weight is the sigmoid of its logit.
template <typename Hand>
void walk_shared_expert(const Decoder &d, const Workspace &space, const StepRows &rows,
                        size_t layer, const Tensor &in, Hand &hand) {
    const ModelConfig &c = d.config();
    LayerWeights &w = d.layer(layer);
    const auto tag = [&](Role role) { return layer_tag(d, layer, role); };
    const int64_t m = in.dim(0);
    const Tensor logit = space.shared_logit.rows(0, m), weight = space.shared_weight.rows(0, m),
                 index = space.shared_index.rows(0, m);
    walk_parts(tag(Role::shared_gate_up), w.gate_up, in, {}, rows.gate_up, hand);
    hand(tag(Role::shared_activation), activation_op(c),
         gate_args(c, rows.gate, rows.up, rows.act));
    hand(tag(Role::shared_router), KEEL_OP_MATMUL, matmul_args(in, {}, logit),
         w.shared_router.get());
    keel_choose_experts_args choice = choose_args({}, logit, index, weight);
    choice.features = KEEL_CHOOSE_SIGMOID;
    hand(tag(Role::shared_choice), KEEL_OP_CHOOSE_EXPERTS, choice);
}

// A feed-forward that is a mixture of experts, after its norm. `in` is its input. If the result is
// not added directly, the result is written to h. h can be the input, so the products that write
// the result come last.
template <typename Hand>
void walk_experts(const Decoder &d, const Workspace &space, const StepRows &rows, size_t layer,
                  const Tensor &in, Hand &hand) {
    const ModelConfig &c = d.config();
    LayerWeights &w = d.layer(layer);
    const auto tag = [&](Role role) { return layer_tag(d, layer, role); };
    const Experts &e = c.experts;
    const int64_t m = in.dim(0);
    const ExpertRows r(space, e, m);
    const bool has_shared = e.shared_size > 0, is_direct = adds_directly(c);
    if (has_shared) walk_shared_expert(d, space, rows, layer, in, hand);
    hand(tag(Role::router), KEEL_OP_MATMUL, matmul_args(in, {}, r.router), w.router.get());
    hand(tag(Role::choose_experts), KEEL_OP_CHOOSE_EXPERTS,
         choose_args(e, r.router, r.chosen, r.weights));
    const Tensor x = in.reshape({m, 1, c.hidden_size});
    OpTag part = tag(Role::gate_up);
    for (size_t i = 0; i < w.expert_gate_up.size(); ++i) {
        const int64_t n = w.expert_gate_up[i]->rows() / e.count;
        part.part = static_cast<uint8_t>(i);
        hand(part, KEEL_OP_EXPERT_MATMUL,
             expert_args(e.count, x, r.chosen, r.gate_up.columns(static_cast<int64_t>(i) * n, n)),
             w.expert_gate_up[i].get());
    }
    hand(tag(Role::activation), activation_op(c), gate_args(c, r.gates, r.ups, r.acts));
    const Tensor &out = is_direct ? rows.x : rows.h;
    if (has_shared)
        hand(tag(Role::shared_down), KEEL_OP_EXPERT_MATMUL,
             expert_sum_args(1, rows.act.reshape({m, 1, rows.act.dim(1)}),
                             space.shared_index.rows(0, m), space.shared_weight.rows(0, m), out,
                             is_direct),
             w.down.get());
    hand(tag(Role::down), KEEL_OP_EXPERT_MATMUL,
         expert_sum_args(e.count, r.act, r.chosen, r.weights, out, is_direct || has_shared),
         w.expert_down.get());
    walk_add(d, rows, layer, {Role::post_ffn_norm, Role::ffn_add, w.post_ffn_norm}, hand);
}

template <typename Hand>
void walk_layer(const Decoder &d, const Workspace &space, const StepRows &rows, size_t layer,
                Hand &hand) {
    const ModelConfig &c = d.config();
    LayerWeights &w = d.layer(layer);
    const auto tag = [&](Role role) { return layer_tag(d, layer, role); };
    const Tensor &in = c.pre_norms ? rows.h : rows.x; // of attention and of feed-forward
    if (c.pre_norms)
        hand(tag(Role::attention_norm), norm_op(c), norm_args(c, rows.x, w.attention_norm, rows.h));
    walk_parts(tag(Role::qkv), w.qkv, in, w.qkv_bias, rows.qkv, hand);
    if (c.qk_norm_joint) walk_joint_norms(d, rows, layer, hand);
    hand.attend(layer);
    walk_residual(d, rows, layer, rows.attention,
                  {Role::attention_out, Role::post_attention_norm, Role::attention_add,
                   w.attention_out.get(), w.attention_out_bias, w.post_attention_norm},
                  hand);
    if (c.pre_norms && !c.parallel_blocks) // with parallel blocks, h still has the norm of x
        hand(tag(Role::ffn_norm), norm_op(c), norm_args(c, rows.x, w.ffn_norm, rows.h));
    if (c.experts.count > 0) return walk_experts(d, space, rows, layer, in, hand);
    walk_parts(tag(Role::gate_up), w.gate_up, in, w.gate_up_bias, rows.gate_up, hand);
    hand(tag(Role::activation), activation_op(c), gate_args(c, rows.gate, rows.up, rows.act));
    walk_residual(d, rows, layer, rows.act,
                  {Role::down, Role::post_ffn_norm, Role::ffn_add, w.down.get(), w.down_bias,
                   w.post_ffn_norm},
                  hand);
}

// The output projection computes only the rows in `logits`, and writes them to rows 0, 1, ... of
// the logits.
template <typename Hand>
void walk_output(const Decoder &d, const Workspace &w, std::span<const RowRange> logits,
                 Hand &hand) {
    uint32_t n = 0;
    for (const RowRange &range : logits) {
        if (n > 0) hand.again();
        hand({.role = Role::final_norm}, norm_op(d.config()),
             norm_args(d.config(), w.x.rows(range.first, range.count), d.weights().final_norm(),
                       w.h.rows(n, range.count)));
        n += range.count;
    }
    if (n == 0) return;
    hand({.role = Role::output}, KEEL_OP_MATMUL,
         matmul_args(w.h.rows(0, n), {}, w.logits.rows(0, n)), &d.weights().output());
}

template <typename Hand>
void walk_step(const Decoder &d, const Workspace &w, uint32_t m, std::span<const RowRange> logits,
               Hand &hand) {
    const StepRows rows(w, m);
    if (d.has_embedding()) {
        hand({.role = Role::embed}, KEEL_OP_EMBED, embed_args(d.config(), rows.ids, rows.x),
             &d.weights().embedding());
    }
    for (size_t layer = 0; layer < d.layers(); ++layer) walk_layer(d, w, rows, layer, hand);
    walk_output(d, w, logits, hand);
}

// The ops of one form of a step, in the order in which they run.
class StepProgram {
  public:
    struct Limits {
        uint32_t tokens = 0, logit_rows = 0; // the most tokens and rows of logits in a step of this
                                             // form
    };

    StepProgram() = default; // no ops
    // Plans the ops. A batch has no attention ops of its own, because its segments use the
    // attention ops of decode steps. `kv` is a view without memory, of the largest cache.
    StepProgram(Executor &executor, const Decoder &decoder, const Workspace &workspace,
                StepForm form, const Limits &limits, const keel_kv_view *kv);

    size_t size() const { return ops_.size(); }
    const Limits &limits() const { return limits_; }
    std::vector<const PlannedOp *> list() const;
    std::span<const OpHandle> attention(size_t layer) const; // the ops of walk_attention()

    // Runs a step of m tokens, with logits of some rows; attend(layer) runs the attention of a
    // layer. Throws Error(internal) if the ops differ from the planned ones.
    template <typename Attend>
    void run(Executor &executor, const Decoder &decoder, const Workspace &workspace, uint32_t m,
             std::span<const RowRange> logits, const Attend &attend) const {
        RunHand<Attend> hand{*this, executor, attend};
        walk_step(decoder, workspace, m, logits, hand);
        check_end(hand.next, logits.empty());
    }

    // Runs only the final norm and the output projection, for rows of the last step.
    void run_output(Executor &executor, const Decoder &decoder, const Workspace &workspace,
                    const RowRange &rows) const;

  private:
    struct PlanHand;
    template <typename Attend> struct RunHand {
        const StepProgram &program;
        Executor &executor;
        const Attend &attention;
        size_t next = 0;

        template <typename Args>
        void operator()(const OpTag &tag, keel_op, const Args &args, Weight * = nullptr) {
            executor.run(program.op(next++, tag), args);
        }
        void attend(size_t layer) {
            attention(layer);
            next += program.attention(layer).size();
        }
        void again() { --next; }
    };

    PlannedOp &op(size_t at, const OpTag &tag) const; // which has that role and layer
    void check_end(size_t at, bool without_logits) const;

    Limits limits_;
    std::vector<OpHandle> ops_;
    std::vector<size_t> attention_; // by layer: the index of its first op
    size_t attention_ops_ = 0;      // number of ops of each layer's attention
    size_t output_ = 0;             // the index of the first op after the layers
};

// The residual stream after an op, f32 [m, hidden], if the op is the embedding or the last of a
// layer. NULL for other ops. `config` is the config of the op's model.
const keel_tensor *residual_after(const ModelConfig &config, const PlannedOp &op,
                                  const keel_op_args *args);

} // namespace keel
