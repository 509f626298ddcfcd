#pragma once

#include "eval/ab/run/item_context.hpp"
#include "eval/ab/run/run_progress.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace keel::ab {

// Runs a speed task. At each depth all runs are measured once, then again in the opposite order,
// and so on. So a drift of the machine's speed affects all runs equally.
class SpeedRounds {
  public:
    SpeedRounds(ItemContext &context, RunProgress &progress);
    void run(const PlannedTask &task);

  private:
    struct Seeded { // a run with one of its seeds
        size_t run;
        uint64_t seed;
    };
    struct Times {                 // seconds
        double first;              // until the first token is known
        std::vector<double> steps; // of each decode step
        Item memory;               // only the members that Measured fills
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
