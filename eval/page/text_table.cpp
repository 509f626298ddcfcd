#include "eval/page/text_table.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel {
namespace {

// The width of a text on the screen: the number of characters, not of bytes.
size_t width(std::string_view text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
}

std::string columns(const TableRows &rows, std::string_view indent, bool numbers_right) {
    std::vector<size_t> widths;
    for (const auto &row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    std::string out;
    for (const auto &row : rows) {
        out += indent;
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string padding(widths[i] - width(row[i]), ' ');
            if (i > 0) out += "  ";
            out += numbers_right && i > 0 ? padding + row[i] : row[i] + padding;
        }
        while (out.ends_with(' ')) out.pop_back();
        out += '\n';
    }
    return out;
}

} // namespace

std::string rate_text(double value) {
    return value >= 1000  ? fmt::format("{:.0f}", value)
           : value >= 100 ? fmt::format("{:.1f}", value)
                          : fmt::format("{:.2f}", value);
}

std::string duration_text(double seconds) {
    if (seconds < 90) return fmt::format("{:.0f} s", seconds);
    return seconds < 5400 ? fmt::format("{:.0f} min", seconds / 60)
                          : fmt::format("{:.1f} h", seconds / 3600);
}

std::string aligned_table(const TableRows &rows) { return columns(rows, "", true); }

std::string left_table(const TableRows &rows, std::string_view indent) {
    return columns(rows, indent, false);
}

} // namespace keel
