// The attention kernels over the primitives of simd_*.hpp; included once per instruction set.
namespace keel_cpu::KEEL_ISA_NAMESPACE {
static const AttentionKernels attention_table = {isa_word};
} // namespace keel_cpu::KEEL_ISA_NAMESPACE
