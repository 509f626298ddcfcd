#include "graph/graph.hpp"

#include "graph/graph_args.hpp"

#include "base/error.hpp"
#include "device/device.hpp"
#include "model/rope_frequencies.hpp"

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

keel_rows_args argmax_args(const Tensor &rows, const Tensor &ids) {
    keel_rows_args a = {KEEL_HEADER(keel_rows_args)};
    a.x = rows.c();
    a.index = ids.c();
    return a;
}

} // namespace

Graph::Graph(Executor &executor, ModelWeights &weights, const GraphOptions &options)
    : executor_(executor), weights_(weights), config_(weights.config()), options_(options),
      rope_(rope_frequencies(config_.rope_theta, config_.head_dim, config_.rope_scaling),
            options.rope_rows, KEEL_ROPE_HALF_SPLIT) {
    if (config_.local_rope_theta) {
        local_rope_.emplace(rope_frequencies(*config_.local_rope_theta, config_.head_dim, {}),
                            options.rope_rows, KEEL_ROPE_HALF_SPLIT);
    }
    // First with shapes only: where the memory is best placed is known when all ops have found their rung.
    make_workspace(false);
    decode_ = plan(1, 1, StepForm::decode);
    if (options_.max_tokens > 1)
        prefill_ = plan(options_.max_tokens, options_.max_logit_rows, StepForm::prefill);
    if (options_.batch > 1) {
        batch_ = plan(options_.batch, options_.batch, StepForm::batch);
        settle_batch();
    }
    decode_size_ = decode_ops().size();
    taps_ = plan_taps(options_.taps);
    if (weights_.has_output()) {
        argmax_ = plan_argmax(1, StepForm::decode);
        if (options_.batch > 1) batch_argmax_ = plan_argmax(options_.batch, StepForm::batch);
    }
    make_workspace(true);
    rope_.place(executor_.device(), executor_.placement());
    if (local_rope_) local_rope_->place(executor_.device(), executor_.placement());
}

OpHandle Graph::plan_argmax(uint32_t n, StepForm form) {
    return executor_.plan(KEEL_OP_ARGMAX_ROWS,
                          argmax_args(logits_.rows(0, n), next_ids_.rows(0, n)),
                          {form, Role::argmax});
}

void Graph::make_workspace(bool with_memory) {
    Device &device = executor_.device();
    const auto make = [&](keel_dtype dtype, std::initializer_list<int64_t> dims) {
        return with_memory ? Tensor::allocate(device, dtype, dims, executor_.placement())
                           : Tensor::shape(dtype, dims);
    };
    const int64_t m = std::max(options_.max_tokens, options_.batch),
                  ffn = config_.intermediate_size;
    const keel_dtype A = device.info().activation_dtype;
    ids_ = make(KEEL_DTYPE_I32, {m});
    positions_ = make(KEEL_DTYPE_I32, {m});
    x_ = make(KEEL_DTYPE_F32, {m, config_.hidden_size});
    h_ = make(A, {m, config_.hidden_size});
    qkv_ = make(A, {m, config_.q_size() + 2 * config_.kv_size()});
    attention_ = make(A, {m, config_.q_size()});
    gate_up_ = make(A, {m, 2 * ffn});
    act_ = make(A, {m, ffn});
    if (!weights_.has_output()) return;
    logits_ = make(KEEL_DTYPE_F32,
                   {std::max(options_.max_logit_rows, options_.batch), config_.vocab_size});
    next_ids_ = ids_.rows(0, options_.batch);
    next_id_ = next_ids_.rows(0, 1);
}

keel_norm_args Graph::norm_args(const Tensor &x, const Tensor &weight, const Tensor &out) const {
    keel_norm_args a = {KEEL_HEADER(keel_norm_args)};
    a.x = x.c();
    a.weight = weight.c();
    a.out = out.c();
    a.eps = static_cast<float>(config_.rms_norm_eps);
    return a;
}

keel_matmul_args Graph::matmul_args(const Tensor &x, const Tensor &bias, const Tensor &out,
                                    bool accumulate) const {
    keel_matmul_args a = {KEEL_HEADER(keel_matmul_args)};
    a.features = (accumulate ? KEEL_MATMUL_ACCUMULATE : 0) | (bias.empty() ? 0 : KEEL_MATMUL_BIAS);
    a.x = x.c();
    a.bias = bias.c();
    a.out = out.c();
    return a;
}

namespace {

keel_elementwise_args add_args(const Tensor &a, const Tensor &b) {
    keel_elementwise_args e = {KEEL_HEADER(keel_elementwise_args)};
    e.a = a.c();
    e.b = b.c();
    e.out = a.c(); // in place
    return e;
}

} // namespace

keel_op Graph::activation_op() const {
    return config_.activation == Activation::silu ? KEEL_OP_SILU_MUL : KEEL_OP_GELU_MUL;
}

keel_gate_args Graph::gate_args(const Tensor &gate, const Tensor &up, const Tensor &out) const {
    keel_gate_args a = {KEEL_HEADER(keel_gate_args)};
    a.features = config_.activation == Activation::gelu_tanh ? KEEL_GELU_TANH : 0;
    a.gate = gate.c();
    a.up = up.c();
    a.out = out.c();
    return a;
}

keel_embed_args Graph::embed_args(const Tensor &ids, const Tensor &out) const {
    keel_embed_args a = {KEEL_HEADER(keel_embed_args)};
    a.ids = ids.c();
    a.out = out.c();
    a.scale = static_cast<float>(config_.embedding_scale);
    return a;
}

Graph::StepOps Graph::plan(uint32_t m, uint32_t logit_rows, StepForm form) {
    StepOps ops;
    const Tensor ids = ids_.rows(0, m), x = x_.rows(0, m);
    if (weights_.has_embedding()) {
        ops.embed = executor_.plan(KEEL_OP_EMBED, embed_args(ids, x), {form, Role::embed},
                                   &weights_.embedding());
    }
    for (size_t i = 0; i < static_cast<size_t>(weights_.part().count()); ++i)
        plan_layer(ops, i, m, form);
    if (!weights_.has_output()) return ops;
    const Tensor last = x_.rows(0, logit_rows), h = h_.rows(0, logit_rows),
                 logits = logits_.rows(0, logit_rows);
    ops.final_norm = executor_.plan(KEEL_OP_RMS_NORM, norm_args(last, weights_.final_norm(), h),
                                    {form, Role::final_norm});
    ops.output = executor_.plan(KEEL_OP_MATMUL, matmul_args(h, {}, logits, false),
                                {form, Role::output}, &weights_.output());
    return ops;
}

// A product with each part of a matrix, into its columns of `out`.
std::vector<OpHandle> Graph::plan_parts(RowParts &parts, const Tensor &x, const Tensor &bias,
                                        const Tensor &out, OpTag tag) {
    std::vector<OpHandle> ops;
    for_each_part(parts, bias, out, [&](size_t i, Weight &part, const Tensor &b, const Tensor &y) {
        tag.part = static_cast<uint8_t>(i);
        ops.push_back(executor_.plan(KEEL_OP_MATMUL, matmul_args(x, b, y, false), tag, &part));
    });
    return ops;
}

void Graph::run_parts(std::vector<OpHandle> &ops, RowParts &parts, const Tensor &x,
                      const Tensor &bias, const Tensor &out) {
    for_each_part(parts, bias, out, [&](size_t i, Weight &, const Tensor &b, const Tensor &y) {
        executor_.run(*ops[i], matmul_args(x, b, y, false));
    });
}

void Graph::plan_layer(StepOps &ops, size_t i, uint32_t m, StepForm form) {
    LayerWeights &w = weights_.layer(i);
    LayerOps &l = ops.layers.emplace_back();
    const auto label = [&](Role role) { return tag(form, role, i); };
    const Tensor x = x_.rows(0, m), h = h_.rows(0, m), qkv = qkv_.rows(0, m),
                 attention = attention_.rows(0, m);
    const Tensor gate_up = gate_up_.rows(0, m), act = act_.rows(0, m),
                 positions = positions_.rows(0, m);
    const int64_t ffn = config_.intermediate_size;
    const Tensor gate = gate_up.columns(0, ffn), up = gate_up.columns(ffn, ffn);
    const Tensor heads = attention.reshape({m, config_.heads, config_.head_dim});
    const QkvViews views(qkv, config_);
    Executor &ex = executor_;
    l.attention_norm =
        ex.plan(KEEL_OP_RMS_NORM, norm_args(x, w.attention_norm, h), label(Role::attention_norm));
    l.qkv = plan_parts(w.qkv, h, w.qkv_bias, qkv, label(Role::qkv));
    if (form != StepForm::batch) {
        l.qkv_prepare =
            ex.plan(KEEL_OP_QKV_PREPARE,
                    qkv_args(views, positions, rope_of(i), w, options_.kv, config_.rms_norm_eps),
                    label(Role::qkv_prepare));
        l.attention = ex.plan(KEEL_OP_ATTENTION,
                              attention_args(views.q, options_.kv, heads, positions, config_,
                                             config_.window(number(i))),
                              label(Role::attention));
    }
    const bool post_norms = config_.post_norms;
    l.attention_out =
        ex.plan(KEEL_OP_MATMUL,
                matmul_args(attention, w.attention_out_bias, post_norms ? h : x, !post_norms),
                label(Role::attention_out), w.attention_out.get());
    if (post_norms) {
        l.post_attention_norm = ex.plan(KEEL_OP_RMS_NORM, norm_args(h, w.post_attention_norm, h),
                                        label(Role::post_attention_norm));
        l.attention_add = ex.plan(KEEL_OP_ADD, add_args(x, h), label(Role::attention_add));
    }
    l.ffn_norm = ex.plan(KEEL_OP_RMS_NORM, norm_args(x, w.ffn_norm, h), label(Role::ffn_norm));
    l.gate_up = plan_parts(w.gate_up, h, w.gate_up_bias, gate_up, label(Role::gate_up));
    l.activation = ex.plan(activation_op(), gate_args(gate, up, act), label(Role::activation));
    l.down = ex.plan(KEEL_OP_MATMUL, matmul_args(act, w.down_bias, post_norms ? h : x, !post_norms),
                     label(Role::down), w.down.get());
    if (post_norms) {
        l.post_ffn_norm =
            ex.plan(KEEL_OP_RMS_NORM, norm_args(h, w.post_ffn_norm, h), label(Role::post_ffn_norm));
        l.ffn_add = ex.plan(KEEL_OP_ADD, add_args(x, h), label(Role::ffn_add));
    }
}

void Graph::check_step(size_t m, uint32_t logit_rows) const {
    const uint32_t most = weights_.has_output() ? options_.max_logit_rows : 0;
    if (m > 0 && m <= options_.max_tokens && logit_rows <= std::min<size_t>(m, most)) return;
    throw_error(ErrorKind::internal,
                "a step of {} tokens and {} rows of logits; planned for {} and {}", m, logit_rows,
                options_.max_tokens, most);
}

void Graph::forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                    std::span<const keel_kv_view *const> kv, uint32_t logit_rows,
                    const StepTaps &taps) {
    const auto m = static_cast<uint32_t>(ids.size());
    check_step(ids.size(), logit_rows);
    const Tensor on_device = ids_.rows(0, m);
    ++turn_; // whatever becomes of the step
    on_device.write(ids.data());
    run(on_device, m, positions, kv, logit_rows, taps);
}

void Graph::forward_next(std::span<const int32_t> positions,
                         std::span<const keel_kv_view *const> kv) {
    run(ids_.rows(0, 1), 1, positions, kv, 1, {});
}

LaterRead Graph::start_reading_next_id() const {
    return executor_.stream().start_read(next_id_.buffer()->handle(), next_id_.c()->offset,
                                         next_id_.bytes());
}

void Graph::forward_residual(std::span<const float> residual, std::span<const int32_t> positions,
                             std::span<const keel_kv_view *const> kv, uint32_t logit_rows,
                             const StepTaps &taps) {
    const auto m =
        static_cast<uint32_t>(residual.size() / static_cast<size_t>(config_.hidden_size));
    check_step(m, logit_rows);
    x_.rows(0, m).write(residual.data());
    run({}, m, positions, kv, logit_rows, taps);
}

void Graph::read_residual(std::vector<float> &out) const {
    out.resize(static_cast<size_t>(last_m_) * static_cast<size_t>(config_.hidden_size));
    x_.rows(0, last_m_).read(out.data());
}

void Graph::run(const Tensor &ids, uint32_t m, std::span<const int32_t> positions,
                std::span<const keel_kv_view *const> kv, uint32_t logit_rows,
                const StepTaps &taps) {
    StepOps &ops = m == 1 ? decode_ : prefill_;
    ++turn_;
    rope_.ensure(positions);
    if (local_rope_) local_rope_->ensure(positions);
    const Tensor on_device = positions_.rows(0, m);
    if (positions.size() != m) {
        throw_error(ErrorKind::internal, "{} positions for {} tokens", positions.size(), m);
    }
    on_device.write(positions.data());
    const Tensor x = x_.rows(0, m);
    last_m_ = m;
    std::optional<Executor::Step> step; // one that comes again and again may be recorded
    if (m == 1 && logit_rows <= 1 && !probe_) step.emplace(executor_, decode_size_);
    if (m == 1 && executor_.can_record()) kv = lasting_views(kv);
    if (!ids.empty()) {
        executor_.run(*ops.embed, embed_args(ids, x));
        if (probe_) probe_(-1, x);
    }
    for (size_t i = 0; i < ops.layers.size(); ++i) {
        LayerOps &l = ops.layers[i];
        project_qkv(l, i, m);
        attend(l, i, qkv_.rows(0, m), attention_.rows(0, m), on_device, kv[i], taps);
        finish_layer(l, i, m);
        if (probe_) probe_(static_cast<int64_t>(number(i)), x);
    }
    if (logit_rows > 0) run_output(ops, m, logit_rows);
    if (step) step->end();
}

// Only the last tokens go through the output projection.
void Graph::run_output(StepOps &ops, uint32_t m, uint32_t logit_rows) {
    const Tensor last = x_.rows(m - logit_rows, logit_rows), h = h_.rows(0, logit_rows),
                 logits = logits_.rows(0, logit_rows);
    executor_.run(*ops.final_norm, norm_args(last, weights_.final_norm(), h));
    executor_.run(*ops.output, matmul_args(h, {}, logits, false));
}

void Graph::project_qkv(LayerOps &l, size_t i, uint32_t m) {
    LayerWeights &w = weights_.layer(i);
    const Tensor h = h_.rows(0, m);
    executor_.run(*l.attention_norm, norm_args(x_.rows(0, m), w.attention_norm, h));
    run_parts(l.qkv, w.qkv, h, w.qkv_bias, qkv_.rows(0, m));
}

void Graph::finish_layer(LayerOps &l, size_t i, uint32_t m) {
    LayerWeights &w = weights_.layer(i);
    const Tensor x = x_.rows(0, m), h = h_.rows(0, m), attention = attention_.rows(0, m);
    const Tensor gate_up = gate_up_.rows(0, m), act = act_.rows(0, m);
    const int64_t ffn = config_.intermediate_size;
    const Tensor gate = gate_up.columns(0, ffn), up = gate_up.columns(ffn, ffn);
    Executor &ex = executor_;
    // Into the residual stream, or with post_norms through a norm first.
    const bool post_norms = config_.post_norms;
    ex.run(*l.attention_out,
           matmul_args(attention, w.attention_out_bias, post_norms ? h : x, !post_norms));
    if (post_norms) {
        ex.run(*l.post_attention_norm, norm_args(h, w.post_attention_norm, h));
        ex.run(*l.attention_add, add_args(x, h));
    }
    ex.run(*l.ffn_norm, norm_args(x, w.ffn_norm, h));
    run_parts(l.gate_up, w.gate_up, h, w.gate_up_bias, gate_up);
    ex.run(*l.activation, gate_args(gate, up, act));
    ex.run(*l.down, matmul_args(act, w.down_bias, post_norms ? h : x, !post_norms));
    if (post_norms) {
        ex.run(*l.post_ffn_norm, norm_args(h, w.post_ffn_norm, h));
        ex.run(*l.ffn_add, add_args(x, h));
    }
}

void Graph::read_logits(uint32_t rows, float *out, uint32_t first) const {
    const Tensor logits = logits_.rows(first, rows);
    logits.read(out);
    if (config_.logit_softcap <= 0) return;
    const auto cap = static_cast<float>(config_.logit_softcap);
    const int64_t n = int64_t{rows} * config_.vocab_size;
    for (int64_t i = 0; i < n; ++i)
        out[i] = cap * std::tanh(out[i] / cap);
}

void Graph::queue_argmax() {
    ++turn_;
    const Tensor row = logits_.rows(0, 1);
    executor_.run(*argmax_, argmax_args(row, next_id_));
}

namespace {

template <typename StepOps>
std::vector<const PlannedOp *> listed(const StepOps &ops) {
    std::vector<const PlannedOp *> all;
    if (ops.embed) all.push_back(ops.embed.get());
    for (const auto &l : ops.layers) {
        const auto add = [&](const OpHandle &op) {
            if (op) all.push_back(op.get());
        };
        add(l.attention_norm);
        std::for_each(l.qkv.begin(), l.qkv.end(), add);
        for (const OpHandle *op : {&l.qkv_prepare, &l.attention, &l.attention_out,
                                   &l.post_attention_norm, &l.attention_add, &l.ffn_norm})
            add(*op);
        std::for_each(l.gate_up.begin(), l.gate_up.end(), add);
        for (const OpHandle *op : {&l.activation, &l.down, &l.post_ffn_norm, &l.ffn_add})
            add(*op);
    }
    if (ops.output) {
        all.push_back(ops.final_norm.get());
        all.push_back(ops.output.get());
    }
    return all;
}

} // namespace

std::vector<const PlannedOp *> Graph::decode_ops() const {
    std::vector<const PlannedOp *> all = listed(decode_);
    if (argmax_) all.push_back(argmax_.get());
    return all;
}

std::vector<const PlannedOp *> Graph::prefill_ops() const {
    return listed(prefill_);
}

std::vector<const PlannedOp *> Graph::batch_ops() const {
    std::vector<const PlannedOp *> all = listed(batch_);
    if (batch_argmax_) all.push_back(batch_argmax_.get());
    return all;
}

} // namespace keel
