#pragma once

#include "model/source.hpp"

#include <string>
#include <vector>

namespace keel::cli {

struct BadTensor {
    std::string name, file; // as the file calls it
    uint64_t elements = 0, not_finite = 0;
    std::vector<int64_t> first_index; // of the first value that is not finite
};

struct Verification {
    uint64_t tensors = 0, bytes = 0; // that were read
    double seconds = 0;
    std::vector<BadTensor> bad; // in the order of the files
};

// Reads every value of every tensor, on all processors, with a progress bar. Throws Interrupted after a Ctrl-C, Error(input)
// for a tensor of a type that Keel does not compute with.
Verification verify_weights(const ModelSource &source);

} // namespace keel::cli
