#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keel::ab {

// The work of an experiment, counted and measured before the experiment starts.
struct Cost {
    struct Row {
        std::string task, protocol;
        uint64_t documents = 0, questions = 0, runs = 0; // runs: number of arms x budgets x seeds
        // Tokens of all runs. An answer counts with its largest possible length.
        uint64_t prefill_tokens = 0, decode_tokens = 0;
        // Decode steps of all runs. One step can decode tokens of several documents.
        uint64_t decode_steps = 0;
        // Time of all runs, including the work of the policies.
        double seconds = 0;
    };
    std::vector<Row> rows;
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    uint32_t batch = 1; // number of documents that take decode steps together
    // The time of this process's shard. The time is estimated from a measurement. In the
    // measurement, every run processes one or two documents of each task.
    double seconds = 0;
    // The time of each run with all seeds of the run. The reference's second run has no entry. The
    // time of the second run is part of the reference's time.
    std::vector<double> run_seconds;
    double measured_seconds = 0; // duration of the measurement
    // True if for some tasks only the first documents were counted, and the counts were scaled.
    bool counted_by_sample = false;
};

} // namespace keel::ab
