#include "ops/compose.hpp"

#include "ops/executor.hpp"

#include <utility>

namespace keel {
namespace {

// Copies the args for a smaller op: clears the bits `features` and removes the plan.
template <typename Args> Args plain(const Args &args, uint64_t features) {
    Args copy = args;
    copy.features = features;
    copy.plan = nullptr;
    return copy;
}

// Composes matmul: out = x * W^T; then adds the bias; then adds the previous content of out.
class ComposedMatmul final : public Composition {
  public:
    static std::unique_ptr<Composition> make(Ladder &ladder, const keel_matmul_args &a,
                                             const OpTag &tag, Weight *weight) {
        auto self = std::unique_ptr<ComposedMatmul>(new ComposedMatmul);
        const bool accumulate = (a.features & KEEL_MATMUL_ACCUMULATE) != 0,
                   bias = (a.features & KEEL_MATMUL_BIAS) != 0;
        if (!accumulate && !bias) return nullptr;
        keel_matmul_args inner = plain(a, 0);
        inner.bias = nullptr;
        if (accumulate) {
            self->product_ = ladder.scratch(*a.out);
            inner.out = self->product_.c();
        }
        if (!(self->matmul_ = ladder.settle_native(KEEL_OP_MATMUL, inner, tag, weight)))
            return nullptr;
        keel_elementwise_args next = {KEEL_HEADER(keel_elementwise_args)};
        next.a = inner.out;
        next.out = inner.out;
        next.b = a.bias;
        if (bias && !(self->bias_ = ladder.settle_native(KEEL_OP_ADD_BIAS, next, tag)))
            return nullptr;
        next.b = a.out;
        next.out = a.out;
        if (accumulate && !(self->add_ = ladder.settle_native(KEEL_OP_ADD, next, tag)))
            return nullptr;
        return self;
    }
    void run(Executor &ex, const keel_op_args *args) override {
        const auto &a = *reinterpret_cast<const keel_matmul_args *>(args);
        keel_matmul_args inner = plain(a, 0);
        inner.bias = nullptr;
        Tensor product;
        if (add_) {
            product = product_.rows(0, a.out->shape[0]);
            inner.out = product.c();
        }
        ex.run(*matmul_, inner);
        keel_elementwise_args next = {KEEL_HEADER(keel_elementwise_args)};
        next.a = next.out = inner.out;
        next.b = a.bias;
        if (bias_) ex.run(*bias_, next);
        next.b = next.out = a.out;
        if (add_) ex.run(*add_, next);
    }
    std::string kernel() const override {
        return fmt::format("matmul{}{}", bias_ ? " + add_bias" : "", add_ ? " + add" : "");
    }

  private:
    OpHandle matmul_, bias_, add_;
    Tensor product_;
};

// Composes add_rms_norm: residual += x; out = rms_norm(residual).
class ComposedAddRmsNorm final : public Composition {
  public:
    static std::unique_ptr<Composition> make(Ladder &ladder, const keel_norm_args &a,
                                             const OpTag &tag) {
        auto self = std::unique_ptr<ComposedAddRmsNorm>(new ComposedAddRmsNorm);
        if (!(self->add_ = ladder.settle_native(KEEL_OP_ADD, sum(a), tag))) return nullptr;
        if (!(self->norm_ = ladder.settle_native(KEEL_OP_RMS_NORM, norm(a), tag))) return nullptr;
        return self;
    }
    void run(Executor &ex, const keel_op_args *args) override {
        const auto &a = *reinterpret_cast<const keel_norm_args *>(args);
        ex.run(*add_, sum(a));
        ex.run(*norm_, norm(a));
    }
    std::string kernel() const override { return "add + rms_norm"; }

  private:
    static keel_elementwise_args sum(const keel_norm_args &a) {
        keel_elementwise_args s = {KEEL_HEADER(keel_elementwise_args)};
        s.a = s.out = a.residual;
        s.b = a.x;
        return s;
    }
    static keel_norm_args norm(const keel_norm_args &a) {
        keel_norm_args n = plain(a, 0);
        n.x = a.residual;
        n.residual = nullptr;
        return n;
    }
    OpHandle add_, norm_;
};

// Composes scaled_add: out += factor * a.
class ComposedScaledAdd final : public Composition {
  public:
    static std::unique_ptr<Composition> make(Ladder &ladder, const keel_elementwise_args &a,
                                             const OpTag &tag) {
        auto self = std::unique_ptr<ComposedScaledAdd>(new ComposedScaledAdd);
        self->scaled_ = ladder.scratch(*a.out);
        if (!(self->scale_ = ladder.settle_native(KEEL_OP_SCALE, scale(a, self->scaled_), tag)))
            return nullptr;
        if (!(self->add_ = ladder.settle_native(KEEL_OP_ADD, add(a, self->scaled_), tag)))
            return nullptr;
        return self;
    }
    void run(Executor &ex, const keel_op_args *args) override {
        const auto &a = *reinterpret_cast<const keel_elementwise_args *>(args);
        const Tensor scaled = scaled_.rows(0, a.out->shape[0]);
        ex.run(*scale_, scale(a, scaled));
        ex.run(*add_, add(a, scaled));
    }
    std::string kernel() const override { return "scale + add"; }

  private:
    static keel_elementwise_args scale(const keel_elementwise_args &a, const Tensor &scaled) {
        keel_elementwise_args s = plain(a, 0);
        s.out = scaled.c();
        return s;
    }
    static keel_elementwise_args add(const keel_elementwise_args &a, const Tensor &scaled) {
        keel_elementwise_args s = plain(a, 0);
        s.a = a.out;
        s.b = scaled.c();
        return s;
    }
    OpHandle scale_, add_;
    Tensor scaled_;
};

// Composes qkv_prepare: norms of the heads if the model has them, RoPE of q and k, then the append
// to the cache.
class ComposedQkv final : public Composition {
  public:
    static std::unique_ptr<Composition> make(Ladder &ladder, const keel_qkv_args &a,
                                             const OpTag &tag) {
        if ((a.features & ~uint64_t{KEEL_QKV_NORM}) != 0) return nullptr;
        auto self = std::unique_ptr<ComposedQkv>(new ComposedQkv);
        self->k_ = ladder.scratch(*a.k);
        const bool norm = (a.features & KEEL_QKV_NORM) != 0;
        if (norm && !(self->q_norm_ = ladder.settle_native(
                          KEEL_OP_RMS_NORM, norm_of(a, a.q, a.q_norm, a.q_out), tag)))
            return nullptr;
        if (norm && !(self->k_norm_ = ladder.settle_native(
                          KEEL_OP_RMS_NORM, norm_of(a, a.k, a.k_norm, self->k_.c()), tag)))
            return nullptr;
        if (!(self->rope_q_ = ladder.settle_native(KEEL_OP_ROPE,
                                                   rope_of(a, norm ? a.q_out : a.q, a.q_out), tag)))
            return nullptr;
        if (!(self->rope_k_ = ladder.settle_native(
                  KEEL_OP_ROPE, rope_of(a, norm ? self->k_.c() : a.k, self->k_.c()), tag)))
            return nullptr;
        if (!(self->append_ = ladder.settle_native(KEEL_OP_KV_APPEND, append_of(a, self->k_), tag)))
            return nullptr;
        return self;
    }
    void run(Executor &ex, const keel_op_args *args) override {
        const auto &a = *reinterpret_cast<const keel_qkv_args *>(args);
        const Tensor k = k_.rows(0, a.k->shape[0]);
        if (q_norm_) ex.run(*q_norm_, norm_of(a, a.q, a.q_norm, a.q_out));
        if (k_norm_) ex.run(*k_norm_, norm_of(a, a.k, a.k_norm, k.c()));
        ex.run(*rope_q_, rope_of(a, q_norm_ ? a.q_out : a.q, a.q_out));
        ex.run(*rope_k_, rope_of(a, k_norm_ ? k.c() : a.k, k.c()));
        ex.run(*append_, append_of(a, k));
    }
    std::string kernel() const override {
        return fmt::format("{}rope + kv_append", q_norm_ ? "rms_norm + " : "");
    }

  private:
    static keel_norm_args norm_of(const keel_qkv_args &a, const keel_tensor *x,
                                  const keel_tensor *weight, const keel_tensor *out) {
        keel_norm_args n = {KEEL_HEADER(keel_norm_args)};
        n.x = x;
        n.weight = weight;
        n.out = out;
        n.eps = a.eps;
        return n;
    }
    static keel_rope_args rope_of(const keel_qkv_args &a, const keel_tensor *x,
                                  const keel_tensor *out) {
        keel_rope_args r = {KEEL_HEADER(keel_rope_args)};
        r.x = x;
        r.positions = a.positions;
        r.tables = a.tables;
        r.out = out;
        return r;
    }
    static keel_kv_append_args append_of(const keel_qkv_args &a, const Tensor &k) {
        keel_kv_append_args p = {KEEL_HEADER(keel_kv_append_args)};
        p.k = k.c();
        p.v = a.v;
        p.positions = a.positions;
        p.kv = a.kv;
        return p;
    }
    OpHandle q_norm_, k_norm_, rope_q_, rope_k_, append_;
    Tensor k_;
};

// Composes attention with scores. The scores are computed first, because the output of attention
// can overwrite q.
class ComposedAttention final : public Composition {
  public:
    static std::unique_ptr<Composition> make(Ladder &ladder, const keel_attention_args &a,
                                             const OpTag &tag) {
        if ((a.features & KEEL_ATTENTION_SCORES) == 0) return nullptr;
        auto self = std::unique_ptr<ComposedAttention>(new ComposedAttention);
        if (!(self->scores_ = ladder.settle_native(KEEL_OP_ATTENTION_SCORES, scores_of(a), tag)))
            return nullptr;
        if (!(self->attention_ = ladder.settle_native(KEEL_OP_ATTENTION, without_scores(a), tag)))
            return nullptr;
        return self;
    }
    void run(Executor &ex, const keel_op_args *args) override {
        const auto &a = *reinterpret_cast<const keel_attention_args *>(args);
        ex.run(*scores_, scores_of(a));
        ex.run(*attention_, without_scores(a));
    }
    std::string kernel() const override { return "attention_scores + attention"; }

  private:
    static keel_attention_args without_scores(const keel_attention_args &a) {
        keel_attention_args b = plain(a, a.features & ~uint64_t{KEEL_ATTENTION_SCORES});
        b.scores = nullptr;
        return b;
    }
    static keel_attention_scores_args scores_of(const keel_attention_args &a) {
        keel_attention_scores_args s = {KEEL_HEADER(keel_attention_scores_args)};
        constexpr std::pair<uint64_t, uint64_t> bits[] = {
            {KEEL_ATTENTION_CAUSAL, KEEL_SCORES_CAUSAL},
            {KEEL_ATTENTION_SOFTCAP, KEEL_SCORES_SOFTCAP},
            {KEEL_ATTENTION_WINDOW, KEEL_SCORES_WINDOW}};
        for (const auto &bit : bits)
            if ((a.features & bit.first) != 0) s.features |= bit.second;
        s.q = a.q;
        s.kv = a.kv;
        s.scores = a.scores;
        s.scale = a.scale;
        s.q_positions = a.q_positions;
        s.window = a.window;
        s.softcap = a.softcap;
        return s;
    }
    OpHandle scores_, attention_;
};

} // namespace

std::unique_ptr<Composition> compose(Ladder &ladder, keel_op op, const keel_op_args *args,
                                     const OpTag &tag, Weight *weight) {
    switch (op) {
    case KEEL_OP_MATMUL:
        return ComposedMatmul::make(ladder, *reinterpret_cast<const keel_matmul_args *>(args), tag,
                                    weight);
    case KEEL_OP_ADD_RMS_NORM:
        return ComposedAddRmsNorm::make(ladder, *reinterpret_cast<const keel_norm_args *>(args),
                                        tag);
    case KEEL_OP_SCALED_ADD:
        return ComposedScaledAdd::make(ladder,
                                       *reinterpret_cast<const keel_elementwise_args *>(args), tag);
    case KEEL_OP_QKV_PREPARE:
        return ComposedQkv::make(ladder, *reinterpret_cast<const keel_qkv_args *>(args), tag);
    case KEEL_OP_ATTENTION:
        return ComposedAttention::make(ladder, *reinterpret_cast<const keel_attention_args *>(args),
                                       tag);
    default: return nullptr;
    }
}

} // namespace keel
