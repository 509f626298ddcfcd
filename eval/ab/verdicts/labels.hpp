#pragma once

#include "eval/ab/records/record.hpp"
#include "eval/ab/verdicts/looks.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <string>

// Labels for results that must not have a verdict: the plan was changed, or fewer items ran than
// the plan has.
namespace keel::ab {

inline constexpr const char *changed_plan_label = "exploratory: the plan was changed";

// Returns the label of a contrast in the results of `header`. Empty: the contrast needs no label.
// `contrast` must be measured. A contrast of the reference with itself gets only
// changed_plan_label, because the reference does not run twice on all items.
std::string label_of(const Header &header, const Contrast &contrast);

// Gives the contrast its label. A labelled contrast is exploratory, unless it is an early look
// under the plan's rule for looks. `looks`: the looks so far. If `looks` is NULL, earlier looks are
// unknown, so an early look has no verdict.
void label_contrast(const Header &header, Contrast &contrast, LookBook *looks = nullptr);

// One line about the plan: "plan: 0123 (frozen before the run)", or that no plan was frozen.
std::string plan_line(const Header &header);

} // namespace keel::ab
