// Checks of the arguments of keel.attention_dense/1, for backends in C++17.
//
// A host calls the extension directly, without the core's checks. So each backend checks the
// arguments itself. With this header all backends refuse the same calls with the same messages. The
// header allocates no memory and throws no exceptions.
//
// EXAMPLE. The start of a backend's forward():
//
//     keel::sdk::DenseCheck check("forward", size_of_buffer);
//     if (check.forward(attention, outputs) != KEEL_OK) {
//         host->set_error(host, check.status(), check.text());
//         return check.status();
//     }
#ifndef KEEL_EXT_ATTENTION_DENSE_CHECK_HPP
#define KEEL_EXT_ATTENTION_DENSE_CHECK_HPP

#include "attention_dense.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>

namespace keel::sdk {

// The sizes of a checked call.
struct DenseSizes {
    int64_t batch = 0, rows = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
};

// Checks one call. Only one thread may use the object.
class DenseCheck {
  public:
    // Returns the number of bytes of a buffer.
    using BufferBytes = uint64_t (*)(const keel_buffer *);
    // `pass` is "forward" or "backward". The text of an error names the pass.
    DenseCheck(const char *pass, BufferBytes bytes) noexcept : pass_(pass), bytes_(bytes) {}

    // forward() and backward() return KEEL_OK, or the status with which the backend must refuse the
    // call. If the status is not KEEL_OK, text() has the reason.
    keel_status forward(const keel_dense_attention &a, const keel_dense_outputs &o) noexcept {
        if (!attention(a)) return status_;
        const Item items[] = {{"out", o.out, floats, out_shape()},
                              {"lse", o.lse, f32, lse_shape()}};
        check_results(a, items, o.lse != nullptr ? 2 : 1, nullptr, 0);
        return status_;
    }
    keel_status backward(const keel_dense_attention &a, const keel_dense_gradients &g) noexcept {
        if (!attention(a)) return status_;
        const Item inputs[] = {{"out", g.out, floats, out_shape()},
                               {"lse", g.lse, f32, lse_shape()},
                               {"d_out", g.d_out, floats, out_shape()}};
        for (const Item &input : inputs)
            if (!tensor(input)) return status_;
        const bool sinks = (a.features & KEEL_DENSE_SINK) != 0;
        if (!used("d_sink", g.d_sink, sinks)) return status_;
        const Item items[] = {
            {"d_q", g.d_q, floats, {s_.batch, s_.rows, s_.heads, s_.head_dim}},
            {"d_k", g.d_k, floats, {s_.batch, s_.keys, s_.kv_heads, s_.head_dim}},
            {"d_v", g.d_v, floats, {s_.batch, s_.keys, s_.kv_heads, s_.v_head_dim}},
            {"d_sink", g.d_sink, f32, {s_.heads}}};
        check_results(a, items, sinks ? 4 : 3, inputs, 3);
        return status_;
    }

    keel_status status() const noexcept { return status_; }
    const char *text() const noexcept { return text_; }
    // The sizes of the call. Valid only after a check that returned KEEL_OK.
    const DenseSizes &sizes() const noexcept { return s_; }

  private:
    static constexpr int64_t any = -1;
    static constexpr uint64_t f32 = 1u << KEEL_DTYPE_F32;
    static constexpr uint64_t u8 = 1u << KEEL_DTYPE_U8;
    static constexpr uint64_t floats = f32 | 1u << KEEL_DTYPE_F16 | 1u << KEEL_DTYPE_BF16;
    // Rows, keys and batch * heads are below this number, because the counter of the random numbers
    // has 32 bits for each of them.
    static constexpr int64_t size_limit = int64_t{1} << 31;

    struct Shape {
        Shape(std::initializer_list<int64_t> list) noexcept : rank(0) {
            for (const int64_t n : list) size[rank++] = n;
        }
        int64_t size[KEEL_MAX_RANK] = {};
        uint32_t rank;
    };
    struct Item {
        const char *name;
        const keel_tensor *tensor;
        uint64_t types; // bits 1 << dtype
        Shape shape;
        bool spread = false; // true: every size except the last may also be 1
    };

    Shape out_shape() const noexcept { return {s_.batch, s_.rows, s_.heads, s_.v_head_dim}; }
    Shape lse_shape() const noexcept { return {s_.batch, s_.heads, s_.rows}; }

    template <class... Args>
    bool refuse(keel_status status, const char *member, const char *format, Args... args) noexcept {
        status_ = status;
        const int n = std::snprintf(text_, sizeof text_, "attention_dense %s: %s: ", pass_, member);
        const auto used = static_cast<size_t>(n < 0 ? 0 : n);
        if (used >= sizeof text_) return false;
        if constexpr (sizeof...(args) == 0)
            std::snprintf(text_ + used, sizeof text_ - used, "%s", format);
        else
            std::snprintf(text_ + used, sizeof text_ - used, format, args...);
        return false;
    }
    bool used(const char *member, const keel_tensor *t, bool wanted) noexcept {
        if ((t != nullptr) == wanted) return true;
        return refuse(KEEL_E_INVALID_ARG, member,
                      wanted ? "found NULL, expected a tensor, because its feature bit is set"
                             : "found a tensor, expected NULL, because its feature bit is not set");
    }
    // Writes "[1, 2, *]" to `to`, which has 96 bytes.
    static const char *shape_text(char *to, const int64_t *size, uint32_t rank) noexcept {
        size_t n = 0;
        to[n++] = '[';
        for (uint32_t i = 0; i < rank; ++i) {
            char number[24];
            std::snprintf(number, sizeof number, size[i] == any ? "*" : "%lld",
                          static_cast<long long>(size[i]));
            n += static_cast<size_t>(
                std::snprintf(to + n, 96 - n, "%s%s", i == 0 ? "" : ", ", number));
        }
        std::snprintf(to + n, 96 - n, "]");
        return to;
    }
    static const char *types_text(uint64_t types) noexcept {
        return types == floats ? "f32, f16 or bf16" : types == u8 ? "u8"
                                                                  : "f32";
    }

    bool tensor(const Item &item) noexcept {
        return described(item) && memory(item.name, item.tensor);
    }
    // Checks dtype and shape.
    bool described(const Item &item) noexcept {
        const keel_tensor *t = item.tensor;
        const char *name = item.name;
        if (t == nullptr) return refuse(KEEL_E_INVALID_ARG, name, "found NULL, expected a tensor");
        if (t->dtype >= 64 || (item.types >> t->dtype & 1) == 0)
            return refuse(KEEL_E_UNSUPPORTED, name, "found dtype %s, expected %s",
                          keel_dtype_name(t->dtype), types_text(item.types));
        bool fits = t->rank == item.shape.rank;
        for (uint32_t i = 0; fits && i < t->rank; ++i)
            fits = t->shape[i] >= 0 &&
                   (item.shape.size[i] == any || item.shape.size[i] == t->shape[i] ||
                    (item.spread && i + 1 < t->rank && t->shape[i] == 1));
        if (!fits) {
            char found[96], expected[96];
            return refuse(KEEL_E_INVALID_ARG, name, "found shape %s, expected %s%s",
                          shape_text(found, t->shape, std::min<uint32_t>(t->rank, KEEL_MAX_RANK)),
                          shape_text(expected, item.shape.size, item.shape.rank),
                          item.spread ? "; every size except the last may also be 1" : "");
        }
        return true;
    }

    // Checks the buffer, the offset, the strides and the end of the view. All numbers stay below
    // 2^62, so no calculation overflows.
    bool memory(const char *name, const keel_tensor *t) noexcept {
        if (t->buffer == nullptr) return refuse(KEEL_E_INVALID_ARG, name, "found no buffer");
        constexpr int64_t most = int64_t{1} << 62;
        const int64_t unit = keel_dtype_bytes(t->dtype);
        if (t->offset % static_cast<uint64_t>(unit) != 0)
            return refuse(KEEL_E_INVALID_ARG, name,
                          "found offset %llu, expected a multiple of %lld",
                          static_cast<unsigned long long>(t->offset), static_cast<long long>(unit));
        uint32_t order[KEEL_MAX_RANK], dims = 0; // outer dimensions, rising by stride
        for (uint32_t i = 0; i + 1 < t->rank; ++i) {
            if (t->shape[i] <= 1) continue;
            uint32_t place = dims++;
            for (; place > 0 && t->stride[order[place - 1]] > t->stride[i]; --place)
                order[place] = order[place - 1];
            order[place] = i;
        }
        if (is_empty(t)) return true;
        const int64_t last = t->shape[t->rank - 1];
        if (last > most / unit)
            return refuse(KEEL_E_INVALID_ARG, name, "found a row that is too long");
        int64_t span = last * unit;
        for (uint32_t k = 0; k < dims; ++k) {
            const uint32_t i = order[k];
            const int64_t stride = t->stride[i];
            const auto told = static_cast<long long>(stride);
            if (stride < 0 || stride % unit != 0)
                return refuse(KEEL_E_INVALID_ARG, name,
                              "found stride[%u] = %lld, expected a multiple of %lld from 0 on", i,
                              told, static_cast<long long>(unit));
            if (stride < span)
                return refuse(
                    KEEL_E_INVALID_ARG, name,
                    "found stride[%u] = %lld, expected at least %lld, so that elements do "
                    "not overlap",
                    i, told, static_cast<long long>(span));
            if (stride > (most - span) / (t->shape[i] - 1))
                return refuse(KEEL_E_INVALID_ARG, name,
                              "found stride[%u] = %lld, expected less, so that the tensor ends "
                              "inside its buffer",
                              i, told);
            span += stride * (t->shape[i] - 1);
        }
        const uint64_t bytes = bytes_(t->buffer), end = static_cast<uint64_t>(span);
        if (t->offset > bytes || end > bytes - t->offset)
            return refuse(KEEL_E_INVALID_ARG, name,
                          "found %llu bytes from offset %llu on, expected an end inside the "
                          "buffer's %llu bytes",
                          static_cast<unsigned long long>(end),
                          static_cast<unsigned long long>(t->offset),
                          static_cast<unsigned long long>(bytes));
        return true;
    }

    static bool is_empty(const keel_tensor *t) noexcept {
        return std::find(t->shape, t->shape + t->rank, 0) != t->shape + t->rank;
    }
    // Refuses a result that begins where another tensor begins. The caller must prevent other
    // overlaps, because they are not checked.
    bool apart(const char *name, const keel_tensor *result, const char *other,
               const keel_tensor *t) noexcept {
        if (t == nullptr || t->buffer != result->buffer || t->offset != result->offset ||
            is_empty(t) || is_empty(result))
            return true;
        return refuse(KEEL_E_INVALID_ARG, name,
                      "found the same memory as %s, expected separate memory", other);
    }
    bool check_results(const keel_dense_attention &a, const Item *results, int count,
                       const Item *inputs, int n_inputs) noexcept {
        for (int i = 0; i < count; ++i) {
            const char *name = results[i].name;
            const keel_tensor *t = results[i].tensor;
            if (!tensor(results[i]) || !apart(name, t, "q", a.q) || !apart(name, t, "k", a.k) ||
                !apart(name, t, "v", a.v) || !apart(name, t, "sink", a.sink) ||
                !apart(name, t, "bias", a.bias) || !apart(name, t, "mask", a.mask))
                return false;
            for (int k = 0; k < n_inputs; ++k)
                if (!apart(name, t, inputs[k].name, inputs[k].tensor)) return false;
            for (int k = 0; k < i; ++k)
                if (!apart(name, t, results[k].name, results[k].tensor)) return false;
        }
        return true;
    }

    bool attention(const keel_dense_attention &a) noexcept {
        constexpr uint64_t known = KEEL_DENSE_CAUSAL | KEEL_DENSE_WINDOW | KEEL_DENSE_SOFTCAP |
                                   KEEL_DENSE_SINK | KEEL_DENSE_BIAS | KEEL_DENSE_MASK |
                                   KEEL_DENSE_DROPOUT;
        if ((a.features & ~known) != 0)
            return refuse(KEEL_E_UNSUPPORTED, "features",
                          "found unknown bits 0x%llx, expected 0x%llx",
                          static_cast<unsigned long long>(a.features & ~known),
                          static_cast<unsigned long long>(known));
        return sizes_of(a) && numbers(a) && options(a);
    }
    bool dim(const char *name, int64_t n) noexcept {
        if (n >= KEEL_DENSE_LEAST_DIM && n <= KEEL_DENSE_MOST_DIM) return true;
        return refuse(KEEL_E_INVALID_ARG, name, "found head_dim %lld, expected %d to %d",
                      static_cast<long long>(n), KEEL_DENSE_LEAST_DIM, KEEL_DENSE_MOST_DIM);
    }
    bool sizes_of(const keel_dense_attention &a) noexcept {
        if (!described({"q", a.q, floats, {any, any, any, any}})) return false;
        s_.batch = a.q->shape[0], s_.rows = a.q->shape[1], s_.heads = a.q->shape[2];
        s_.head_dim = a.q->shape[3];
        if (!dim("q", s_.head_dim)) return false;
        if (!described({"k", a.k, floats, {s_.batch, any, any, s_.head_dim}})) return false;
        s_.keys = a.k->shape[1], s_.kv_heads = a.k->shape[2];
        if (!described({"v", a.v, floats, {s_.batch, s_.keys, s_.kv_heads, any}})) return false;
        s_.v_head_dim = a.v->shape[3];
        if (!dim("v", s_.v_head_dim)) return false;
        if (s_.kv_heads < 1 || s_.heads < 1 || s_.heads % s_.kv_heads != 0)
            return refuse(KEEL_E_INVALID_ARG, "q",
                          "found %lld heads, expected a multiple of k's %lld heads, at least 1",
                          static_cast<long long>(s_.heads), static_cast<long long>(s_.kv_heads));
        if (s_.rows >= size_limit || s_.keys >= size_limit || s_.heads >= size_limit ||
            s_.batch >= size_limit / s_.heads)
            return refuse(KEEL_E_INVALID_ARG, "q and k",
                          "found 2^31 or more rows, keys, or heads of all batches, expected fewer");
        return memory("q", a.q) && memory("k", a.k) && memory("v", a.v);
    }
    bool numbers(const keel_dense_attention &a) noexcept {
        const auto has = [&](uint64_t bit) { return (a.features & bit) != 0; };
        if (!std::isfinite(a.scale))
            return refuse(KEEL_E_INVALID_ARG, "scale", "found %g, expected a finite number",
                          static_cast<double>(a.scale));
        if (has(KEEL_DENSE_SOFTCAP) && !(std::isfinite(a.softcap) && a.softcap > 0))
            return refuse(KEEL_E_INVALID_ARG, "softcap",
                          "found %g, expected a finite number above 0",
                          static_cast<double>(a.softcap));
        const bool before = a.window_before >= -1, after = a.window_after >= -1;
        if (has(KEEL_DENSE_WINDOW) && !(before && after))
            return refuse(KEEL_E_INVALID_ARG, before ? "window_after" : "window_before",
                          "found %lld, expected -1 or more",
                          static_cast<long long>(before ? a.window_after : a.window_before));
        if (has(KEEL_DENSE_DROPOUT) && !(a.dropout >= 0 && a.dropout < 1))
            return refuse(KEEL_E_INVALID_ARG, "dropout",
                          "found %g, expected at least 0 and below 1",
                          static_cast<double>(a.dropout));
        return true;
    }
    bool options(const keel_dense_attention &a) noexcept {
        const auto has = [&](uint64_t bit) { return (a.features & bit) != 0; };
        const Shape pairs = {s_.batch, s_.heads, s_.rows, s_.keys};
        if (!used("sink", a.sink, has(KEEL_DENSE_SINK)) ||
            !used("bias", a.bias, has(KEEL_DENSE_BIAS)) ||
            !used("mask", a.mask, has(KEEL_DENSE_MASK)))
            return false;
        return (a.sink == nullptr || tensor({"sink", a.sink, f32, {s_.heads}})) &&
               (a.bias == nullptr || tensor({"bias", a.bias, floats, pairs, true})) &&
               (a.mask == nullptr || tensor({"mask", a.mask, u8, pairs, true}));
    }

    const char *pass_;
    BufferBytes bytes_;
    DenseSizes s_;
    keel_status status_ = KEEL_OK;
    char text_[252] = {};
};

} // namespace keel::sdk

#endif
