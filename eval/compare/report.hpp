#pragma once

#include "eval/compare/compare.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace keel {

// The report as text for the terminal: a table of the ops, the logits, and the first element beyond
// the bound.
std::string compare_table(const CompareReport &report);
nlohmann::ordered_json compare_json(const CompareReport &report);

} // namespace keel
