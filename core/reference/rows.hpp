#pragma once

#include "reference/view.hpp"

namespace keel::reference {

// Computations on one row that several ops share.

// x = x / sqrt(mean(x^2) + eps) * weight (ops_norm.cpp)
void rms_normalize(Row &x, const Row &weight, double eps);

// RoPE (rope.cpp): rotates the row of one head by one row of the tables.
class Rotation {
  public:
    explicit Rotation(const keel_rope_tables &tables);
    // Rotates by the table row of a position: row number `position` mod the number of rows.
    // `inverse` negates the sine.
    void at_position(Row &x, int64_t position, bool inverse) const;
    // Rotates by table row `row`. Throws if the tables do not have the row.
    void by_row(Row &x, int64_t row, bool inverse) const;

  private:
    View cos_, sin_;
    int64_t half_;
    bool interleaved_;
};

} // namespace keel::reference
