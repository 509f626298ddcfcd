#pragma once

#include "ops/executor.hpp"

#include <span>
#include <string>
#include <vector>

namespace keel {

// One line of the table that `--explain` prints: ops that are alike, counted.
struct ExplainRow {
    std::string op;      // "matmul"
    std::string rung;    // "native", "composed", "fallback", "reference"
    std::string kernel;  // what runs
    std::string reason;  // why not native
    std::string example; // one of their labels
    uint64_t count = 0;
    uint64_t scratch_bytes = 0;  // the largest
    uint64_t crossing_bytes = 0; // copied between devices by all of them together, once each
};

// Rows in the order in which the ops first occur. `ops`: the ops of one kind of step (decode or
// prefill).
std::vector<ExplainRow> explain_rows(std::span<const PlannedOp *const> ops);
// An aligned table with a title.
std::string explain_table(const std::string &title, const std::vector<ExplainRow> &rows);

} // namespace keel
