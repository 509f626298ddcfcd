#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace keel {

// Returns a standard error as text, for example " +- 0.012". Returns an empty text if there is no
// standard error.
inline std::string plus_minus(const std::optional<double> &error) {
    return error ? fmt::format(" +- {:.2g}", *error) : std::string{};
}

// Returns a share as text, for example "42%". Returns "-" if there is no share.
inline std::string percent_text(const std::optional<double> &share) {
    return share ? fmt::format("{:.0f}%", 100 * *share) : "-";
}

// Returns the value as JSON, or null if there is no value.
inline nlohmann::ordered_json optional_json(const std::optional<double> &value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

} // namespace keel
