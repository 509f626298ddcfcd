#pragma once

#include "eval/ab/run/run_options.hpp"

#include <cstddef>
#include <cstdint>

namespace keel::ab {

// Counts the progress of a run in documents times runs, and reports it to RunOptions::steps.
class RunProgress {
  public:
    explicit RunProgress(const RunOptions &options) : options_(options) {}

    // total: documents times runs. per_document: runs, each counted once for each seed. Without
    // this call nothing is reported.
    void expect(uint64_t total, uint64_t per_document);
    // `documents` documents begin. They run together, one part after the other.
    void begin(size_t documents);
    void begin_part(size_t part, size_t parts);
    // `runs` runs of the current part are done. Throws Error(runtime) "cancelled" after
    // HostServices::request_cancel, and the errors of RunOptions::steps.
    void step(uint64_t runs) const;
    // A run of the current part was on disk already.
    void found();
    void end();

  private:
    const RunOptions &options_;
    bool reports_ = false;
    uint64_t done_ = 0, total_ = 0, per_document_ = 0;
    double found_ = 0; // the part of done_ that was on disk when this run began
    uint64_t before_ = 0, documents_ = 1, part_ = 0, parts_ = 1; // of the current documents
};

// Throws Error(runtime) "cancelled" after HostServices::request_cancel.
void check_cancelled(const RunOptions &options);

} // namespace keel::ab
