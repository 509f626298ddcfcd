#pragma once

#include "base/error.hpp"
#include "base/location.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

// A setting of the file in the form of --set, and its place in the file.
struct MatrixSet {
    std::string text; // "kv.dtype=f16"
    SourceLocation where;
};

// One choice of an axis: its name in reports, and its settings.
struct MatrixChoice {
    std::string name;
    std::vector<MatrixSet> sets;
    SourceLocation where;
};

// A matrix: `keel bench matrix` measures every combination of its axes. docs/reference/bench.md
// describes the file.
struct BenchMatrix {
    struct Model : MatrixChoice {
        std::filesystem::path path; // absolute
    };
    std::vector<Model> models;
    std::vector<MatrixChoice> backends, caches, policies;
    std::vector<MatrixChoice> syncs; // one choice without a name if the file has no such axis
    std::vector<int64_t> lengths;    // of the prompt, and of the cache before decoding
    std::vector<SourceLocation> length_places; // the place of each length
    int64_t decode = 64, repeat = 3;
    // Numbers of sequences that decode together; each run measures all.
    std::vector<int64_t> sequences = {1};
    std::optional<int64_t> probe_mib;
    std::vector<MatrixSet> sets; // settings of all runs; those of the choices come after them
};

// Reads the file. `backend`: the default if the file names no backend. Throws Error(input)
// "FILE:LINE:COLUMN: ...".
BenchMatrix load_matrix(const std::filesystem::path &file, const std::string &backend);

// One combination of choices.
struct MatrixRun {
    std::string model, backend, cache, policy; // names
    std::string sync;                          // name; empty if the file has no such axis
    int64_t length = 0;
    std::filesystem::path path;             // of the model
    std::vector<std::string> sets;          // in order; a later setting wins
    std::vector<SourceLocation> set_places; // the place of each setting
    // `where`: of the choice that is last in the file
    SourceLocation model_where, length_where, where;

    std::string
    name() const; // "tiny / cpu / f16 / none / 128", "tiny / cpu / f16 / none / lazy / 128"
    // 16 hex digits that distinguish runs whose numbers may differ. They depend on settings,
    // lengths, and `circumstances` (version, machine, the model's files).
    std::string key(const BenchMatrix &matrix, const std::string &circumstances) const;
    // The message for an error of this run, after the place in the matrix and the run's name. For
    // an error at "--set KEY" it is the place of the item that sets KEY. For an error about the
    // model it is the place of the model. For other errors it is the place of the run's last choice
    // in the file.
    std::string fault(const Error &error) const;
    std::string
    file_name(const std::string &key) const; // "tiny-cpu-f16-none-128-0123456789abcdef.json"
};

// All runs. The model changes slowest, the length fastest.
std::vector<MatrixRun> matrix_runs(const BenchMatrix &matrix);

} // namespace keel
