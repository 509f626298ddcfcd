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

// A key that the file sets, as --set takes it, and where it does.
struct MatrixSet {
    std::string text; // "kv.dtype=f16"
    SourceLocation where;
};

// One choice of an axis: its name in reports, and what it changes.
struct MatrixChoice {
    std::string name;
    std::vector<MatrixSet> sets;
    SourceLocation where;
};

// What `keel bench matrix` measures: every combination of its axes. See docs/reference/bench.md for
// the file.
struct BenchMatrix {
    struct Model : MatrixChoice {
        std::filesystem::path path; // absolute
    };
    std::vector<Model> models;
    std::vector<MatrixChoice> backends, caches, policies;
    std::vector<MatrixChoice> syncs; // one without a name: the file has no such axis
    std::vector<int64_t> lengths;    // of the prompt, and tokens in the cache before decoding
    std::vector<SourceLocation> length_places; // of each
    int64_t decode = 64, repeat = 3;
    std::vector<int64_t> sequences = {1}; // that decode at once: each run measures all of these
    std::optional<int64_t> probe_mib;
    std::vector<MatrixSet> sets; // of every run, before those of the choices
};

// Reads the file; `backend` computes where it names none. Throws Error(input) "FILE:LINE:COLUMN:
// ...".
BenchMatrix load_matrix(const std::filesystem::path &file, const std::string &backend);

// One combination.
struct MatrixRun {
    std::string model, backend, cache, policy; // names
    std::string sync;                          // name; empty: the file has no such axis
    int64_t length = 0;
    std::filesystem::path path;                      // of the model
    std::vector<std::string> sets;                   // in order; later ones win
    std::vector<SourceLocation> set_places;          // of each
    SourceLocation model_where, length_where, where; // where: of the choice that is written last

    std::string
    name() const; // "tiny / cpu / f16 / none / 128", "tiny / cpu / f16 / none / lazy / 128"
    // What tells runs apart that may give different numbers: settings, lengths, and `circumstances`
    // (version, machine, the model's files); 16 hex digits.
    std::string key(const BenchMatrix &matrix, const std::string &circumstances) const;
    // The message of an error of this run, after its place in the matrix and the run's name. The
    // place is that of the item that sets the wrong key (for an error at "--set KEY"), or that of
    // the model. For other errors it is the place of the run's last choice in the file.
    std::string fault(const Error &error) const;
    std::string
    file_name(const std::string &key) const; // "tiny-cpu-f16-none-128-0123456789abcdef.json"
};

// All of them, models outermost, lengths innermost.
std::vector<MatrixRun> matrix_runs(const BenchMatrix &matrix);

} // namespace keel
