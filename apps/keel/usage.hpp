#pragma once

#include "program.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>

namespace keel::cli {

// The help of the command that was named last, or of the program.
std::string help_text(const CLI::App &app);

// One line that says what is wrong with a command line, with a suggestion and where to read more.
std::string usage_text(const CLI::App &app, const CLI::ParseError &error);

// CLI::Range, which lets "nan" pass.
inline CLI::Validator number_range(double low, double high) {
    CLI::Validator range = CLI::Range(low, high);
    return range & CLI::Validator(
                       [low, high](std::string &text) {
                           const bool is_nan = std::isnan(std::strtod(text.c_str(), nullptr));
                           return is_nan ? fmt::format("Value {} not in range {} to {}", text, low, high)
                                         : std::string();
                       },
                       "");
}

} // namespace keel::cli
