#pragma once

#include "config/config.hpp"
#include "eval/bench/matrix/matrix.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace keel {

// The program that measures, and how it makes a config of a model.
struct MatrixProgram {
    std::filesystem::path path; // of keel: each run is a process of its own
    std::string version, commit;
    // `sets`: changes as --set takes them. Throws if the model does not exist; may throw to stop.
    std::function<pipeline::PipelineConfig(const std::filesystem::path &model,
                                           const std::vector<std::string> &sets)>
        load;
    std::function<bool()> interrupted; // true: a run that goes on is told to stop
};

// Measures the runs of a matrix, and keeps a file with each result in a folder. The file's name has
// a hash of everything on which the result depends: settings, model files, program, plugins and
// machine.
class MatrixMeasurement {
  public:
    // `matrix` must outlive this.
    MatrixMeasurement(const BenchMatrix &matrix, std::filesystem::path folder,
                      MatrixProgram program);

    // Throws Error(input) with the place in the file for a run that cannot work, so that no time is
    // spent on other runs first. Reads no weights.
    void check(const std::vector<MatrixRun> &runs) const;
    bool is_done(const MatrixRun &run) const; // the folder has its result
    // Runs `keel bench`. Returns 0 if the result is in the folder, which must exist; else the exit
    // code, or -1 if the output was no result.
    int measure(const MatrixRun &run) const;

  private:
    std::string key_of(const MatrixRun &run) const;

    const BenchMatrix &matrix_;
    std::filesystem::path folder_;
    MatrixProgram program_;
    std::string circumstances_;
};

} // namespace keel
