#pragma once

#include "text/jinja/meter.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace keel::jinja {

enum class TokenType {
    data,         // text between tags
    output_begin, // {{
    output_end,   // }}
    block_begin,  // {%
    block_end,    // %}
    name,
    string,
    integer,
    real,
    symbol, // an operator or a bracket
    end,    // the end of the template
};

struct LexToken {
    TokenType type = TokenType::end;
    std::string text; // of a string: its value
    std::uint32_t line = 1;
};

// An error at a line of the template.
struct LineFailure : Failure {
    LineFailure(std::uint32_t at, const std::string &text) : Failure(text), line(at) {}
    std::uint32_t line;
};

// Splits a template into tokens. White space around tags is removed as transformers configures
// Jinja: trim_blocks and lstrip_blocks, without the last line break of the template. Throws
// LineFailure.
std::vector<LexToken> split_template(std::string_view source);

} // namespace keel::jinja
