// All matmul kernels and their table. The kernels are written with the primitives of simd_*.hpp and
// int8_*.hpp. This file is compiled once for each instruction set.
#include "cpu/kernels/algo/matmul_quant_int8.inl"

#include "cpu/kernels/algo/unpack_k.inl"

#include "cpu/kernels/algo/matmul_float_f32_few.inl"
#if !defined(KEEL_CPU_SCALAR_KERNELS)
#include "cpu/kernels/algo/round_f16.inl"
#endif
#if defined(KEEL_ARM_LEVEL)
#include "cpu/kernels/algo/matmul_half_half_arm.inl"
#elif !defined(KEEL_CPU_SCALAR_KERNELS)
#include "cpu/kernels/algo/matmul_half_half_x86.inl"
#endif

#include "cpu/kernels/algo/unpack.inl"

#include "cpu/kernels/algo/matmul_any_f32.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

static const MatmulKernels matmul_table = {
    .isa = isa_word,
    .group = R,
    .panel = panel_rows,
    .panel_k = panel_k,
    .quantize = quantize,
    .matmul_quant_int8 = matmul_quant_int8,
    .matmul_float_f32_few = matmul_float_f32_few,
#if !defined(KEEL_CPU_SCALAR_KERNELS)
    .half_few_types = half_few_types,
    .half_few_cols = half_few_cols,
    .half_many_types = half_many_types,
    .round_half = round_half,
    .matmul_half_half_few = matmul_half_half_few,
    .matmul_half_half_many = matmul_half_half_many,
#else
    .half_few_types = 0,
    .half_few_cols = 0,
    .half_many_types = 0,
    .round_half = nullptr,
    .matmul_half_half_few = nullptr,
    .matmul_half_half_many = nullptr,
#endif
    .matmul_any_f32 = matmul_any_f32,
    .unpack_row = unpack_row,
    .convert = convert,
};

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
