#pragma once

#include <keel/kv.h>

#include <cstdint>
#include <string>
#include <vector>

namespace keel::conformance {

// The generator SplitMix64 (Steele, Lea, Flood 2014). It is used because the engine and the
// distribution of the standard library took half of the run time.
class Rng {
  public:
    using result_type = uint64_t;
    explicit Rng(uint64_t seed = 0) : state_(seed) {}
    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return UINT64_MAX; }
    result_type operator()() {
        uint64_t z = state_ += 0x9E3779B97F4A7C15U;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
        return z ^ (z >> 31);
    }
    // Returns a number that is approximately normal with deviation 1: the sum of four uniform
    // numbers. Its magnitude is at most 3.5.
    float normal() {
        const uint64_t bits = (*this)();
        const auto sum = static_cast<int32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                              (bits >> 32 & 0xFFFF) + (bits >> 48));
        return static_cast<float>(sum - 2 * 0xFFFF) * (1.7320508F / 65536);
    }

  private:
    uint64_t state_;
};

// The layout of a tensor in its buffer. `gap` makes strides larger than necessary. `shift`
// misaligns element 0.
struct Layout {
    int64_t gap = 0; // number of elements (for block types: blocks) between rows
    // Number of elements (for block types: blocks) before element 0, in addition to the margin.
    int64_t shift = 0;
};

// A tensor of a case, as the bytes of its whole buffer on the host. Margins, gaps and outputs
// contain the bytes 0xFF, which are a NaN in every float type and -1 in i32. So if an op reads
// outside of the elements, the result changes. If an op writes outside of the elements, the suite
// detects it.
struct Tensor {
    keel_dtype dtype = KEEL_DTYPE_F32;
    std::vector<int64_t> shape;
    std::vector<int64_t> stride; // in bytes, for the outer dimensions
    uint64_t offset = 0;
    std::vector<uint8_t> image;

    int64_t row_length() const { return shape.back(); }
    uint64_t row_bytes() const {
        return keel_dtype_row_bytes(dtype, static_cast<uint64_t>(shape.back()));
    }
    int64_t rows() const;
    uint64_t row_offset(int64_t row) const; // rows are counted in row-major order
    int64_t elements() const { return rows() * shape.back(); }
    keel_tensor describe(keel_buffer *buffer) const;

    std::vector<double> values() const { return values_of(image); }
    std::vector<double> values_of(const std::vector<uint8_t> &other_image) const;
    std::vector<int32_t> integers_of(const std::vector<uint8_t> &other_image) const;
    // takes values in row-major order and converts them to the dtype
    void set(const std::vector<float> &values);
    void set_integers(const std::vector<int32_t> &values);
    // Returns the absolute values as a contiguous f32 tensor. They are used to compute the sum of
    // the magnitudes of an op's terms.
    Tensor absolute() const;
};

Tensor blank(keel_dtype dtype, std::vector<int64_t> shape, Layout layout = {});
// Returns random values around 0 with the given spread. A few of the values are tiny, zero or
// subnormal.
Tensor random_tensor(Rng &rng, keel_dtype dtype, std::vector<int64_t> shape, Layout layout = {},
                     float spread = 1.0F);
Tensor integer_tensor(std::vector<int64_t> shape, const std::vector<int32_t> &values,
                      Layout layout = {});
std::string shape_text(const Tensor &t);

} // namespace keel::conformance
