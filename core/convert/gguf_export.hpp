#pragma once

#include "model/source.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace keel {

// The errors of a tensor that was converted to another type: the differences between the stored
// values and the written values.
struct TensorError {
    std::string name; // name in the written file
    std::string from; // stored type: "BF16"
    std::string to;   // written type: "Q8_0"
    uint64_t elements = 0;
    uint64_t stored_bytes = 0, written_bytes = 0;
    double rmse = 0;    // root mean square of the errors
    double max_abs = 0; // largest error
    double rms = 0;     // root mean square of the stored values
    // the error `rmse` divided by the size of the values, `rms`
    double relative() const { return rms > 0 ? rmse / rms : 0; }
};

struct ExportReport {
    std::vector<TensorError> tensors; // in the order of the written file
    // tensors that the model does not use and that were not written
    std::vector<std::string> left_out;
    uint64_t stored_bytes = 0; // bytes of the tensors that were read
    uint64_t file_bytes = 0;   // bytes of the written file
    double rmse() const;       // root mean square error over all values
    double relative() const;
};

struct ExportOptions {
    // type of matrices; vectors become f32, and matrices whose rows are not whole blocks become f16
    keel_dtype type = KEEL_DTYPE_Q8_0;
    bool overwrite = false; // true: replaces an existing file
    bool tokenizer = true;  // false: writes no tokenizer; llama.cpp refuses a file without one
    ParallelFor parallel;   // if empty, the export uses one thread
    // Called often during the export. It may throw an exception to stop the export. In this case no
    // file is left.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

// Writes a model as one GGUF file that llama.cpp and Keel can load. Converts the tensors. Makes
// metadata and tokenizer from the files of a folder, or copies them from a GGUF source. Reads and
// writes in pieces, so the memory does not grow with the model. Throws:
// - Error(input) that names what GGUF cannot express
// - Error(usage) if `to` cannot be the file
// - Error(resource) if the disk is full
// - Error(runtime) if writing fails
ExportReport export_gguf(const ModelSource &source, const std::filesystem::path &to,
                         const ExportOptions &options);

} // namespace keel
