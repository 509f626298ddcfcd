#pragma once

#include "base/location.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// One choice of an axis: its name in reports, and what it changes, as --set takes it.
struct MatrixChoice {
    std::string name;
    std::vector<std::string> sets;
    SourceLocation where;
};

// What `keel bench matrix` measures: every combination of its axes. See docs/bench.md for the file.
struct BenchMatrix {
    struct Model : MatrixChoice {
        std::filesystem::path path; // absolute
    };
    std::vector<Model> models;
    std::vector<MatrixChoice> backends, caches, policies;
    std::vector<int64_t> lengths; // of the prompt, and tokens in the cache before decoding
    int64_t decode = 64, repeat = 3;
    std::optional<int64_t> probe_mib;
    std::vector<std::string> sets; // of every run, before those of the choices
};

// Reads the file; `backend` computes where it names none. Throws Error(input) "FILE:LINE:COLUMN: ...".
BenchMatrix load_matrix(const std::filesystem::path &file, const std::string &backend);

// One combination.
struct MatrixRun {
    std::string model, backend, cache, policy; // names
    int64_t length = 0;
    std::filesystem::path path;    // of the model
    std::vector<std::string> sets; // in order; later ones win
    SourceLocation where;          // of the choice that is written last

    std::string name() const; // "tiny / cpu / f16 / none / 128"
    // What tells runs apart that may give different numbers: settings, lengths, and `circumstances` (version, machine,
    // the model's files); 16 hex digits.
    std::string key(const BenchMatrix &matrix, const std::string &circumstances) const;
    std::string file_name(const std::string &key) const; // "tiny-cpu-f16-none-128-0123456789abcdef.json"
};

// All of them, models outermost, lengths innermost.
std::vector<MatrixRun> matrix_runs(const BenchMatrix &matrix);

} // namespace keel
