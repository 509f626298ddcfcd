#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace keel {

// Facts about the machine for readers of a benchmark. Unknown members are empty or 0.
struct MachineInfo {
    std::string cpu;               // for example "AMD EPYC 9654"; printable
    uint64_t last_level_cache = 0; // the size in bytes of the largest cache of the first processor
};

// Linux: reads /proc/cpuinfo and the cache folders of /sys. Tests pass other folders to simulate a
// machine.
MachineInfo machine_info(const std::filesystem::path &proc = "/proc",
                         const std::filesystem::path &cpus = "/sys/devices/system/cpu");

} // namespace keel
