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

// A setting in the form of --set, with its place in the file.
struct MatrixSet {
    std::string text; // for example "kv.dtype=f16"
    SourceLocation where;
};

// One choice of an axis of the matrix: the choice's name in reports, and the settings of the
// choice.
struct MatrixChoice {
    std::string name;
    std::vector<MatrixSet> sets;
    SourceLocation where;
};

// A benchmark matrix. `keel bench matrix` measures every combination of its axes (models, backends,
// caches, policies, syncs, lengths). docs/reference/bench.md describes the file.
struct BenchMatrix {
    struct Model : MatrixChoice {
        std::filesystem::path path; // an absolute path
    };
    std::vector<Model> models;
    std::vector<MatrixChoice> backends, caches, policies;
    std::vector<MatrixChoice> syncs; // one choice without a name if the file has no axis `sync`
    std::vector<int64_t> lengths;    // lengths of the prompt, and of the cache before decode
    std::vector<SourceLocation> length_places; // the place of each length in the file
    int64_t decode = 64, repeat = 3;
    // The numbers of sequences that decode together. Each run measures all of these numbers.
    std::vector<int64_t> sequences = {1};
    std::optional<int64_t> probe_mib;
    // settings of all runs; the settings of the choices are applied later
    std::vector<MatrixSet> sets;
};

// Reads the file of a matrix. `backend` is the default backend if the file names no backend. Throws
// Error(input) "FILE:LINE:COLUMN: ...".
BenchMatrix load_matrix(const std::filesystem::path &file, const std::string &backend);

// One combination of choices, measured by one run of `keel bench`.
struct MatrixRun {
    std::string model, backend, cache, policy; // names of the choices
    std::string sync; // name of the choice; empty if the file has no axis `sync`
    int64_t length = 0;
    std::filesystem::path path;             // path of the model
    std::vector<std::string> sets;          // in order; a later setting overrides an earlier
                                            // setting
    std::vector<SourceLocation> set_places; // the place of each setting
    // The places in the file. `where` is the place of the run's last choice in the file.
    SourceLocation model_where, length_where, where;

    // Returns the name of the run, for example "tiny / cpu / f16 / none / 128". With a choice of
    // `sync`, the name is for example "tiny / cpu / f16 / none / lazy / 128".
    std::string name() const;
    // 16 hex digits that identify the conditions of the run. Two runs whose numbers can differ have
    // different keys. The key depends on settings, lengths, and `circumstances` (version, machine,
    // the model's files).
    std::string key(const BenchMatrix &matrix, const std::string &circumstances) const;
    // Makes the message for an error of this run. The message has a place in the file, the run's
    // name and the error, in this order. For an error at "--set KEY", the place is the item that
    // sets KEY. For an error about the model, the place is the place of the model. For all further
    // errors, the place is the run's last choice in the file.
    std::string fault(const Error &error) const;
    // For example "tiny-cpu-f16-none-128-0123456789abcdef.json".
    std::string file_name(const std::string &key) const;
};

// Returns all runs. The model changes last, the length changes first.
std::vector<MatrixRun> matrix_runs(const BenchMatrix &matrix);

} // namespace keel
