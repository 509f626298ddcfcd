#include "eval/ab/records/machine_kind.hpp"

#include <fmt/format.h>

namespace keel::ab {

std::string processor_of(const std::string &machine) {
    const size_t memory = machine.rfind(", ");
    if (memory == std::string::npos || memory == 0) return machine;
    const size_t processors = machine.rfind(", ", memory - 1);
    return processors == std::string::npos ? machine : machine.substr(0, processors);
}

std::string machine_kind(const Header &h) {
    std::string out = processor_of(h.machine);
    for (const auto &[name, text] : h.facts) {
        if (name == "backend") out += "; " + text;
        if (name == "kernels") out += "; " + text.substr(0, text.find(','));
    }
    return out;
}

std::string joined_machines(const std::string &before, const std::string &now) {
    if (before.empty() || before.find(now) != std::string::npos)
        return before.empty() ? now : before;
    return fmt::format("{}; {}", before, now);
}

} // namespace keel::ab
