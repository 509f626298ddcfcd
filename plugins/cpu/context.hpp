// A context of the CPU backend: settings, kernels, scratch, the thread team. Work runs inside the
// call; the stream only counts tickets.
#pragma once

#include "cpu/features.hpp"
#include "cpu/memory/memory.hpp"

#include <keel/backend.h>

#include <type_traits>

namespace keel_cpu {

struct WeightSlab;    // weights/slab.hpp
struct MatmulKernels; // kernels/tables.hpp, and the other tables
struct Bf16MatmulKernels;
struct RowKernels;
struct AttentionKernels;
struct Bf16AttentionKernels;

// Whether 16-bit weights are copied out of the mapped file (weights/copy.cpp); in the order of the
// parameter's words.
enum class Copy { automatic, on, off };
} // namespace keel_cpu

struct keel_ctx {
    const keel_host *host = nullptr; // the core's; handed back to its functions
    uint32_t threads = 1;            // workers of a region
    keel_cpu::Isa isa = keel_cpu::Isa::scalar;
    bool fast = true;     // compute: activations may be quantized for the dot products
    bool prefetch = true; // weights are asked for before they are read
    // rows of 16-bit and f32 weights that several rows of x share are asked for
    bool prefetch_rows = true;
    keel_cpu::Copy copy = keel_cpu::Copy::automatic;
    const keel_cpu::MatmulKernels *matmul = nullptr;
    const keel_cpu::Bf16MatmulKernels *matmul_bf16 = nullptr; // NULL: the instruction set has none
    const keel_cpu::RowKernels *rows = nullptr;
    const keel_cpu::AttentionKernels *attention = nullptr;
    // NULL: the instruction set has none, or compute is exact.
    const keel_cpu::Bf16AttentionKernels *attention_bf16 = nullptr;

    keel_cpu::Memory scratch;             // shared by all ops: they run one after the other
    keel_cpu::WeightSlab *slab = nullptr; // that weights are cut from now; weights own it
    uint64_t buffer_bytes = 0, weight_bytes = 0;
    uint64_t ticket = 0; // the last one given
};

// A block of memory that tensors lie in.
struct keel_buffer {
    keel_cpu::Memory memory;
    uint8_t *data = nullptr;
    uint64_t size = 0;
    keel_buffer_kind kind = KEEL_BUFFER_DEVICE;
    keel_cpu::Memory committed;   // RESERVE: one byte per page, 1 where memory stands behind it
    uint64_t committed_bytes = 0; // RESERVE: of those pages
};

struct keel_plan {
    keel_op op;
    uint64_t scratch_bytes;
    char kernel[64];
};

namespace keel_cpu {

// Reports why a call fails and returns `status`: `return fail(ctx->host, KEEL_E_..., "...")`.
keel_status fail(const keel_host *host, keel_status status, const char *format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

// An out-struct of our own, zeroed but for its header.
template <class T> T make_out() {
    T out{};
    out.h = KEEL_HEADER(T);
    return out;
}

// Makes the scratch at least `bytes` large, 64-byte aligned; its contents are lost when it grows.
// Called by op_plan; an op calls it again (and finds it large enough, when it was planned). NULL
// when there is no memory.
uint8_t *scratch(keel_ctx *ctx, uint64_t bytes) noexcept;

// One worker's place in a parallel call.
struct Team {
    uint32_t worker, n;
    const keel_region *region; // NULL: the caller works alone

    void barrier() const {
        if (region != nullptr) region->barrier(region);
    }
};

struct Range {
    int64_t begin, end;
};

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// This worker's share of 0..total, cut at multiples of `align`, shares as equal as can be.
inline Range share(int64_t total, int64_t align, const Team &team) {
    const int64_t units = (total + align - 1) / align;
    const int64_t begin = units * team.worker / team.n * align,
                  end = units * (team.worker + 1) / team.n * align;
    return {begin < total ? begin : total, end < total ? end : total};
}

// Runs f(const Team &) on the whole team if n > 1, on the calling thread alone otherwise. A region
// costs about a microsecond, so `n` is the number of workers that the work is worth: see
// workers_for. f must not throw.
template <class F> keel_status parallel(keel_ctx *ctx, uint32_t n, F &&f) noexcept {
    if (n <= 1 || ctx->threads <= 1) {
        f(Team{0, 1, nullptr});
        return KEEL_OK;
    }
    using Body = std::remove_reference_t<F>;
    // always the whole team: waking the same number of workers costs least
    return ctx->host->parallel_region(
        ctx->host, ctx->threads,
        [](void *user, const keel_region *region) {
            (*static_cast<Body *>(user))(Team{region->worker, region->n, region});
        },
        const_cast<void *>(static_cast<const void *>(&f)));
}

// How many workers work of `bytes` read and written, or `flops` done, is worth.
inline uint32_t workers_for(const keel_ctx *ctx, uint64_t bytes, uint64_t flops = 0) {
    return bytes >= 64u << 10 || flops >= 1u << 18 ? ctx->threads : 1;
}

// ---- tensors ----

// Address of element 0. The core has checked that the view lies inside its buffer.
inline uint8_t *data_of(const keel_tensor *t) { return t->buffer->data + t->offset; }

template <class T> T *data_as(const keel_tensor *t) { return reinterpret_cast<T *>(data_of(t)); }

// Bytes from one row of the innermost dimension to the next; for rank 1 the row's own length.
inline int64_t row_stride(const keel_tensor *t) {
    return t->rank >= 2 ? t->stride[t->rank - 2]
                        : static_cast<int64_t>(
                              keel_dtype_row_bytes(t->dtype, static_cast<uint64_t>(t->shape[0])));
}

inline bool is_f32(const keel_tensor *t) { return t != nullptr && t->dtype == KEEL_DTYPE_F32; }

inline int64_t elements(const keel_tensor *t) {
    int64_t n = 1;
    for (uint32_t i = 0; i < t->rank; ++i) n *= t->shape[i];
    return n;
}

// The rows (innermost dimension) of a tensor with any outer strides, by number.
struct Rows {
    uint8_t *base;
    uint32_t outer; // dimensions outside a row
    int64_t shape[KEEL_MAX_RANK], stride[KEEL_MAX_RANK];
    int64_t count, n; // rows, elements in each

    explicit Rows(const keel_tensor *t)
        : base(data_of(t)), outer(t->rank - 1), count(1), n(t->shape[t->rank - 1]) {
        for (uint32_t i = 0; i < outer; ++i)
            shape[i] = t->shape[i], stride[i] = t->stride[i], count *= shape[i];
    }
    uint8_t *operator[](int64_t row) const {
        if (outer == 1) return base + row * stride[0];
        uint8_t *p = base;
        for (uint32_t i = outer; i-- > 0;) p += row % shape[i] * stride[i], row /= shape[i];
        return p;
    }
};

} // namespace keel_cpu
