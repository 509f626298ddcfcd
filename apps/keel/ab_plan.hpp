#pragma once

#include "program.hpp"

#include "eval/ab/plan/experiment.hpp"
#include "eval/ab/records/plan_record.hpp"
#include "eval/ab/run/shard.hpp"

#include <optional>
#include <string>

namespace keel::cli {

// The plan of a run: the file of --plan, checked against the experiment. Prints each difference on
// standard error. Nothing without --plan. Throws Error(input) if there are differences and
// `accepts_changes` (--changed-plan) is false. Throws Error(usage) if it is true without a
// difference.
std::optional<ab::PlanRecord> plan_of_run(const ab::Experiment &experiment, const std::string &file,
                                          bool accepts_changes);

// Throws Error(input) if the results that are in the output folder already were made under another
// plan, or without one. Call it before anything is computed.
void check_plan_of_folder(const ab::Experiment &experiment, const ab::Shard &shard,
                          const std::optional<ab::PlanRecord> &plan);

void add_ab_plan(Command &ab, Program &program);

} // namespace keel::cli
