// Returns the kernel tables of an instruction set. Kernel files of other architectures are not
// compiled.
#include "cpu/kernels/tables.hpp"

namespace keel_cpu {
namespace {

// Returns the instruction set whose f32 kernels `isa` uses. Higher sets only add products of bytes
// and of 16-bit numbers.
Isa f32_set(Isa isa) {
    switch (isa) {
    case Isa::vnni:
    case Isa::avx512bf16:
    case Isa::amx: return Isa::avx512;
    case Isa::dotprod:
    case Isa::fp16:
    case Isa::i8mm: return Isa::neon;
    default: return isa;
    }
}

} // namespace

const MatmulKernels *matmul_kernels(Isa isa) {
    switch (isa) {
#if defined(KEEL_CPU_X86_KERNELS)
    case Isa::avx2: return matmul_kernels_avx2();
    case Isa::avx512: return matmul_kernels_avx512();
#if defined(KEEL_CPU_EMULATED_AVX512)
    case Isa::amx: return matmul_kernels_avx512();
#else
    case Isa::vnni: // also used for avx512bf16 and amx, whose own tables are only for many rows
    case Isa::avx512bf16:
    case Isa::amx: return matmul_kernels_vnni();
#endif
#elif defined(KEEL_CPU_ARM64_KERNELS)
    case Isa::neon: return matmul_kernels_neon();
    case Isa::dotprod: return matmul_kernels_dotprod();
    case Isa::fp16: return matmul_kernels_fp16();
    case Isa::i8mm: return matmul_kernels_i8mm();
#endif
    default: return matmul_kernels_scalar();
    }
}

const RowKernels *row_kernels(Isa isa) {
    switch (f32_set(isa)) {
#if defined(KEEL_CPU_X86_KERNELS)
    case Isa::avx2: return row_kernels_avx2();
    case Isa::avx512: return row_kernels_avx512();
#elif defined(KEEL_CPU_ARM64_KERNELS)
    case Isa::neon: return row_kernels_neon();
#endif
    default: return row_kernels_scalar();
    }
}

const AttentionKernels *attention_kernels(Isa isa) {
    switch (f32_set(isa)) {
#if defined(KEEL_CPU_X86_KERNELS)
    case Isa::avx2: return attention_kernels_avx2();
    case Isa::avx512: return attention_kernels_avx512();
#elif defined(KEEL_CPU_ARM64_KERNELS)
    case Isa::neon: return attention_kernels_neon();
#endif
    default: return attention_kernels_scalar();
    }
}

const Bf16MatmulKernels *bf16_matmul_kernels([[maybe_unused]] Isa isa) {
#if defined(KEEL_CPU_X86_KERNELS)
    if (isa == Isa::amx) return bf16_matmul_kernels_amx();
#if !defined(KEEL_CPU_EMULATED_AVX512)
    if (isa == Isa::avx512bf16) return bf16_matmul_kernels_avx512();
#endif
#endif
    return nullptr;
}

const Bf16AttentionKernels *bf16_attention_kernels([[maybe_unused]] Isa isa) {
#if defined(KEEL_CPU_X86_KERNELS)
    if (isa == Isa::amx) return bf16_attention_kernels_amx();
#if !defined(KEEL_CPU_EMULATED_AVX512)
    if (isa == Isa::avx512bf16) return bf16_attention_kernels_avx512();
#endif
#endif
    return nullptr;
}

} // namespace keel_cpu
