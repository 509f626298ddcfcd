#pragma once

#include <cstdint>
#include <string>

namespace keel {

// Where a piece of a config was written. Line and column count from 1; line 0: not in a file with
// lines, and `file` is then the origin itself, such as "--set policy.params.window".
struct SourceLocation {
    std::string file;
    uint32_t line = 0;
    uint32_t column = 0;
};

// "pipeline.yaml:12:5", "--set policy.params.window"; "config" if nothing is known.
inline std::string to_string(const SourceLocation &at) {
    if (at.file.empty()) return "config";
    if (at.line == 0) return at.file;
    std::string text = at.file + ':' + std::to_string(at.line);
    if (at.column != 0) text += ':' + std::to_string(at.column);
    return text;
}

} // namespace keel
