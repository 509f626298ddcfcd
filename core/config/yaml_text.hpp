#pragma once

#include "config/yaml_document.hpp"

#include <utility>
#include <vector>

namespace YAML {
struct Mark;
}

namespace keel::pipeline {

// A YAML text that is safe for yaml-cpp: limited in size, valid UTF-8, without control characters
// (yaml-cpp stops at byte 0x04 without an error) and without a byte order mark. yaml-cpp reports a
// place as a line and a byte within the line (YAML::Mark). This class converts such a place to a
// line and a character.
class YamlText {
  public:
    // Throws Error(input) with the place of the first invalid byte. `text` and `source` must
    // outlive this object.
    YamlText(std::string_view text, const YamlSource &source, size_t limit);

    std::string_view text() const noexcept { return text_; }
    std::pair<uint32_t, uint32_t> place(const YAML::Mark &mark) const;
    // Returns line `number`, counted from 1. Empty if there is no such line.
    std::string_view line(uint32_t number) const;
    SourceLocation location(uint32_t line, uint32_t column) const;

  private:
    void check_bytes() const;
    std::pair<uint32_t, uint32_t> place(size_t line, size_t byte) const;

    std::string_view text_;
    const YamlSource &source_;
    std::vector<size_t> lines_; // offset of each line's first byte
};

} // namespace keel::pipeline
