#pragma once

#include "model/source.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace keel {

// The errors of a tensor that was converted to another type: stored values compared with written
// ones.
struct TensorError {
    std::string name; // in the written file
    std::string from; // "BF16"
    std::string to;   // "Q8_0"
    uint64_t elements = 0;
    uint64_t stored_bytes = 0, written_bytes = 0;
    double rmse = 0;    // root of the mean squared error
    double max_abs = 0; // largest error
    double rms = 0;     // root of the mean square of the values
    double relative() const { return rms > 0 ? rmse / rms : 0; } // of the values' own size
};

struct ExportReport {
    std::vector<TensorError> tensors;  // in the order of the file
    std::vector<std::string> left_out; // tensors that the model does not use
    uint64_t stored_bytes = 0;         // of the tensors that were read
    uint64_t file_bytes = 0;           // of the file that was written
    double rmse() const;               // over all values
    double relative() const;
};

struct ExportOptions {
    keel_dtype type = KEEL_DTYPE_Q8_0; // of matrices; vectors are f32. Matrices whose rows are no
                                       // whole blocks become f16
    bool overwrite = false;            // an existing file is replaced
    bool tokenizer = true;             // false: without one, which llama.cpp does not take
    ParallelFor parallel;              // empty: one thread
    // Called often; may throw to stop. Then no file is left.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

// Writes a model as one GGUF file that llama.cpp and Keel load: tensors converted, metadata and
// tokenizer made from the folder's files, or copied where the source is a GGUF file. Reads and
// writes in pieces: memory does not grow with the model. Throws Error(input) that names what GGUF
// cannot express, Error(usage) if `to` cannot be such a file, Error(resource) if the disk is full,
// and Error(runtime) if writing fails.
ExportReport export_gguf(const ModelSource &source, const std::filesystem::path &to,
                         const ExportOptions &options);

} // namespace keel
