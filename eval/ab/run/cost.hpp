#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keel::ab {

// The work in an experiment, before it starts.
struct Cost {
    struct Row {
        std::string task, protocol;
        uint64_t documents = 0, questions = 0, runs = 0; // runs: arms x budgets x seeds
        // Of all runs. An answer counts with its largest length.
        uint64_t prefill_tokens = 0, decode_tokens = 0;
        uint64_t decode_steps = 0; // decode_tokens in steps of several documents
        double seconds = 0;        // of all runs, with the work of their policies
    };
    std::vector<Row> rows;
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    uint32_t batch = 1; // documents that take decode steps together
    // The time of this process's shard. It is measured: every run took one or two documents of each
    // task.
    double seconds = 0;
    // For each run with all its seeds. The reference's time includes its second run, which has no
    // entry.
    std::vector<double> run_seconds;
    double measured_seconds = 0; // time that the measurement took
    // For some tasks only the first documents were counted, and the counts were scaled.
    bool counted_by_sample = false;
};

} // namespace keel::ab
