#include "platform/clock.hpp"

#include <ctime>
#include <fmt/format.h>

namespace keel {

std::string utc_text(std::chrono::system_clock::time_point time, TimeUnit unit) {
    using namespace std::chrono;
    const auto ms = duration_cast<milliseconds>(time.time_since_epoch()).count();
    const auto seconds = static_cast<std::time_t>(ms / 1000);
    std::tm parts{};
    if (::gmtime_r(&seconds, &parts) == nullptr) return {};
    const std::string fraction =
        unit == TimeUnit::milliseconds ? fmt::format(".{:03}", ms % 1000) : "";
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}Z", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       fraction);
}

} // namespace keel
