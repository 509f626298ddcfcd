#include "base/log.hpp"

namespace keel {

spdlog::logger &log() {
    // Never destroyed: plugins stay mapped at exit and may still log from a driver's thread.
    static auto *const logger = new spdlog::logger("keel");
    return *logger;
}

} // namespace keel
