#pragma once

#include "config/config.hpp"
#include "eval/bench/matrix/matrix.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace keel {

// The program that measures a run, and a function that makes the config of a model.
struct MatrixProgram {
    std::filesystem::path path; // path of keel; each run is a separate process
    std::string version, commit;
    // Makes the config. `sets` has changes in the form of --set. Throws if the model does not
    // exist. Can throw to stop the matrix.
    std::function<pipeline::PipelineConfig(const std::filesystem::path &model,
                                           const std::vector<std::string> &sets)>
        load;
    std::function<bool()> interrupted; // if `interrupted` returns true, the current run is told to
                                       // stop
};

// Measures the runs of a matrix, and keeps each result as a file in a folder. The file's name
// contains a hash of everything that affects the result: settings, model files, program, plugins
// and machine.
class MatrixMeasurement {
  public:
    // `matrix` must outlive this object.
    MatrixMeasurement(const BenchMatrix &matrix, std::filesystem::path folder,
                      MatrixProgram program);

    // Checks all runs before the first run is measured, so that an error in a later run is found
    // early. Reads no weights. Throws Error(input) with the place in the file.
    void check(const std::vector<MatrixRun> &runs) const;
    bool is_done(const MatrixRun &run) const; // true if the run's result is in the folder
    // Runs `keel bench` for a run and writes the result into the folder, which must exist. Returns
    // 0 if the folder has the result afterwards. If there is no result, returns the exit code of
    // `keel bench`, or -1 if the output of `keel bench` was not a result.
    int measure(const MatrixRun &run) const;

  private:
    std::string key_of(const MatrixRun &run) const;

    const BenchMatrix &matrix_;
    std::filesystem::path folder_;
    MatrixProgram program_;
    std::string circumstances_;
};

} // namespace keel
