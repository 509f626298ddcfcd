#pragma once

#include "eval/compare/tensor_values.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// A tensor of a saved op. The bytes of a saved tensor are dense.
struct SavedTensor {
    std::string name, role; // role: "in", "in_out", "actual" or "expected"
    keel_dtype dtype = KEEL_DTYPE_NONE;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
    bool present = true; // false: the tensor was too large to be saved

    int64_t elements() const;
    std::vector<float> floats() const; // call this function only for dtypes that can be converted
                                       // to numbers
    std::vector<int32_t> ints() const; // call this function only for i32
};

// The name, dtype and shape of an output of a saved op.
struct SavedOutput {
    std::string name;
    keel_dtype dtype = KEEL_DTYPE_NONE;
    std::vector<int64_t> shape;
};

// One call of an op, as `keel compare` saves it; docs/reference/compare.md describes the files. The
// contents of the files are not trusted.
struct SavedOp {
    std::filesystem::path file; // path of op.json
    keel_op op = 0;
    std::string label, kernel, step, backend, against;
    uint64_t features = 0;
    std::map<std::string, double, std::less<>> scalars;
    std::vector<SavedTensor> tensors;
    std::vector<SavedOutput> outputs;

    // Returns NULL if the save has no tensor with this role and name.
    const SavedTensor *find(std::string_view role, std::string_view name) const;
    // Like find(), but throws Error(input) with the file's name if the tensor is missing, or was
    // too large to be saved.
    const SavedTensor &need(std::string_view role, std::string_view name) const;
    // Returns a finite number of `scalars`. Throws Error(input) if the number is missing or out of
    // range.
    double scalar(std::string_view name, double low, double high) const;
};

// Reads op.json, or the folder with it, and all tensors. Checks sizes, types and names before it
// allocates memory. Throws Error(input) for files that do not have the form in
// docs/reference/compare.md.
SavedOp load_saved_op(const std::filesystem::path &path);

} // namespace keel
