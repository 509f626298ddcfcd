#pragma once

#include "eval/ab/records/record.hpp"
#include "eval/ab/run/shard.hpp"
#include "run/pipeline.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace keel::ab {

struct RunOptions {
    Shard shard;
    int64_t items = 0;         // the most documents of each task; 0: the file decides
    bool resume = true;        // true: continue existing results; false: start again
    bool share_prefill = true; // among arms that can share it
    bool cost_only = false;    // only Runner::cost() is called, and nothing is written
    std::shared_ptr<HostServices> host;
    Progress loading; // progress of loading weights; may throw to stop
    // Progress in documents times arms. `found` of the `done` ones are from an earlier process, so
    // they do not show the speed of this one. May throw to stop.
    std::function<void(uint64_t done, uint64_t total, uint64_t found)> steps;
    std::function<void(const std::string &)> say; // gets a line of text when a cell is finished
    // The caller fills in version, commit, date and machine. The runner fills in the rest.
    Header header;
};

} // namespace keel::ab
