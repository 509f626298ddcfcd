// Access to memory by address, and conversion of element types. Every kernel includes this file
// first.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require

#include "params.h"

layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;

#ifdef PARAMS_IN_MEMORY
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer ParamsBlock {
    PARAMS p;
};
layout(push_constant, std430) uniform Push {
    ParamsBlock params_block;
};
#define P params_block.p
#else
layout(push_constant, std430) uniform Push {
    PARAMS P;
};
#endif

// Kernels only read memory of the types In... . They can read and write memory of the other types.
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer InF32 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer InF32x4 { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer InU32 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer InU32x2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer InU32x4 {
    uvec4 v[];
};
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer InI32 { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) readonly buffer InU16 {
    uint16_t v[];
};
layout(buffer_reference, std430, buffer_reference_align = 1) readonly buffer InU8 { uint8_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer F32 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer U32 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer I32 { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer U16 { uint16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 1) buffer U8 { uint8_t v[]; };

// The values of keel_gpu::Type.
const uint kF32 = 0, kF16 = 1, kBf16 = 2, kQ8 = 3, kQ4 = 4;

// Return the address of a unit. The index wraps at 2^32, as on the host.
uint64_t at4(uint64_t base, uint index) { return base + 4ul * uint64_t(index); }
uint64_t at_row(uint64_t base, Rows rows, uint i, uint j) {
    return at4(base, rows.offset + i * rows.outer + j * rows.inner);
}

// These functions test bits, because a compiler may assume that NaN and infinity do not occur.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u; }
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7F800000u) != 0x7F800000u; }
#define kInf uintBitsToFloat(0x7F800000u)
float nan() { return uintBitsToFloat(0x7FC00000u); }

// The following functions convert f16 and bf16 to and from the bits of f32. They round to nearest
// even and handle subnormals. Conversion instructions can flush subnormals to zero.
uint f32_bits_of_f16(uint h) {
    const uint m = h & 0x7FFFu;
    uint bits = (m << 13) + 0x38000000u;
    if (m >= 0x7C00u) bits += 0x38000000u;
    if (m < 0x400u) bits = floatBitsToUint(float(m) * 5.9604644775390625e-8);
    return bits | ((h & 0x8000u) << 16);
}
uint f16_of_f32_bits(uint bits) {
    const uint sign = (bits >> 16) & 0x8000u, m = bits & 0x7FFFFFFFu;
    if (m > 0x7F800000u) return sign | 0x7E00u;
    if (m >= 0x477FF000u) return sign | 0x7C00u;
    if (m >= 0x38800000u) return sign | ((m - 0x38000000u + 0xFFFu + ((m >> 13) & 1u)) >> 13);
    return sign | (floatBitsToUint(uintBitsToFloat(m) + 0.5) - 0x3F000000u);
}
uint bf16_of_f32_bits(uint bits) {
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
}
float scale_of(uint h) { return uintBitsToFloat(f32_bits_of_f16(h)); }
int code_of(uint byte) { return (int(byte) << 24) >> 24; }

// Returns element i of a row of any type, as the bits of an f32.
uint load_bits(uint type, uint64_t row, uint i) {
    if (type == kF32) return InU32(row).v[i];
    if (type == kF16) return f32_bits_of_f16(uint(InU16(row).v[i]));
    if (type == kBf16) return uint(InU16(row).v[i]) << 16;
    const uint j = i & 31u;
    if (type == kQ8) {
        const uint64_t block = row + 34ul * uint64_t(i >> 5);
        return floatBitsToUint(float(code_of(uint(InU8(block + 2ul).v[j]))) *
                               scale_of(uint(InU16(block).v[0])));
    }
    const uint64_t block = row + 18ul * uint64_t(i >> 5);
    const uint byte = uint(InU8(block + 2ul).v[j & 15u]);
    const int code = int(j < 16u ? byte & 15u : byte >> 4) - 8;
    return floatBitsToUint(float(code) * scale_of(uint(InU16(block).v[0])));
}
float load_value(uint type, uint64_t row, uint i) {
    return uintBitsToFloat(load_bits(type, row, i));
}

void store_bits(uint type, uint64_t row, uint i, uint bits) {
    if (type == kF32)
        U32(row).v[i] = bits;
    else if (type == kF16)
        U16(row).v[i] = uint16_t(f16_of_f32_bits(bits));
    else
        U16(row).v[i] = uint16_t(bf16_of_f32_bits(bits));
}
