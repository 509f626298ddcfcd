#include "ops/explain.hpp"

#include "base/display.hpp"

#include <algorithm>

namespace keel {

std::vector<ExplainRow> explain_rows(std::span<const PlannedOp *const> ops) {
    std::vector<ExplainRow> rows;
    for (const PlannedOp *op : ops) {
        const auto same = [&](const ExplainRow &r) {
            return r.op == op_name(op->op()) && r.kernel == op->kernel() &&
                   r.rung == rung_name(op->rung()) && r.reason == op->reason();
        };
        auto row = std::find_if(rows.begin(), rows.end(), same);
        if (row == rows.end()) {
            rows.push_back({op_name(op->op()), rung_name(op->rung()), op->kernel(), op->reason(),
                            op->label(), 0, 0, 0});
            row = rows.end() - 1;
        }
        ++row->count;
        row->scratch_bytes = std::max(row->scratch_bytes, op->scratch_bytes());
        row->crossing_bytes += op->crossing_bytes();
    }
    return rows;
}

std::string explain_table(const std::string &title, const std::vector<ExplainRow> &rows) {
    size_t op_width = 2, kernel_width = 6;
    uint64_t crossing = 0;
    for (const ExplainRow &row : rows) {
        op_width = std::max(op_width, row.op.size());
        kernel_width = std::max(kernel_width, row.kernel.size());
        crossing += row.crossing_bytes;
    }
    std::string text = fmt::format("{}\n  {:<{}}  {:>5}  {:<9}  {:<{}}  {}\n", title, "op",
                                   op_width, "count", "rung", "kernel", kernel_width, "scratch");
    for (const ExplainRow &row : rows) {
        text += fmt::format("  {:<{}}  {:>5}  {:<9}  {:<{}}  {}", row.op, op_width, row.count,
                            row.rung, row.kernel, kernel_width, format_bytes(row.scratch_bytes));
        if (!row.reason.empty()) text += fmt::format("  (e.g. {}: {})", row.example, row.reason);
        if (row.crossing_bytes > 0)
            text += fmt::format("  {} cross", format_bytes(row.crossing_bytes));
        text += '\n';
    }
    return text + fmt::format("  bytes that cross between devices: {}\n", crossing);
}

} // namespace keel
