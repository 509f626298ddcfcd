#pragma once

#include "eval/ab/plan/experiment.hpp"
#include "eval/ab/records/plan_record.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// A frozen plan has everything about an experiment that must not change between plan and run. The
// plan is written to a file before the run. docs/reference/experiments.md describes the file.
namespace keel::ab {

struct FrozenPlan {
    // The bytes of the file. The bytes depend only on the experiment. The file contains no date and
    // no path of a folder.
    std::string text;
    PlanRecord record;
};

// Makes the plan of an experiment. Loads the tokenizer of the reference's model, to count the items
// of each task. Throws Error(input) if the files of a task do not fit the task.
FrozenPlan freeze_plan(const Experiment &experiment);

// Reads a plan. Throws Error(input) "FILE:LINE:COLUMN: ..." if the file is not a plan, or if the
// plan's hash is wrong because the file was edited.
PlanRecord load_plan(const std::filesystem::path &file);
PlanRecord parse_plan(std::string_view text, const std::string &name);

// Writes the plan to `file`. Does nothing if the file already has the same bytes. Throws
// Error(usage) if the file exists and has other bytes.
void write_plan_file(const std::filesystem::path &file, const FrozenPlan &plan);

// Returns the differences between two plans, in the order of the plan's entries. The entries with
// hypotheses are not compared, because the remaining entries determine the hypotheses.
std::vector<PlanChange> plan_changes(const PlanRecord &planned, const PlanRecord &now);

} // namespace keel::ab
