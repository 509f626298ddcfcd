#pragma once

#include "eval/compare/tensor_values.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// A tensor of a saved op: dense bytes.
struct SavedTensor {
    std::string name, role; // "x", "in"; roles: in, in_out, actual, expected
    keel_dtype dtype = KEEL_DTYPE_NONE;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
    bool present = true; // false: it was too large to be saved

    int64_t elements() const;
    std::vector<float> floats() const; // of a readable dtype
    std::vector<int32_t> ints() const; // of i32
};

// What an op wrote and in which form.
struct SavedOutput {
    std::string name;
    keel_dtype dtype = KEEL_DTYPE_NONE;
    std::vector<int64_t> shape;
};

// One call of an op as `keel compare` saves it, see docs/reference/compare.md. Nothing in the files
// is trusted.
struct SavedOp {
    std::filesystem::path file; // op.json
    keel_op op = 0;
    std::string label, kernel, step, backend, against;
    uint64_t features = 0;
    std::map<std::string, double, std::less<>> scalars;
    std::vector<SavedTensor> tensors;
    std::vector<SavedOutput> outputs;

    const SavedTensor *find(std::string_view role,
                            std::string_view name) const; // NULL if there is none
    // Throws Error(input) with the file's name if there is none, or it was too large to be saved.
    const SavedTensor &need(std::string_view role, std::string_view name) const;
    // A number of `scalars`, finite; throws Error(input) if it is missing or out of range.
    double scalar(std::string_view name, double low, double high) const;
};

// Reads op.json (or the folder that holds it) and its tensors. Throws Error(input) for whatever is
// not as docs/reference/compare.md says: sizes, types and names are checked before anything is
// allocated.
SavedOp load_saved_op(const std::filesystem::path &path);

} // namespace keel
