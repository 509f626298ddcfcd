// A context of the CPU backend: settings, kernels, scratch memory and worker threads. Each op runs
// to its end inside the call. The stream only counts tickets.
#pragma once

#include "cpu/features.hpp"
#include "cpu/memory/memory.hpp"

#include <keel/backend.h>

#include <type_traits>

namespace keel_cpu {

struct WeightSlab;    // defined in weights/slab.hpp
struct MatmulKernels; // defined in kernels/tables.hpp, like the next three
struct Bf16MatmulKernels;
struct RowKernels;
struct AttentionKernels;
struct Bf16AttentionKernels;

// The parameter `copy`: controls whether 16-bit weights are copied from the mapped file
// (weights/copy.cpp). The values have the same order as the words of the parameter.
enum class Copy { automatic, on, off };
} // namespace keel_cpu

struct keel_ctx {
    // the core's host table; it is also an argument of its functions
    const keel_host *host = nullptr;
    uint32_t threads = 1; // number of workers in a parallel region
    keel_cpu::Isa isa = keel_cpu::Isa::scalar;
    // the parameter `compute` is `fast`: kernels may round activations for the products
    bool fast = true;
    bool prefetch = true; // true: kernels prefetch weights
    // true: kernels also prefetch rows of 16-bit and f32 weights, if several rows of x share these
    // rows.
    bool prefetch_rows = true;
    keel_cpu::Copy copy = keel_cpu::Copy::automatic;
    const keel_cpu::MatmulKernels *matmul = nullptr;
    // NULL if the instruction set has no bf16 kernels.
    const keel_cpu::Bf16MatmulKernels *matmul_bf16 = nullptr;
    const keel_cpu::RowKernels *rows = nullptr;
    const keel_cpu::AttentionKernels *attention = nullptr;
    // NULL if the instruction set has no bf16 kernels, or if `compute` is `exact`.
    const keel_cpu::Bf16AttentionKernels *attention_bf16 = nullptr;

    keel_cpu::Memory scratch; // all ops share this memory, because only one op runs at a time
    // the slab from which the memory of new weights is taken; the weights own the slab
    keel_cpu::WeightSlab *slab = nullptr;
    uint64_t buffer_bytes = 0, weight_bytes = 0;
    uint64_t ticket = 0; // number of the newest ticket
};

// A block of memory that holds tensors.
struct keel_buffer {
    keel_cpu::Memory memory;
    uint8_t *data = nullptr;
    uint64_t size = 0;
    keel_buffer_kind kind = KEEL_BUFFER_DEVICE;
    // only for RESERVE buffers: one byte per page; 1 if the page has memory
    keel_cpu::Memory committed;
    uint64_t committed_bytes = 0; // only for RESERVE buffers: bytes of the pages that have memory
};

struct keel_plan {
    keel_op op;
    uint64_t scratch_bytes;
    char kernel[64];
};

namespace keel_cpu {

// Reports the reason of a failed call to the host and returns `status`. Example:
// `return fail(ctx->host, KEEL_E_..., "...")`.
keel_status fail(const keel_host *host, keel_status status, const char *format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

// Returns a struct of the public header with its header fields set and all other members zero.
template <class T> T make_out() {
    T out{};
    out.h = KEEL_HEADER(T);
    return out;
}

// Returns scratch memory of at least `bytes` bytes, 64-byte aligned. If the memory must grow, its
// contents are lost. op_plan calls this function first; when the planned op calls it again, the
// memory is large enough. Returns NULL if there is no memory.
uint8_t *scratch(keel_ctx *ctx, uint64_t bytes) noexcept;

// The number of one worker, and of all workers, in a parallel call.
struct Team {
    uint32_t worker, n;
    const keel_region *region; // NULL: there is one worker, the calling thread

    void barrier() const {
        if (region != nullptr) region->barrier(region);
    }
};

struct Range {
    int64_t begin, end;
};

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Returns this worker's share of the range 0..total-1. Shares begin at multiples of `align` and are
// as equal as possible.
inline Range share(int64_t total, int64_t align, const Team &team) {
    const int64_t units = (total + align - 1) / align;
    const int64_t begin = units * team.worker / team.n * align,
                  end = units * (team.worker + 1) / team.n * align;
    return {begin < total ? begin : total, end < total ? end : total};
}

// Runs f(const Team &) on all workers if n > 1, otherwise only on the calling thread. Starting a
// parallel region costs about a microsecond. So `n` must be the number of workers for which the
// work is large enough, which workers_for() returns. f must not throw.
template <class F> keel_status parallel(keel_ctx *ctx, uint32_t n, F &&f) noexcept {
    if (n <= 1 || ctx->threads <= 1) {
        f(Team{0, 1, nullptr});
        return KEEL_OK;
    }
    using Body = std::remove_reference_t<F>;
    // All workers run, because waking the same number of workers each time costs least.
    return ctx->host->parallel_region(
        ctx->host, ctx->threads,
        [](void *user, const keel_region *region) {
            (*static_cast<Body *>(user))(Team{region->worker, region->n, region});
        },
        const_cast<void *>(static_cast<const void *>(&f)));
}

// Returns the number of workers for which the work is large enough. The work reads and writes
// `bytes` bytes, or computes `flops` floating-point operations.
inline uint32_t workers_for(const keel_ctx *ctx, uint64_t bytes, uint64_t flops = 0) {
    return bytes >= 64u << 10 || flops >= 1u << 18 ? ctx->threads : 1;
}

// ---- tensors ----

// Returns the address of element 0. The core has checked that the tensor is inside its buffer.
inline uint8_t *data_of(const keel_tensor *t) { return t->buffer->data + t->offset; }

template <class T> T *data_as(const keel_tensor *t) { return reinterpret_cast<T *>(data_of(t)); }

// Returns the distance in bytes between rows of the innermost dimension. For rank 1, returns the
// number of bytes of the row.
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

// Numbers the rows (innermost dimension) of a tensor with any outer strides from 0 to count - 1.
struct Rows {
    uint8_t *base;
    uint32_t outer; // number of outer dimensions
    int64_t shape[KEEL_MAX_RANK], stride[KEEL_MAX_RANK];
    int64_t count, n; // count: number of rows; n: number of elements of a row

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
