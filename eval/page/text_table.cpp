#include "eval/page/text_table.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel {

std::string rate_text(double value) {
    return value >= 1000  ? fmt::format("{:.0f}", value)
           : value >= 100 ? fmt::format("{:.1f}", value)
                          : fmt::format("{:.2f}", value);
}

std::string aligned_table(const std::vector<std::vector<std::string>> &rows) {
    std::vector<size_t> widths(rows.front().size());
    for (const auto &row : rows) {
        for (size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto &row : rows) {
        out += fmt::format("{:<{}}", row[0], widths[0]);
        for (size_t i = 1; i < row.size(); ++i)
            out += fmt::format("  {:>{}}", row[i], widths[i]);
        out += '\n';
    }
    return out;
}

} // namespace keel
