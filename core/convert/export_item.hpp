#pragma once

// Used only in core/convert: the tensors of the file that export_gguf() writes.

#include "model/source.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace keel {

// A tensor of the new file.
struct ExportItem {
    // The tensors of the model that become this tensor: one, or the same matrix of each expert.
    // Empty: the file gets `values`.
    std::vector<const TensorInfo *> tensors;
    std::vector<float> values;
    std::string name;
    keel_dtype type = KEEL_DTYPE_F32;
    int64_t heads = 0; // if above 0, the number of heads of a q or k whose rows are reordered for a
                       // RoPE that rotates neighbouring elements
    float offset = 0;  // this is added to each value
    uint64_t rows = 1, columns = 1; // rows of all tensors together
    bool is_stack = false; // the tensor has three dimensions, the first one counts the experts

    uint64_t rows_of_one() const { return rows / std::max<uint64_t>(tensors.size(), 1); }
    const TensorInfo &tensor_of(uint64_t row) const { return *tensors[row / rows_of_one()]; }
    uint64_t stored_bytes() const {
        uint64_t bytes = 0;
        for (const TensorInfo *tensor : tensors) bytes += tensor->bytes;
        return bytes;
    }
};

// Returns the tensors of the file for a model, in the order in which they are written. `type` is
// the wanted type of the matrices.
std::vector<ExportItem> export_items(const ModelSource &source, keel_dtype type);

} // namespace keel
