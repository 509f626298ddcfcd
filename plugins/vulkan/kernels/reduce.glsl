// Sum, maximum and minimum over a workgroup. All invocations must call these functions, and all
// invocations get the result. With KEEL_SUBGROUPS, values are first reduced over subgroups. The
// code counts the invocations of a subgroup, because some drivers make subgroups that are smaller
// than gl_SubgroupSize. Without KEEL_SUBGROUPS, values are reduced in shared memory, and the size
// of the workgroup is a power of two.
#ifdef KEEL_SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

shared uint reduce_room[gl_WorkGroupSize.x];

#ifdef KEEL_SUBGROUPS
#define KEEL_REDUCE(name, T, nothing, subgroup_op, combine, to_uint, from_uint)                    \
    T name(T x) {                                                                                  \
        x = subgroup_op(x);                                                                        \
        if (gl_NumSubgroups == 1) return x;                                                        \
        barrier();                                                                                 \
        if (subgroupElect()) reduce_room[gl_SubgroupID] = to_uint(x);                              \
        barrier();                                                                                 \
        x = from_uint(nothing);                                                                    \
        const uint lanes = subgroupAdd(1u);                                                        \
        for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += lanes) {                  \
            const T y = from_uint(reduce_room[i]);                                                 \
            x = combine(x, y);                                                                     \
        }                                                                                          \
        return subgroup_op(x);                                                                     \
    }
#else
#define KEEL_REDUCE(name, T, nothing, subgroup_op, combine, to_uint, from_uint)                    \
    T name(T x) {                                                                                  \
        barrier();                                                                                 \
        reduce_room[gl_LocalInvocationIndex] = to_uint(x);                                         \
        for (uint half_size = gl_WorkGroupSize.x / 2; half_size != 0; half_size /= 2) {            \
            barrier();                                                                             \
            if (gl_LocalInvocationIndex < half_size) {                                             \
                const T y = from_uint(reduce_room[gl_LocalInvocationIndex + half_size]);           \
                x = combine(x, y);                                                                 \
                reduce_room[gl_LocalInvocationIndex] = to_uint(x);                                 \
            }                                                                                      \
        }                                                                                          \
        barrier();                                                                                 \
        return from_uint(reduce_room[0]);                                                          \
    }
#endif
#define KEEL_PLUS(a, b) ((a) + (b))

KEEL_REDUCE(group_sum, float, 0u, subgroupAdd, KEEL_PLUS, floatBitsToUint, uintBitsToFloat)
KEEL_REDUCE(group_max, uint, 0u, subgroupMax, max, uint, uint)
KEEL_REDUCE(group_min, uint, 0xFFFFFFFFu, subgroupMin, min, uint, uint)

// Maps a float to an integer with the same order. NaN becomes the largest integer, and -0 equals 0.
uint order_key(float x) {
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0xFFFFFFFFu;
    if ((bits & 0x7FFFFFFFu) == 0u) bits = 0u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
float key_value(uint key) {
    if (key == 0xFFFFFFFFu) return nan();
    return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7FFFFFFFu : ~key);
}
