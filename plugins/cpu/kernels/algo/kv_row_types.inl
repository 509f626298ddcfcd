// Reads rows of the cache as vectors of f32. This file is included once in each kernel file, after
// the primitives of simd_*.hpp.
namespace keel_cpu::KEEL_ISA_NAMESPACE {
namespace {

// Number of elements in a block of q8_0 and q4_0. Rows of all dtypes are read 32 elements at a
// time.
constexpr int64_t kBlock = 32;
constexpr int kSteps = static_cast<int>(kBlock / W);

// The following types read a row of one dtype. `scale` is called once for every 32 elements. `vec`
// returns vector i of these 32 elements. `one` returns a single element.
struct F32Row {
    static constexpr bool blocks = false;
    struct Scale {};
    KEEL_SIMD Scale scale(const uint8_t *, int64_t) { return {}; }
    KEEL_SIMD F vec(const uint8_t *row, int64_t element, int, Scale) {
        return load(reinterpret_cast<const float *>(row) + element);
    }
    KEEL_SIMD float one(const uint8_t *row, int64_t element) {
        return reinterpret_cast<const float *>(row)[element];
    }
};

struct F16Row {
    static constexpr bool blocks = false;
    struct Scale {};
    KEEL_SIMD Scale scale(const uint8_t *, int64_t) { return {}; }
    KEEL_SIMD F vec(const uint8_t *row, int64_t element, int, Scale) {
        return load_f16(reinterpret_cast<const uint16_t *>(row) + element);
    }
    KEEL_SIMD float one(const uint8_t *row, int64_t element) {
        return f16_to_f32(reinterpret_cast<const uint16_t *>(row)[element]);
    }
};

struct Bf16Row {
    static constexpr bool blocks = false;
    struct Scale {};
    KEEL_SIMD Scale scale(const uint8_t *, int64_t) { return {}; }
    KEEL_SIMD F vec(const uint8_t *row, int64_t element, int, Scale) {
        return load_bf16(reinterpret_cast<const uint16_t *>(row) + element);
    }
    KEEL_SIMD float one(const uint8_t *row, int64_t element) {
        return bf16_to_f32(reinterpret_cast<const uint16_t *>(row)[element]);
    }
};

KEEL_SIMD float block_scale(const uint8_t *block) {
    uint16_t bits;
    memcpy(&bits, block, 2);
    return f16_to_f32(bits);
}

struct Q8Row {
    static constexpr bool blocks = true;
    using Scale = F;
    KEEL_SIMD Scale scale(const uint8_t *row, int64_t block) {
        return set1(block_scale(row + block * 34));
    }
    KEEL_SIMD F vec(const uint8_t *row, int64_t element, int i, Scale d) {
        const uint8_t *codes = row + element / kBlock * 34 + 2 + i * W;
        return mul(load_i8(reinterpret_cast<const int8_t *>(codes)), d);
    }
    // never called, because rows of this dtype are whole blocks
    KEEL_SIMD float one(const uint8_t *, int64_t) { return 0; }
};

struct Q4Row {
    static constexpr bool blocks = true;
    using Scale = F;
    KEEL_SIMD Scale scale(const uint8_t *row, int64_t block) {
        return set1(block_scale(row + block * 18));
    }
    KEEL_SIMD F vec(const uint8_t *row, int64_t element, int i, Scale d) {
        const int first = i * W;
        return mul(load_nibbles(row + element / kBlock * 18 + 2 + first % 16, first >= 16), d);
    }
    KEEL_SIMD float one(const uint8_t *, int64_t) { return 0; }
};

// Reads the first n <= W elements from `element` on, followed by zeros. Used for the end of a row
// whose length is not a multiple of 32.
template <class Row>
KEEL_SIMD F tail(const uint8_t *row, int64_t element, int64_t n) {
    if (n >= W) return Row::vec(row, element, 0, typename Row::Scale{});
    float x[W] = {};
    for (int64_t i = 0; i < n; ++i)
        x[i] = Row::one(row, element + i);
    return keel_cpu::KEEL_ISA_NAMESPACE::load(x);
}

} // namespace
} // namespace keel_cpu::KEEL_ISA_NAMESPACE
