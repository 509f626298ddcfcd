#pragma once

#include "eval/compare/op_outputs.hpp"

namespace keel {

// The error of an output.
struct OutputError {
    size_t element = 0; // the element with the largest ratio
    // Of that element: |a - b| / (1 + max|b| of its row). For integers: |a - b|.
    double error = 0;
    double ratio = 0;              // error / bound; infinite if the bound is 0
    uint64_t beyond = 0;           // elements beyond the bound
    double largest = 0;            // the largest |a - b| of elements that are finite on both sides
    double squares = 0, scale = 0; // sums of (a - b)^2 and b^2 over these elements
};

// Compares outputs of the same shape. Elements without a meaning are left out (see OpOutput::counts
// of `mine`).
OutputError output_error(const OpOutput &mine, const TensorValues &expected, double bound);

} // namespace keel
