// Which tables belong to an instruction set. The kernel files of other architectures are not built.
#include "cpu/kernels/attention_bf16.hpp"
#include "cpu/kernels/bf16.hpp"

namespace keel_cpu {

const LinearKernels *linear_kernels(Isa isa) {
    switch (isa) {
#if defined(KEEL_CPU_X86_KERNELS)
    case Isa::avx2:
        return linear_kernels_avx2();
    case Isa::avx512:
        return linear_kernels_avx512();
#if defined(KEEL_CPU_EMULATED_AVX512)
    case Isa::amx:
        return linear_kernels_avx512();
#else
    case Isa::vnni: // and what has products of bf16 for many rows beside it
    case Isa::avx512bf16:
    case Isa::amx:
        return linear_kernels_vnni();
#endif
#elif defined(KEEL_CPU_ARM64_KERNELS)
    case Isa::neon:
        return linear_kernels_neon();
    case Isa::dotprod:
        return linear_kernels_dotprod();
    case Isa::fp16:
        return linear_kernels_fp16();
    case Isa::i8mm:
        return linear_kernels_i8mm();
#endif
    default:
        return linear_kernels_scalar();
    }
}

const Bf16Kernels *bf16_kernels(Isa isa) {
#if defined(KEEL_CPU_X86_KERNELS)
    if (isa == Isa::amx) return bf16_kernels_amx();
#if !defined(KEEL_CPU_EMULATED_AVX512)
    if (isa == Isa::avx512bf16) return bf16_kernels_avx512();
#endif
#endif
    (void)isa;
    return nullptr;
}

const Bf16AttentionKernels *bf16_attention_kernels(Isa isa) {
#if defined(KEEL_CPU_X86_KERNELS)
    if (isa == Isa::amx) return bf16_attention_kernels_amx();
#if !defined(KEEL_CPU_EMULATED_AVX512)
    if (isa == Isa::avx512bf16) return bf16_attention_kernels_avx512();
#endif
#endif
    (void)isa;
    return nullptr;
}

const AttentionKernels *attention_kernels(Isa isa) {
    switch (isa) {
#if defined(KEEL_CPU_X86_KERNELS)
    case Isa::avx2:
        return attention_kernels_avx2();
    case Isa::avx512:
    case Isa::
        vnni: // nothing in a cache is multiplied by bytes; what is rounded to bf16 has a table beside this one
    case Isa::avx512bf16:
    case Isa::amx:
        return attention_kernels_avx512();
#elif defined(KEEL_CPU_ARM64_KERNELS)
    // Sums in f32 of what the cache holds: what the later sets add is for bytes and for rounded operands.
    case Isa::neon:
    case Isa::dotprod:
    case Isa::fp16:
    case Isa::i8mm:
        return attention_kernels_neon();
#endif
    default:
        return attention_kernels_scalar();
    }
}

} // namespace keel_cpu
