#pragma once

#include "eval/ab/records/record.hpp"
#include "eval/ab/run/shard.hpp"
#include "run/pipeline.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace keel::ab {

// How an experiment runs.
struct RunOptions {
    Shard shard;
    int64_t items = 0;         // limit for the documents of each task; 0: only the limits in the
                               // experiment's file
    bool resume = true;        // true: continue existing results; false: start again
    bool share_prefill = true; // arms share prefills if they can
    bool cost_only = false;    // the caller calls only Runner::cost(); nothing is written
    std::shared_ptr<HostServices> host;
    Progress loading; // reports the progress of loading weights; can throw to stop the run
    // Reports the progress. A step is one document in one run. `found` of the `done` steps were
    // finished by an earlier process, so they do not show the speed of this process. The callback
    // can throw to stop the run.
    std::function<void(uint64_t done, uint64_t total, uint64_t found)> steps;
    std::function<void(const std::string &)> say; // gets one line of text on the progress
    // The header of the results. The caller sets version, commit, date and machine; the runner sets
    // the rest.
    Header header;
};

} // namespace keel::ab
