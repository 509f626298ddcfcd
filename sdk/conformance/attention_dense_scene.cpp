#include "conformance/attention_dense_scene.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

namespace keel::conformance {
namespace {

// Makes a tensor of bytes 0xFF with this order of dimensions in memory.
Tensor in_order(keel_dtype dtype, const std::vector<int64_t> &shape, Order order) {
    if (order == Order::plain || shape.size() != 4) return blank(dtype, shape);
    if (order == Order::gaps) return blank(dtype, shape, {3, 1});
    // this is large enough for all orders
    Tensor t = blank(dtype, {shape[0], shape[1], shape[2], 3 * shape[3]});
    t.shape = shape;
    const auto row = static_cast<int64_t>(t.row_bytes());
    const int64_t batch = shape[0], tokens = shape[1], heads = shape[2];
    if (order == Order::head_major) t.stride = {row * tokens * heads, row, row * tokens};
    if (order == Order::packed) t.stride = {3 * row * tokens * heads, 3 * row * heads, row};
    if (order == Order::token_major) t.stride = {row * heads, row * heads * batch, row};
    return t;
}

Tensor dense_tensor(Rng &rng, keel_dtype dtype, const std::vector<int64_t> &shape, Order order) {
    Tensor t = in_order(dtype, shape, order);
    std::vector<float> values(static_cast<size_t>(t.elements()));
    for (float &x : values) x = rng.normal();
    t.set(values);
    return t;
}

// Makes rows whose dot products, times the scale, are +-10,000 plus a multiple of 1/4. All these
// numbers are exact in f32 and in f16.
Tensor large_logit_rows(Rng &rng, keel_dtype dtype, const std::vector<int64_t> &shape, Order order,
                        bool queries) {
    Tensor t = in_order(dtype, shape, order);
    std::vector<float> values(static_cast<size_t>(t.elements()), 0.0F);
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(shape[3])) {
        values[i] = queries || rng() % 2 == 0 ? 200.0F : -200.0F;
        values[i + 1] = static_cast<float>(rng() % 5) - 2.0F;
    }
    t.set(values);
    return t;
}

// Puts one struct at the end of a page; reading after the page crashes. `longer`: the struct is
// that of a newer peer.
template <class T> T *guarded_struct(GuardedPage &page, T value, bool longer) {
    const auto size = static_cast<uint32_t>(sizeof(T) + (longer ? 64 : 0));
    auto *at = static_cast<unsigned char *>(page.last(size));
    std::memset(at, 0xA5, size);
    value.h.struct_size = size;
    if (longer) value.h.abi_version = KEEL_ABI_VERSION + 1;
    std::memcpy(at, &value, sizeof(T));
    return reinterpret_cast<T *>(at);
}

} // namespace

float DenseShape::scale() const {
    return large ? 0.25F : 1.0F / std::sqrt(static_cast<float>(dim));
}

std::string name_of(const DenseShape &s) {
    return fmt::format("batch={} rows={} keys={} heads={}/{} dim={}/{} features={:#x} {} to {} "
                       "order={} window={},{}{}{}{}{}",
                       s.batch, s.rows, s.keys, s.heads, s.kv_heads, s.dim, s.v_dim, s.features,
                       keel_dtype_name(s.dtype), keel_dtype_name(s.results),
                       static_cast<int>(s.order), s.before, s.after,
                       s.spread_pairs ? " one bias" : "", s.large ? " large" : "",
                       s.dead_rows ? " dead rows" : "", s.hidden_nan ? " hidden NaN" : "");
}

DenseScene::DenseScene(const DenseShape &shape, Rng &rng) : s(shape) {
    const std::vector<int64_t> q_shape = {s.batch, s.rows, s.heads, s.dim},
                               k_shape = {s.batch, s.keys, s.kv_heads, s.dim},
                               v_shape = {s.batch, s.keys, s.kv_heads, s.v_dim},
                               out_shape = {s.batch, s.rows, s.heads, s.v_dim};
    q = scene.add(s.large ? large_logit_rows(rng, s.dtype, q_shape, s.order, true)
                          : dense_tensor(rng, s.dtype, q_shape, s.order));
    k = scene.add(s.large ? large_logit_rows(rng, s.dtype, k_shape, s.order, false)
                          : dense_tensor(rng, s.dtype, k_shape, s.order));
    v = scene.add(dense_tensor(rng, s.dtype, v_shape, s.order));
    d_out = scene.add(dense_tensor(rng, s.dtype, out_shape, s.order));
    out = scene.add(in_order(s.results, out_shape, s.order));
    lse = scene.add(blank(KEEL_DTYPE_F32, {s.batch, s.heads, s.rows},
                          s.order == Order::gaps ? Layout{2, 1} : Layout{}));
    d_q = scene.add(in_order(s.results, q_shape, s.order));
    d_k = scene.add(in_order(s.results, k_shape, s.order));
    d_v = scene.add(in_order(s.results, v_shape, s.order));
    if ((s.features & KEEL_DENSE_SINK) != 0) {
        sink = scene.add(dense_tensor(rng, KEEL_DTYPE_F32, {s.heads}, Order::plain));
        d_sink = scene.add(blank(KEEL_DTYPE_F32, {s.heads}));
    }
    const bool one = s.spread_pairs;
    const std::vector<int64_t> pairs = {one ? 1 : s.batch, one ? 1 : s.heads, s.rows, s.keys};
    if ((s.features & KEEL_DENSE_BIAS) != 0) {
        Tensor t =
            dense_tensor(rng, s.dtype, pairs, s.order == Order::gaps ? s.order : Order::plain);
        std::vector<double> values = t.values();
        for (size_t i = 0; i < values.size(); i += 11) values[i] = -INFINITY;
        t.set({values.begin(), values.end()});
        bias = scene.add(std::move(t));
    }
    if ((s.features & KEEL_DENSE_MASK) != 0) {
        Tensor t = blank(KEEL_DTYPE_U8, pairs, {one ? 5 : 0, 0});
        for (int64_t r = 0; r < t.rows(); ++r)
            for (int64_t j = 0; j < s.keys; ++j) // masks every fourth row fully
                t.image[t.row_offset(r) + static_cast<uint64_t>(j)] =
                    r % 4 != 3 && j % 5 != 4 && rng() % 3 != 0 ? 1 + rng() % 255 : 0;
        mask = scene.add(std::move(t));
    }
    if (s.dead_rows) kill_rows();
    if (s.hidden_nan) hide_nan();
}

// Sets the first element of every third query to -infinity, and the first element of every key to a
// positive number.
void DenseScene::kill_rows() {
    const auto change = [&](int place, int64_t step, auto value_of) {
        Tensor &t = scene.tensors[static_cast<size_t>(place)];
        std::vector<double> values = t.values();
        const auto dim = static_cast<size_t>(s.dim);
        for (size_t i = 0; i < values.size(); i += dim * static_cast<size_t>(step))
            values[i] = value_of(values[i]);
        t.set({values.begin(), values.end()});
    };
    change(q, 3, [](double) { return -static_cast<double>(INFINITY); });
    change(k, 1, [](double x) { return std::abs(x) + 0.5; });
}

// The mask hides the keys 4, 9, ... from all queries. It hides all keys from the queries 3, 7, ...
// (if rows is a multiple of 4).
void DenseScene::hide_nan() {
    const auto spoil = [&](int place, int64_t step, int64_t first) {
        Tensor &t = scene.tensors[static_cast<size_t>(place)];
        std::vector<double> values = t.values();
        for (int64_t r = 0; r < t.rows(); ++r) {
            if (r / t.shape[2] % t.shape[1] % step != first) continue;
            const auto at = values.begin() + r * t.row_length();
            std::fill(at, at + t.row_length(), NAN);
        }
        t.set({values.begin(), values.end()});
    };
    spoil(k, 5, 4), spoil(v, 5, 4), spoil(q, 4, 3), spoil(d_out, 4, 3);
}

keel_dense_attention DenseScene::attention(Stage &stage) const {
    keel_dense_attention a = {};
    a.h = KEEL_HEADER(keel_dense_attention);
    a.features = s.features;
    a.q = stage.tensor(q), a.k = stage.tensor(k), a.v = stage.tensor(v);
    a.sink = stage.tensor(sink), a.bias = stage.tensor(bias), a.mask = stage.tensor(mask);
    a.scale = s.scale();
    a.softcap = 1.5F;
    a.window_before = s.before, a.window_after = s.after;
    a.dropout = s.dropout;
    a.seed = 0x9E3779B97F4A7C15U, a.offset = 3;
    return a;
}

keel_status DenseScene::forward(const keel_dense &table, Stage &stage, bool longer,
                                const ChangeForward &change) const {
    keel_dense_attention a = attention(stage);
    keel_dense_outputs o = {};
    o.h = KEEL_HEADER(keel_dense_outputs);
    o.out = stage.tensor(out), o.lse = stage.tensor(lse);
    if (change) change(a, o);
    GuardedPage page, other;
    return table.forward(stage.side().ctx(), guarded_struct(page, a, longer),
                         guarded_struct(other, o, longer));
}

keel_status DenseScene::backward(const keel_dense &table, Stage &stage, bool longer,
                                 const ChangeBackward &change) const {
    keel_dense_attention a = attention(stage);
    keel_dense_gradients g = {};
    g.h = KEEL_HEADER(keel_dense_gradients);
    g.out = stage.tensor(out), g.lse = stage.tensor(lse), g.d_out = stage.tensor(d_out);
    g.d_q = stage.tensor(d_q), g.d_k = stage.tensor(d_k), g.d_v = stage.tensor(d_v);
    g.d_sink = stage.tensor(d_sink);
    if (change) change(a, g);
    GuardedPage page, other;
    return table.backward(stage.side().ctx(), guarded_struct(page, a, longer),
                          guarded_struct(other, g, longer));
}

} // namespace keel::conformance
