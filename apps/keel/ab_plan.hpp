#pragma once

#include "program.hpp"

#include "eval/ab/plan/experiment.hpp"
#include "eval/ab/records/plan_record.hpp"
#include "eval/ab/run/shard.hpp"

#include <optional>
#include <string>

namespace keel::cli {

// The plan of a run: the file of --plan, checked against the experiment. Prints each difference on
// standard error. Returns nullopt without --plan. Throws Error(input) if there are differences and
// `accepts_changes` (--changed-plan) is false. Throws Error(usage) if `accepts_changes` is true and
// there is no difference.
std::optional<ab::PlanRecord> plan_of_run(const ab::Experiment &experiment, const std::string &file,
                                          bool accepts_changes);

// Throws Error(input) if the output folder already has results that were made under another plan,
// or without a plan. Call this function before anything is computed.
void check_plan_of_folder(const ab::Experiment &experiment, const ab::Shard &shard,
                          const std::optional<ab::PlanRecord> &plan);

void add_ab_plan(Command &ab, Program &program);

} // namespace keel::cli
