#pragma once

#include "graph/rope_tables.hpp"
#include "graph/step_tap.hpp"
#include "graph/weights.hpp"
#include "ops/batched_decode.hpp"
#include "ops/executor.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace keel {

struct GraphOptions {
    uint32_t max_tokens = 512; // of a step: the prefill chunk
    uint32_t max_logit_rows =
        1; // how many of a step's last tokens may go through the output projection
    const keel_kv_view *kv =
        nullptr;              // a view without memory, of the largest cache: the template for plans
    TapForms taps = {};       // by-products that steps are planned for, see taps()
    int64_t rope_rows = 2048; // rows of the RoPE tables: no fewer than a step's tokens
    uint32_t batch = 1;       // sequences of a batched step at most, see forward_batch
    const keel_batch_kv *batch_kv =
        nullptr; // as kv, of so many; NULL: without keel.batched_decode/1
};

// The ops of steps that leave something for a policy, in the place of the plain ones where those do not do; [layers], or empty.
struct GraphTaps {
    struct Layer {
        OpHandle qkv_prepare, attention;
    };
    std::vector<Layer> decode, prefill;
    std::vector<const PlannedOp *> ops() const;
};

// What a step leaves for a policy; nothing by default. Both outlive the step.
struct StepTaps {
    const GraphTaps *ops = nullptr; // for the tap's forms
    StepTap *tap = nullptr;
};

// A sequence's part in a batched step.
struct BatchRow {
    std::span<const keel_kv_view *const> kv; // of its cache, by layer
    StepTaps taps;
};

// A decoder of the Llama family: embedding, layers of attention and a gated feed-forward network, norm, output projection. Holds the
// planned ops (apart for decode and prefill, whose best kernels differ) and a workspace made once, so that a step allocates nothing.
// Of weights that hold some layers only it is those layers: without the first it goes on from the residual stream that the layers before
// left on another device, without the last it leaves it for the next (forward_residual, read_residual).
// Describes Hugging Face's LlamaForCausalLM; what other architectures change is data in ModelConfig (biases, head norms, norms behind
// attention and feed-forward, activation, scales, soft-caps, windows and RoPE layer by layer).
class Graph {
  public:
    Graph(Executor &executor, ModelWeights &weights, const GraphOptions &options);

    // One step over m = ids.size() tokens, 1..max_tokens. Their cache slots were made by KvCache::append; `positions` are their RoPE
    // positions, [m]. Queues everything and submits nothing of its own accord, so that what follows (argmax, a read) goes along in one submit. The logits of the
    // last `logit_rows` tokens stand in logits() when the stream gets there. `kv[layer]` are the cache's views.
    void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 std::span<const keel_kv_view *const> kv, uint32_t logit_rows,
                 const StepTaps &taps = {});
    // As forward, of layers behind the first: `residual` f32 [m, hidden], in host memory, is what the layers before left.
    void forward_residual(std::span<const float> residual, std::span<const int32_t> positions,
                          std::span<const keel_kv_view *const> kv, uint32_t logit_rows,
                          const StepTaps &taps = {});
    // The residual stream behind the last layer, f32 [m, hidden] of the last step's m tokens: waits and reads.
    void read_residual(std::vector<float> &out) const;
    // Plans what steps with such by-products run differently. May be asked at any time between steps.
    std::unique_ptr<GraphTaps> plan_taps(const TapForms &forms);
    const GraphTaps &taps() const { return *taps_; } // of GraphOptions::taps
    // As forward, of the one token that the argmax queued last finds, which the host need not know: the embedding reads next_id().
    void forward_next(std::span<const int32_t> positions, std::span<const keel_kv_view *const> kv);
    // Whether such a step runs from its token to its logits without the host.
    bool can_run_ahead() const {
        return executor_.can_run_ahead() && !probe_ && weights_.has_embedding() &&
               weights_.has_output();
    }

    // One step in which n = ids.size() sequences advance by a token each, 1..GraphOptions::batch: row i is the next token of the sequence
    // with the cache rows[i], which has made its slot already. Everything but attention runs once, over all rows: each weight is read
    // once for all of them. Row i of the logits is that of sequence i. Of a graph that holds all layers; throws Error(internal) else.
    // `together`: the caches as one view, by layer, where they have it: attention is then one call as well where the backend has
    // keel.batched_decode/1 and no row leaves anything for a policy.
    void forward_batch(std::span<const int32_t> ids, std::span<const int32_t> positions,
                       std::span<const BatchRow> rows,
                       std::span<const keel_batch_kv *const> together = {});
    bool attends_together() const { return batched_ != nullptr; } // the backend has that extension

    // As the output projection leaves them, f32 [rows, vocab]. Their order is that of the model's logits, their values are not where the
    // model caps them: values are taken from read_logits.
    Tensor logits(uint32_t rows) const { return logits_.rows(0, rows); }
    // The model's logits of the last step, [rows, vocab]: waits, reads, and applies ModelConfig::logit_softcap, on the host because no op
    // has a tanh of its own. The one place where logits become numbers for others. `first`: the row that they begin with.
    void read_logits(uint32_t rows, float *out, uint32_t first = 0) const;
    // How often something was queued that writes over tokens or logits: whoever finds it as it was knows that they still are its own.
    uint64_t turn() const { return turn_; }
    // Queues argmax over the first row of logits; the token lands in next_id(), until the next step is queued.
    void queue_argmax();
    const Tensor &next_id() const { return next_id_; } // i32 [1]
    LaterRead start_reading_next_id() const;           // see Stream::start_read
    // The same of the n rows of a batched step; their tokens land in next_ids(n).
    void queue_batch_argmax(uint32_t n);
    Tensor next_ids(uint32_t n) const { return next_ids_.rows(0, n); } // i32 [n]

    // Called after each layer with its number (-1: after the embedding) and the residual stream, f32 [m, hidden], during the steps while
    // it is set. Makes a step slow: for finding where a number went wrong.
    using Probe = std::function<void(int64_t layer, const Tensor &residual)>;
    void set_probe(Probe probe) { probe_ = std::move(probe); }

    std::vector<const PlannedOp *> decode_ops() const;
    std::vector<const PlannedOp *> prefill_ops() const;
    std::vector<const PlannedOp *> batch_ops() const; // none without GraphOptions::batch
    // Why decode steps are not recorded and submitted again; empty: they are.
    std::string why_not_recorded() const;
    uint32_t max_tokens() const { return options_.max_tokens; }

  private:
    // The ops of one layer, or those outside the layers, for one kind of step.
    struct LayerOps {
        OpHandle attention_norm, qkv_prepare, attention, attention_out, ffn_norm, activation, down;
        std::vector<OpHandle> qkv, gate_up; // one for each part of the matrix
        // Only with post_norms, where attention_out and down write to h_ instead of adding to the residual stream.
        OpHandle post_attention_norm, attention_add, post_ffn_norm, ffn_add;
    };
    struct StepOps {
        OpHandle embed, final_norm, output;
        std::vector<LayerOps> layers;
    };

    void make_workspace(bool with_memory);
    // A batch has no ops between the projections of a layer's attention.
    StepOps plan(uint32_t m, uint32_t logit_rows, StepForm form);
    void plan_layer(StepOps &ops, size_t i, uint32_t m, StepForm form);
    std::vector<OpHandle> plan_parts(RowParts &parts, const Tensor &x, const Tensor &bias,
                                     const Tensor &out, OpTag tag);
    void run_parts(std::vector<OpHandle> &ops, RowParts &parts, const Tensor &x, const Tensor &bias,
                   const Tensor &out);
    void check_step(size_t m, uint32_t logit_rows) const;
    // `ids` empty: x_ holds the residual stream.
    void run(const Tensor &ids, uint32_t m, std::span<const int32_t> positions,
             std::span<const keel_kv_view *const> kv, uint32_t logit_rows, const StepTaps &taps);
    std::span<const keel_kv_view *const> lasting_views(std::span<const keel_kv_view *const> kv);
    void project_qkv(LayerOps &ops, size_t i, uint32_t m);  // a layer up to its attention
    void finish_layer(LayerOps &ops, size_t i, uint32_t m); // and from there on
    void run_output(StepOps &ops, uint32_t m, uint32_t logit_rows);
    bool ensure_rotations(std::span<const int32_t> positions);
    void settle_batch();
    void attend_together(size_t i, uint32_t n, const keel_batch_kv &kv);
    void attend_apart(size_t i, uint32_t n, std::span<const int32_t> positions,
                      std::span<const BatchRow> rows, bool rotations_are_there);
    void attend(LayerOps &ops, size_t i, const Tensor &qkv, const Tensor &out,
                const Tensor &positions, const keel_kv_view *kv, const StepTaps &taps);
    GraphTaps::Layer plan_tap_layer(const TapForms &forms, size_t i, uint32_t m, StepForm form);

    // `layer` is the i-th of this graph's; number() is the model's.
    size_t number(size_t layer) const { return layer + static_cast<size_t>(weights_.part().first); }
    OpTag tag(StepForm form, Role role, size_t layer) const {
        return {form, role, static_cast<int32_t>(number(layer))};
    }
    const RopeTables &rope_of(size_t layer) const {
        return config_.has_local_rope(number(layer)) ? *local_rope_ : rope_;
    }
    OpHandle plan_argmax(uint32_t n, StepForm form);
    keel_op activation_op() const;
    keel_embed_args embed_args(const Tensor &ids, const Tensor &out) const;
    keel_gate_args gate_args(const Tensor &gate, const Tensor &up, const Tensor &out) const;
    keel_norm_args norm_args(const Tensor &x, const Tensor &weight, const Tensor &out) const;
    keel_matmul_args matmul_args(const Tensor &x, const Tensor &bias, const Tensor &out,
                                 bool accumulate) const;

    Executor &executor_;
    ModelWeights &weights_;
    const ModelConfig &config_;
    GraphOptions options_;
    RopeTables rope_;
    std::optional<RopeTables> local_rope_; // of the layers with a window, where they have their own

    // The workspace. m = max_tokens; A is the activation dtype.
    Tensor ids_;       // i32 [m]
    Tensor positions_; // i32 [m]
    Tensor x_;         // f32 [m, hidden]: the residual stream
    Tensor h_;         // A [m, hidden]: normalized; with post_norms also what comes back
    Tensor qkv_;       // A [m, q_size + 2 * kv_size]
    Tensor attention_; // A [m, q_size]
    Tensor gate_up_;   // A [m, 2 * intermediate]
    Tensor act_;       // A [m, intermediate]
    Tensor logits_;    // f32 [max_logit_rows, vocab]
    // i32 [batch], the first of ids_: where argmax puts tokens is where the next step takes them from, so that it is one step to whoever
    // records it, whether the host wrote its token or not.
    Tensor next_ids_;
    Tensor next_id_; // i32 [1], its first
    uint64_t turn_ = 0;
    uint32_t last_m_ = 0;
    size_t decode_size_ = 0;               // ops of a decode step
    std::vector<keel_kv_view> step_views_; // see lasting_views
    std::vector<const keel_kv_view *> step_view_list_;

    StepOps decode_, prefill_, batch_; // batch_ has no attention: that is decode_'s, row by row
    std::unique_ptr<GraphTaps> taps_;
    std::unique_ptr<BatchedDecode> batched_; // NULL: sequences attend one by one
    OpHandle argmax_, batch_argmax_;
    Probe probe_;
};

} // namespace keel
