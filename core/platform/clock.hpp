#pragma once

#include <chrono>
#include <string>

namespace keel {

enum class TimeUnit { seconds, milliseconds };

// Returns a time in UTC in ISO 8601 form: "2026-03-01T12:00:00Z", "2026-03-01T12:00:00.250Z".
std::string utc_text(std::chrono::system_clock::time_point time, TimeUnit unit = TimeUnit::seconds);

} // namespace keel
