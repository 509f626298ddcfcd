#pragma once

#include "reference/view.hpp"

namespace keel::reference {

// Steps on one row that several ops share.

// x = x / sqrt(mean(x^2) + eps) * weight (ops_norm.cpp)
void rms_normalize(Row &x, const Row &weight, double eps);

// RoPE (rope.cpp). Rotates one head's row by one row of the tables.
class Rotation {
  public:
    explicit Rotation(const keel_rope_tables &tables);
    // By the table row of a position, which is position mod rows; `inverse` negates the sine.
    void at_position(Row &x, int64_t position, bool inverse) const;
    // By table row `row`. Refuses one that the tables do not have.
    void by_row(Row &x, int64_t row, bool inverse) const;

  private:
    View cos_, sin_;
    int64_t half_;
    bool interleaved_;
};

} // namespace keel::reference
