// A context of the CPU backend: settings, kernels, scratch memory and thread team. Work runs inside
// the call. The stream only counts tickets.
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

// Whether 16-bit weights are copied from the mapped file (weights/copy.cpp). In the order of the
// parameter's words.
enum class Copy { automatic, on, off };
} // namespace keel_cpu

struct keel_ctx {
    const keel_host *host = nullptr; // the core's host table, passed back to its functions
    uint32_t threads = 1;            // number of workers in a parallel region
    keel_cpu::Isa isa = keel_cpu::Isa::scalar;
    bool fast = true;     // compute: activations may be quantized for the dot products
    bool prefetch = true; // weights are prefetched
    // rows of 16-bit and f32 weights are prefetched if several rows of x share them
    bool prefetch_rows = true;
    keel_cpu::Copy copy = keel_cpu::Copy::automatic;
    const keel_cpu::MatmulKernels *matmul = nullptr;
    // NULL if the instruction set has none.
    const keel_cpu::Bf16MatmulKernels *matmul_bf16 = nullptr;
    const keel_cpu::RowKernels *rows = nullptr;
    const keel_cpu::AttentionKernels *attention = nullptr;
    // NULL if the instruction set has none, or `compute` is `exact`.
    const keel_cpu::Bf16AttentionKernels *attention_bf16 = nullptr;

    keel_cpu::Memory scratch;             // shared by all ops, because ops run one after the other
    keel_cpu::WeightSlab *slab = nullptr; // the slab from which new weights are cut; weights own it
    uint64_t buffer_bytes = 0, weight_bytes = 0;
    uint64_t ticket = 0; // number of the last ticket
};

// A block of memory that holds tensors.
struct keel_buffer {
    keel_cpu::Memory memory;
    uint8_t *data = nullptr;
    uint64_t size = 0;
    keel_buffer_kind kind = KEEL_BUFFER_DEVICE;
    keel_cpu::Memory committed;   // RESERVE: one byte per page; 1 if the page has memory
    uint64_t committed_bytes = 0; // RESERVE: bytes of those pages
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

// Returns an out-struct with its header set and all other members zero.
template <class T> T make_out() {
    T out{};
    out.h = KEEL_HEADER(T);
    return out;
}

// Returns scratch memory of at least `bytes`, 64-byte aligned. Its contents are lost when it grows.
// op_plan calls this; a planned op calls it again and finds it large enough. NULL if there is no
// memory.
uint8_t *scratch(keel_ctx *ctx, uint64_t bytes) noexcept;

// The place of one worker in a parallel call.
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

// This worker's share of 0..total. Shares begin at multiples of `align` and are as equal as
// possible.
inline Range share(int64_t total, int64_t align, const Team &team) {
    const int64_t units = (total + align - 1) / align;
    const int64_t begin = units * team.worker / team.n * align,
                  end = units * (team.worker + 1) / team.n * align;
    return {begin < total ? begin : total, end < total ? end : total};
}

// Runs f(const Team &) on the whole team if n > 1, otherwise on the calling thread only. Starting a
// parallel region costs about a microsecond, so `n` must be the number of workers for which the
// work is large enough: see workers_for. f must not throw.
template <class F> keel_status parallel(keel_ctx *ctx, uint32_t n, F &&f) noexcept {
    if (n <= 1 || ctx->threads <= 1) {
        f(Team{0, 1, nullptr});
        return KEEL_OK;
    }
    using Body = std::remove_reference_t<F>;
    // always the whole team, because waking the same number of workers costs least
    return ctx->host->parallel_region(
        ctx->host, ctx->threads,
        [](void *user, const keel_region *region) {
            (*static_cast<Body *>(user))(Team{region->worker, region->n, region});
        },
        const_cast<void *>(static_cast<const void *>(&f)));
}

// The number of workers that is worthwhile for work that reads and writes `bytes`, or computes
// `flops`.
inline uint32_t workers_for(const keel_ctx *ctx, uint64_t bytes, uint64_t flops = 0) {
    return bytes >= 64u << 10 || flops >= 1u << 18 ? ctx->threads : 1;
}

// ---- tensors ----

// Address of element 0. The core has checked that the view is inside its buffer.
inline uint8_t *data_of(const keel_tensor *t) { return t->buffer->data + t->offset; }

template <class T> T *data_as(const keel_tensor *t) { return reinterpret_cast<T *>(data_of(t)); }

// Bytes from one row of the innermost dimension to the next. For rank 1, the length of the row.
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

// The rows (innermost dimension) of a tensor with any outer strides, numbered.
struct Rows {
    uint8_t *base;
    uint32_t outer; // number of outer dimensions
    int64_t shape[KEEL_MAX_RANK], stride[KEEL_MAX_RANK];
    int64_t count, n; // count: number of rows. n: elements of each.

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
