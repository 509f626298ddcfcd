#pragma once

#include "eval/compare/op_outputs.hpp"

namespace keel {

// The error of an output.
struct OutputError {
    size_t element = 0; // the one furthest beyond its bound, or nearest to it
    double error =
        0; // of that element: |a - b| / (1 + max|b| of its row); of whole numbers: |a - b|
    double ratio = 0;              // error / bound; infinite where anything is too much
    uint64_t beyond = 0;           // elements beyond the bound
    double largest = 0;            // |a - b| of any element that is finite on both sides
    double squares = 0, scale = 0; // sums of (a - b)^2 and b^2 over those
};

// Outputs of the same shape. Elements without a meaning (see OpOutput::counts of `mine`) are left
// out.
OutputError output_error(const OpOutput &mine, const TensorValues &expected, double bound);

} // namespace keel
