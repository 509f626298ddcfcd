// Computes b.k + k'Mk for many keys k. The policy spends nearly all of its time here: for T keys of
// d elements, each query head needs T * d * d / 2 multiplications. The loop handles 16 keys and
// four rows of M at a time. Each lane of a vector holds one key, so the result does not depend on
// the register width.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

// target_clones makes several versions of a function. The dynamic loader picks the widest version
// that the processor can run. Sanitizer builds do not use target_clones, because sanitizers are not
// initialized at that time.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&             \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define KEEL_QUADRATIC_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KEEL_QUADRATIC_CLONES
#endif

namespace {

using KeyLanes = float __attribute__((vector_size(64)));
// Stores a KeyLanes in memory. KeyLanes itself is not stored, because some compilers do not keep
// the alignment of a vector type in containers.
struct alignas(64) KeyRow {
    float lane[16];
};

// Up to 16 keys, stored as [head_dim][lane].
class KeyBlock {
  public:
    static constexpr int64_t lanes = 16;
    explicit KeyBlock(uint32_t dim) : dim_(dim), rows_((dim + 3) / 4 * 4) {}

    // Copies `count` keys of dim_ elements each. Lanes without a key become zero.
    void take(const float *keys, int64_t count) {
        for (uint32_t i = 0; i < dim_; ++i) {
            rows_[i] = {};
            for (int64_t lane = 0; lane < count; ++lane)
                rows_[i].lane[lane] = keys[lane * dim_ + i];
        }
    }
    const KeyRow *rows() const { return rows_.data(); }

  private:
    uint32_t dim_;
    std::vector<KeyRow> rows_;
};

// Panel p holds rows 4p .. 4p + 3 of the lower half of M, column by column, up to column 4p + 3.
// dim is a multiple of 4.
KEEL_QUADRATIC_CLONES void evaluate_form(const float *panels, const float *bias, uint32_t dim,
                                         const KeyRow *keys, KeyRow *out) {
    KeyLanes sum = {}, k;
    for (uint32_t row = 0; row < dim; row += 4) {
        KeyLanes y0 = bias[row] - KeyLanes{}, y1 = bias[row + 1] - KeyLanes{},
                 y2 = bias[row + 2] - KeyLanes{}, y3 = bias[row + 3] - KeyLanes{};
        for (uint32_t column = 0; column < row + 4; ++column, panels += 4) {
            std::memcpy(&k, keys[column].lane, sizeof k);
            y0 += panels[0] * k;
            y1 += panels[1] * k;
            y2 += panels[2] * k;
            y3 += panels[3] * k;
        }
        const KeyLanes *products[] = {&y0, &y1, &y2, &y3};
        for (uint32_t i = 0; i < 4; ++i) {
            std::memcpy(&k, keys[row + i].lane, sizeof k);
            sum += *products[i] * k;
        }
    }
    std::memcpy(out->lane, &sum, sizeof sum);
}

class QuadraticForm {
  public:
    // bias has the shape [dim]. matrix has the shape [dim, dim] and is symmetric. An empty matrix
    // counts as zero.
    QuadraticForm(uint32_t dim, const std::vector<double> &bias, const std::vector<double> &matrix)
        : padded_((dim + 3) / 4 * 4), bias_(bias.begin(), bias.end()) {
        bias_.resize(padded_);
        for (uint32_t row = 0; row < padded_ && !matrix.empty(); row += 4) {
            for (uint32_t column = 0; column < row + 4; ++column) {
                for (uint32_t i = row; i < row + 4; ++i) {
                    // Adds an element above the diagonal to its mirror element below the diagonal.
                    const bool is_there = i < dim && column <= i;
                    const double m = is_there ? matrix[size_t{i} * dim + column] : 0.0;
                    panels_.push_back(static_cast<float>(column < i ? 2 * m : m));
                }
            }
        }
    }

    void evaluate(const KeyBlock &block, float *out, int64_t count) const {
        const KeyRow *keys = block.rows();
        KeyRow result = {};
        if (panels_.empty()) {
            for (uint32_t i = 0; i < padded_; ++i)
                for (int64_t lane = 0; lane < KeyBlock::lanes; ++lane)
                    result.lane[lane] += bias_[i] * keys[i].lane[lane];
        } else {
            evaluate_form(panels_.data(), bias_.data(), padded_, keys, &result);
        }
        std::memcpy(out, result.lane, sizeof(float) * static_cast<size_t>(count));
    }

  private:
    uint32_t padded_; // dim rounded up to a multiple of 4
    std::vector<float> bias_, panels_;
};

} // namespace
