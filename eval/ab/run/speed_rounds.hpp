#pragma once

#include "eval/ab/run/item_context.hpp"
#include "eval/ab/run/run_progress.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace keel::ab {

// Runs a speed task. For each depth, measures all runs in several rounds. The order of the runs is
// reversed from one round to the next. So a slow change of the machine's speed affects all runs
// equally.
class SpeedRounds {
  public:
    SpeedRounds(ItemContext &context, RunProgress &progress);
    void run(const PlannedTask &task);

  private:
    // A run with one of its seeds.
    struct Seeded {
        size_t run;
        uint64_t seed;
    };
    // Times in seconds.
    struct Times {
        double first;              // the time from the beginning of the prompt to the first token
        std::vector<double> steps; // the time of each decode step
        Item memory;               // in this item, only the members that Measured::fill() sets have
                                   // values
    };
    Times measure(const PlannedTask &task, const Seeded &run, int64_t depth, int64_t decode);
    void write(const PlannedTask &task, const Seeded &run, int64_t depth, size_t round,
               Times times);
    static std::string item_name(int64_t depth, size_t round);

    ItemContext &context_;
    RunProgress &progress_;
    std::vector<Seeded> runs_;
};

} // namespace keel::ab
