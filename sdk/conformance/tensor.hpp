#pragma once

#include <keel/kv.h>

#include <cstdint>
#include <string>
#include <vector>

namespace keel::conformance {

// SplitMix64 (Steele, Lea, Flood 2014): making up values took half of a run with the standard
// library's engine and distribution.
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
    // About normal, of deviation 1: the sum of four uniform numbers, so never beyond 3.5.
    float normal() {
        const uint64_t bits = (*this)();
        const auto sum = static_cast<int32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                              (bits >> 32 & 0xFFFF) + (bits >> 48));
        return static_cast<float>(sum - 2 * 0xFFFF) * (1.7320508F / 65536);
    }

  private:
    uint64_t state_;
};

// How a tensor lies in its buffer: gaps make strides larger than they have to be, `shift` moves
// element 0 off alignment.
struct Layout {
    int64_t gap = 0;   // elements (plain types) or blocks between rows
    int64_t shift = 0; // elements (plain types) or blocks before element 0, beyond the margin
};

// A tensor of a case as the host knows it: the whole image of its buffer. Margins, gaps and outputs
// hold 0xFF, which is a NaN in every float type and -1 in i32, so reading outside shows and writing
// outside is found.
struct Tensor {
    keel_dtype dtype = KEEL_DTYPE_F32;
    std::vector<int64_t> shape;
    std::vector<int64_t> stride; // bytes, of the outer dimensions
    uint64_t offset = 0;
    std::vector<uint8_t> image;

    int64_t row_length() const { return shape.back(); }
    uint64_t row_bytes() const {
        return keel_dtype_row_bytes(dtype, static_cast<uint64_t>(shape.back()));
    }
    int64_t rows() const;
    uint64_t row_offset(int64_t row) const; // rows counted in row-major order
    int64_t elements() const { return rows() * shape.back(); }
    keel_tensor describe(keel_buffer *buffer) const;

    std::vector<double> values() const { return values_of(image); }
    std::vector<double> values_of(const std::vector<uint8_t> &other_image) const;
    std::vector<int32_t> integers_of(const std::vector<uint8_t> &other_image) const;
    void set(const std::vector<float> &values); // row-major, converted to the dtype
    void set_integers(const std::vector<int32_t> &values);
    // |values| as f32, contiguous: for the sum of the absolute values of an op's terms.
    Tensor absolute() const;
};

Tensor blank(keel_dtype dtype, std::vector<int64_t> shape, Layout layout = {});
// Values around 0 with the given spread; a few are tiny, zero or subnormal.
Tensor random_tensor(Rng &rng, keel_dtype dtype, std::vector<int64_t> shape, Layout layout = {},
                     float spread = 1.0F);
Tensor integer_tensor(std::vector<int64_t> shape, const std::vector<int32_t> &values,
                      Layout layout = {});
std::string shape_text(const Tensor &t);

} // namespace keel::conformance
