#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel {

// The number of the token in each slot of each head. These numbers are needed if keys are rotated
// to new positions, because then a key's position is not the number of its token. Not thread-safe.
class TokenNumbers {
  public:
    explicit TokenNumbers(size_t rows) : numbers_(rows) {} // rows: number of heads of all layers

    // Records that the n tokens after the first `seen` tokens take the next slots of all heads.
    void append(int64_t seen, int64_t n);
    // Records that a head keeps only the slots in `keep`, which are strictly rising.
    void record_compact(size_t row, std::span<const int32_t> keep);
    // Records that the last n tokens were removed.
    void truncate(int64_t n);
    void set(size_t row, std::span<const int32_t> numbers) {
        numbers_[row].assign(numbers.begin(), numbers.end());
    }
    void clear();
    size_t rows() const { return numbers_.size(); }
    std::span<const int32_t> row(size_t row) const { return numbers_[row]; }

  private:
    std::vector<std::vector<int32_t>> numbers_;
};

} // namespace keel
