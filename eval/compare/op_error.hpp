#pragma once

#include "eval/compare/op_outputs.hpp"

namespace keel {

// The error of an output, compared with the expected values.
struct OutputError {
    size_t element = 0; // the element with the largest ratio of error to bound
    // The error of this element: |a - b| / (1 + max|b| of the element's row). For integers: |a -
    // b|.
    double error = 0;
    double ratio = 0;              // error / bound; infinite if the bound is 0
    uint64_t beyond = 0;           // number of elements beyond the bound
    double largest = 0;            // the largest |a - b| of the elements that are finite in both
                                   // outputs
    double squares = 0, scale = 0; // sums of (a - b)^2 and b^2 over the finite elements
};

// Compares two outputs of the same shape. Elements for which OpOutput::counts() of `mine` is false
// are ignored.
OutputError output_error(const OpOutput &mine, const TensorValues &expected, double bound);

} // namespace keel
