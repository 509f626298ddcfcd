// A matrix product and its division into tasks. The ops matmul and expert_matmul use it.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/tables.hpp"
#include "cpu/weights/weights.hpp"

namespace keel_cpu {

enum class Path {
    quant_int8,
    float_f32_few,
    half_half_few,
    half_half_many,
    half_bf16_few,
    any_bf16,
    any_f32
};

// A product, the kernel that it uses, and the sizes of areas in the scratch memory.
struct Matmul {
    MatmulTask task{};
    RowSource source{}; // the rows of W if W is a plain tensor and no prepared weight
    Path path = Path::any_f32;
    int64_t m = 0;
    int64_t unit = 1; // number of rows of W that the kernel handles at a time
    int64_t quantized_bytes = 0, panel_bytes = 0, half_bytes = 0, bf16_bytes = 0;

    // True: the kernel does not read x, but rows that round_row() has made of x.
    bool rounds() const { return path != Path::float_f32_few && path != Path::any_f32; }
    // True: products with fewer rows of the same weight round x too.
    bool may_round() const { return rounds() || half_bytes != 0; }
};

const char *weight_name(WeightType t);
// The instruction set of the product's kernel.
const char *isa_of(const keel_ctx *ctx, const Matmul &job);

// Chooses the kernel for m rows of x and sets the sizes. The caller has set the weight
// (job.task.w). Addresses, strides, bias and `accumulate` can be set later.
void choose_kernel(const keel_ctx *ctx, int64_t m, Matmul &job);
// Bytes of scratch memory for the product, and for every product with fewer rows of x.
uint64_t scratch_bytes(const keel_ctx *ctx, const Matmul &job);
// The first part of scratch_bytes(): bytes of the rounded rows of x. The memory of the workers
// follows, worker_bytes() for each.
int64_t rounded_bytes(const keel_ctx *ctx, const Matmul &job);
int64_t worker_bytes(const keel_ctx *ctx, const Matmul &job);

// The division of the product into tasks. Neighbouring tasks use neighbouring memory. Each worker
// takes neighbouring tasks while there are any.
struct Cut {
    int64_t n_step, m_step, n_tasks, m_tasks;
    int64_t tasks() const { return n_tasks * m_tasks; }
};
Cut cut(const keel_ctx *ctx, const Matmul &job);

// Rounds row m of x, which is stored at `x`, to the type that the kernel takes. `rounded` is the
// memory of the rounded rows.
void round_row(const keel_ctx *ctx, const Matmul &job, uint8_t *rounded, int64_t m, const float *x);
// Sets the addresses of the rounded rows in job.task.
void use_rounded(Matmul &job, const uint8_t *rounded);
// Computes one task. `memory` is the memory of the worker.
void run_task(const keel_ctx *ctx, const Matmul &job, const Cut &c, int64_t task,
              const uint8_t *rounded, uint8_t *memory);

} // namespace keel_cpu
