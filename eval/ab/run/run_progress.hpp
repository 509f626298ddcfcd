#pragma once

#include "eval/ab/run/run_options.hpp"

#include <cstddef>
#include <cstdint>

namespace keel::ab {

// Counts the progress of a run, and reports it to RunOptions::steps. A step is one document in one
// run.
class RunProgress {
  public:
    explicit RunProgress(const RunOptions &options) : options_(options) {}

    // Sets the total number of steps, and the steps of each document (one for each run and seed).
    // If this function is not called, nothing is reported.
    void expect(uint64_t total, uint64_t per_document);
    // `documents` documents begin. The units of the documents run in one part, or in several parts
    // one after the other.
    void begin(size_t documents);
    // Part `part` of `parts` parts begins; `part` is from 0 to parts - 1.
    void begin_part(size_t part, size_t parts);
    // Reports that `runs` runs of the current part are done. Throws Error(runtime) "cancelled"
    // after HostServices::request_cancel, and all errors of RunOptions::steps.
    void step(uint64_t runs) const;
    // Reports that a run of the current part was finished by an earlier process.
    void found();
    void end();

  private:
    const RunOptions &options_;
    bool reports_ = false;
    uint64_t done_ = 0, total_ = 0, per_document_ = 0;
    double found_ = 0; // the part of done_ that an earlier process finished
    uint64_t before_ = 0, documents_ = 1, part_ = 0, parts_ = 1; // all four numbers are about the
                                                                 // current documents
};

// Throws Error(runtime) "cancelled" if HostServices::request_cancel was called.
void check_cancelled(const RunOptions &options);

} // namespace keel::ab
