#pragma once

#include "eval/ab/plan/experiment.hpp"
#include "eval/ab/records/plan_record.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// A frozen plan: everything about an experiment that binds, written to a file before the run.
// docs/reference/experiments.md describes the file.
namespace keel::ab {

struct FrozenPlan {
    // The bytes of the file. They depend only on the experiment: no date, no path of a folder.
    std::string text;
    PlanRecord record;
};

// Reads the tokenizer of the reference's model, to count the items of each task. Throws
// Error(input) for a task whose files do not fit.
FrozenPlan freeze_plan(const Experiment &experiment);

// Throws Error(input) "FILE:LINE:COLUMN: ..." for a file that is not a plan, or that was edited, so
// that its hash does not fit.
PlanRecord load_plan(const std::filesystem::path &file);
PlanRecord parse_plan(std::string_view text, const std::string &name);

// Writes the plan. If the file has the same bytes already, nothing happens. Throws Error(usage) if
// the file exists with other bytes.
void write_plan_file(const std::filesystem::path &file, const FrozenPlan &plan);

// The differences, in the order of the plan. The hypotheses are not compared, because they follow
// from the other entries.
std::vector<PlanChange> plan_changes(const PlanRecord &planned, const PlanRecord &now);

} // namespace keel::ab
