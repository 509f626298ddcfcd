#pragma once

#include "ops/executor.hpp"

#include <span>
#include <string>
#include <vector>

namespace keel {

// One line of the table that `--explain` prints. A line stands for all ops with equal properties,
// and has their number.
struct ExplainRow {
    std::string op;      // "matmul"
    std::string rung;    // "native", "composed", "fallback", "reference"
    std::string kernel;  // the kernel that runs
    std::string reason;  // why the op is not native
    std::string example; // label of one of these ops
    uint64_t count = 0;
    uint64_t scratch_bytes = 0;  // the largest scratch_bytes of these ops
    uint64_t crossing_bytes = 0; // bytes that one call of each of these ops copies between devices
};

// Makes the rows in the order in which the ops first occur. `ops`: the ops of one kind of step
// (decode or prefill).
std::vector<ExplainRow> explain_rows(std::span<const PlannedOp *const> ops);
// Makes an aligned table with a title.
std::string explain_table(const std::string &title, const std::vector<ExplainRow> &rows);

} // namespace keel
