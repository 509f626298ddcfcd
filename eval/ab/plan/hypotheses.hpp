#pragma once

#include "eval/ab/plan/experiment.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace keel::ab {

// One contrast that will be tested: two arms at their budgets, on one metric of one task under one
// protocol. summarize() makes the same contrasts from the results.
struct Hypothesis {
    std::string a, a_budget, b, b_budget, protocol, task, metric;
    int64_t length = -1;  // for speed tasks: the number of tokens in the cache; below 0: not a
                          // speed task
    bool is_size = false; // true: the effect is a distance from the reference; there is no test
    double margin = 0;    // margin in units of the effect
};

// Returns all planned contrasts, in the order of `contrasts` in the experiment's file. Contrasts
// with a size instead of a test are included.
std::vector<Hypothesis> hypotheses_of(const Experiment &experiment);

// The hypothesis as text. For example: "window at tokens:48 against full on passkey hit
// (question_blind): test of a difference from 0 (two-sided); non-inferior and equivalent by a
// margin of 2 points"
std::string hypothesis_text(const Hypothesis &hypothesis);

// The number of hypotheses that have a test. This number is the size of the family in Holm's
// method.
uint64_t count_tests(const std::vector<Hypothesis> &hypotheses);

} // namespace keel::ab
