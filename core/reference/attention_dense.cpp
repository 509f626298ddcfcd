#include "reference/attention_dense.hpp"

#include "reference/check.hpp"
#include "reference/scores.hpp"

#include <keel/ext/draft/attention_dense_check.hpp>

#include <cmath>
#include <limits>
#include <optional>

namespace keel::reference {
namespace {

constexpr double no_logit = -std::numeric_limits<double>::infinity();

uint64_t bytes_of(const keel_buffer *buffer) {
    return reinterpret_cast<const Buffer *>(buffer)->size;
}

// A tensor [batch, heads, rows, keys] in which each of the first three sizes can be 1.
class PairTensor {
  public:
    explicit PairTensor(const keel_tensor *t) : view_(bind(t)) {}
    const std::byte *row(int64_t b, int64_t h, int64_t i) const {
        return view_.row(view_.outer[0] == 1 ? 0 : b, view_.outer[1] == 1 ? 0 : h,
                         view_.outer[2] == 1 ? 0 : i);
    }
    Row numbers(int64_t b, int64_t h, int64_t i) const {
        return load(row(b, h, i), view_.dtype, view_.n);
    }

  private:
    View view_;
};

// The keys that one query sees, and their logits and factors. Keys that the query does not see have
// weight 0.
struct QueryRow {
    std::vector<bool> seen;
    Row capped;  // logits after the softcap, before the bias
    Row logits;  // -inf if the query does not see the key
    Row factors; // factors of dropout: 0, or 1 / (1 - dropout); 1 without dropout
};

// The attention function. Forward and backward compute it.
class Attention {
  public:
    Attention(const keel_dense_attention &a, const sdk::DenseSizes &sizes)
        : s(sizes), a_(a), q_(bind(a.q)), k_(bind(a.k)), v_(bind(a.v)) {
        if (a.sink != nullptr) sink_ = load(bind(a.sink), bind(a.sink).data);
        if (a.bias != nullptr) bias_.emplace(a.bias);
        if (a.mask != nullptr) mask_.emplace(a.mask);
    }

    Row q(int64_t b, int64_t i, int64_t h) const { return load(q_, q_.row(b, i, h)); }
    Row k(int64_t b, int64_t j, int64_t h) const { return load(k_, k_.row(b, j, kv_head(h))); }
    Row v(int64_t b, int64_t j, int64_t h) const { return load(v_, v_.row(b, j, kv_head(h))); }
    int64_t kv_head(int64_t h) const { return h / (s.heads / s.kv_heads); }
    double scale() const { return a_.scale; }
    double sink(int64_t h) const { return sink_.empty() ? no_logit : sink_[h]; }

    QueryRow row(int64_t b, int64_t h, int64_t i) const {
        const auto n = static_cast<size_t>(s.keys);
        QueryRow r = {std::vector<bool>(n), Row(n, 0.0), Row(n, no_logit), Row(n, 1.0)};
        const Row bias = bias_ ? bias_->numbers(b, h, i) : Row(n, 0.0);
        const Row query = q(b, i, h);
        for (int64_t j = 0; j < s.keys; ++j) {
            r.seen[j] = sees(b, h, i, j) && bias[j] != no_logit;
            if (has(a_.features, KEEL_DENSE_DROPOUT))
                r.factors[j] = keel_dense_keeps(&a_, b, s.heads, h, i, j) != 0
                                   ? 1 / (1 - static_cast<double>(a_.dropout))
                                   : 0.0;
            if (!r.seen[j]) continue;
            double z = scale() * dot(query, k(b, j, h));
            if (has(a_.features, KEEL_DENSE_SOFTCAP)) z = a_.softcap * std::tanh(z / a_.softcap);
            r.capped[j] = z;
            r.logits[j] = z + bias[j];
        }
        return r;
    }

    // Returns the derivative of the softcap at a capped logit.
    double cap_slope(double capped) const {
        if (!has(a_.features, KEEL_DENSE_SOFTCAP)) return 1;
        const double t = capped / a_.softcap;
        return 1 - t * t;
    }

    const sdk::DenseSizes s;

  private:
    bool sees(int64_t b, int64_t h, int64_t i, int64_t j) const {
        const int64_t position = i + s.keys - s.rows;
        if (has(a_.features, KEEL_DENSE_CAUSAL) && j > position) return false;
        if (has(a_.features, KEEL_DENSE_WINDOW)) {
            if (a_.window_before >= 0 && position - j > a_.window_before) return false;
            if (a_.window_after >= 0 && j - position > a_.window_after) return false;
        }
        return !mask_ || View::element<uint8_t>(mask_->row(b, h, i), j) != 0;
    }

    const keel_dense_attention &a_;
    View q_, k_, v_;
    Row sink_;
    std::optional<PairTensor> bias_, mask_;
};

// Returns log(sum of exp) of the logits and of the sink. Returns -inf if all of them are -inf.
double log_sum_exp(const Row &logits, double sink) {
    double largest = sink;
    for (const double z : logits) largest = larger(largest, z);
    if (largest == no_logit) return no_logit;
    double sum = std::exp(sink - largest);
    for (const double z : logits) sum += std::exp(z - largest);
    return largest + std::log(sum);
}

void add_scaled(Row &to, const Row &x, double factor) {
    for (size_t e = 0; e < to.size(); ++e) to[e] += factor * x[e];
}

void run_forward(const Attention &a, const keel_dense_outputs &o) {
    const View out = bind(o.out);
    for (int64_t b = 0; b < a.s.batch; ++b) {
        for (int64_t h = 0; h < a.s.heads; ++h) {
            for (int64_t i = 0; i < a.s.rows; ++i) {
                const QueryRow r = a.row(b, h, i);
                const double lse = log_sum_exp(r.logits, a.sink(h));
                Row sum(static_cast<size_t>(a.s.v_head_dim), std::isnan(lse) ? lse : 0.0);
                for (int64_t j = 0; j < a.s.keys && lse != no_logit; ++j) {
                    if (!r.seen[j] || r.factors[j] == 0) continue;
                    add_scaled(sum, a.v(b, j, h), std::exp(r.logits[j] - lse) * r.factors[j]);
                }
                store(out, out.row(b, i, h), sum);
                if (o.lse != nullptr) View::set(bind(o.lse).row(b, h), i, static_cast<float>(lse));
            }
        }
    }
}

// Sums of gradients, one row for each token and head.
class GradientRows {
  public:
    explicit GradientRows(const keel_tensor *t)
        : view_(bind(t)),
          rows_(static_cast<size_t>(view_.outer[0] * view_.outer[1] * view_.outer[2]),
                Row(static_cast<size_t>(view_.n), 0.0)) {}
    Row &at(int64_t b, int64_t token, int64_t head) {
        return rows_[static_cast<size_t>((b * view_.outer[1] + token) * view_.outer[2] + head)];
    }
    void write() {
        view_.each_row([&](int64_t b, int64_t token, int64_t head) {
            store(view_, view_.row(b, token, head), at(b, token, head));
        });
    }

  private:
    View view_;
    std::vector<Row> rows_;
};

// Returns the sum of d_out * out. An element of `out` that is 0 adds 0, even if the element of
// d_out is NaN.
double delta_of(const Row &d_out, const Row &out) {
    double sum = 0;
    for (size_t e = 0; e < out.size(); ++e) sum += out[e] == 0 ? 0 : d_out[e] * out[e];
    return sum;
}

void run_backward(const Attention &a, const keel_dense_gradients &g) {
    const View out = bind(g.out), lses = bind(g.lse), d_outs = bind(g.d_out);
    GradientRows d_q(g.d_q), d_k(g.d_k), d_v(g.d_v);
    Row d_sink(static_cast<size_t>(a.s.heads), 0.0);
    for (int64_t b = 0; b < a.s.batch; ++b) {
        for (int64_t h = 0; h < a.s.heads; ++h) {
            for (int64_t i = 0; i < a.s.rows; ++i) {
                const double lse = View::element<float>(lses.row(b, h), i);
                if (lse == no_logit) continue; // the row is fully masked
                const QueryRow r = a.row(b, h, i);
                const Row d_out = load(d_outs, d_outs.row(b, i, h)), query = a.q(b, i, h);
                const double delta = delta_of(d_out, load(out, out.row(b, i, h)));
                if (a.sink(h) != no_logit) d_sink[h] -= std::exp(a.sink(h) - lse) * delta;
                for (int64_t j = 0; j < a.s.keys; ++j) {
                    if (!r.seen[j]) continue;
                    const double p = std::exp(r.logits[j] - lse), keep = r.factors[j];
                    const double dp = keep == 0 ? 0 : keep * dot(d_out, a.v(b, j, h));
                    const double dz = p * (dp - delta) * a.cap_slope(r.capped[j]) * a.scale();
                    add_scaled(d_q.at(b, i, h), a.k(b, j, h), dz);
                    add_scaled(d_k.at(b, j, a.kv_head(h)), query, dz);
                    if (keep != 0) add_scaled(d_v.at(b, j, a.kv_head(h)), d_out, p * keep);
                }
            }
        }
    }
    d_q.write();
    d_k.write();
    d_v.write();
    if (g.d_sink != nullptr) store(bind(g.d_sink), bind(g.d_sink).data, d_sink);
}

// Returns a copy of the caller's struct. Members that the caller's struct does not have are 0.
template <typename T> T adopted(const T *theirs, const char *what) {
    T mine;
    if (keel_adopt(&mine, sizeof(T), theirs, sizeof(keel_header)) != KEEL_OK)
        refuse(KEEL_E_INVALID_ARG,
               std::string("attention_dense: ") + what + " is NULL or has another ABI version");
    return mine;
}

keel_status KEEL_CALL forward(keel_ctx *ctx, const keel_dense_attention *attention,
                              const keel_dense_outputs *outputs) {
    return guarded(&of(ctx), [&] {
        const auto a = adopted(attention, "the keel_dense_attention");
        const auto o = adopted(outputs, "the keel_dense_outputs");
        sdk::DenseCheck check("forward", bytes_of);
        if (check.forward(a, o) != KEEL_OK) refuse(check.status(), check.text());
        run_forward(Attention(a, check.sizes()), o);
    });
}

keel_status KEEL_CALL backward(keel_ctx *ctx, const keel_dense_attention *attention,
                               const keel_dense_gradients *gradients) {
    return guarded(&of(ctx), [&] {
        const auto a = adopted(attention, "the keel_dense_attention");
        const auto g = adopted(gradients, "the keel_dense_gradients");
        sdk::DenseCheck check("backward", bytes_of);
        if (check.backward(a, g) != KEEL_OK) refuse(check.status(), check.text());
        run_backward(Attention(a, check.sizes()), g);
    });
}

} // namespace

const keel_dense *attention_dense() {
    static const keel_dense table = {KEEL_HEADER(keel_dense), forward, backward};
    return &table;
}

} // namespace keel::reference
