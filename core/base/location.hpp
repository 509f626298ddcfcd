#pragma once

#include <cstdint>
#include <string>

namespace keel {

// The place where a part of a config was written. Line and column count from 1. If the place is not
// in a file with lines, line is 0 and `file` is the origin, such as "--set policy.params.window".
struct SourceLocation {
    std::string file;
    uint32_t line = 0;
    uint32_t column = 0;
};

// Returns "pipeline.yaml:12:5" or "--set policy.params.window", or "config" if the place is
// unknown.
inline std::string to_string(const SourceLocation &at) {
    if (at.file.empty()) return "config";
    if (at.line == 0) return at.file;
    std::string text = at.file + ':' + std::to_string(at.line);
    if (at.column != 0) text += ':' + std::to_string(at.column);
    return text;
}

} // namespace keel
