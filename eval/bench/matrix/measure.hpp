#pragma once

#include "config/config.hpp"
#include "eval/bench/matrix/matrix.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace keel {

// The program that measures, and a function that makes the config for a model.
struct MatrixProgram {
    std::filesystem::path path; // path of keel; each run is a process of its own
    std::string version, commit;
    // `sets`: changes in the form of --set. Throws if the model does not exist; may throw to stop.
    std::function<pipeline::PipelineConfig(const std::filesystem::path &model,
                                           const std::vector<std::string> &sets)>
        load;
    std::function<bool()> interrupted; // true: the current run is told to stop
};

// Measures the runs of a matrix. Keeps each result as a file in a folder. The file's name contains
// a hash of everything on which the result depends: settings, model files, program, plugins and
// machine.
class MatrixMeasurement {
  public:
    // `matrix` must outlive this.
    MatrixMeasurement(const BenchMatrix &matrix, std::filesystem::path folder,
                      MatrixProgram program);

    // Checks all runs before the first one, so that no time is spent if a later run cannot work.
    // Throws Error(input) with the place in the file. Reads no weights.
    void check(const std::vector<MatrixRun> &runs) const;
    bool is_done(const MatrixRun &run) const; // is its result in the folder?
    // Runs `keel bench`. The folder must exist. Returns 0 if the result is in the folder; else the
    // exit code, or -1 if the output was no result.
    int measure(const MatrixRun &run) const;

  private:
    std::string key_of(const MatrixRun &run) const;

    const BenchMatrix &matrix_;
    std::filesystem::path folder_;
    MatrixProgram program_;
    std::string circumstances_;
};

} // namespace keel
