#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace keel {

// What a benchmark's reader wants to know about the machine. Empty or 0 where the system does not
// tell.
struct MachineInfo {
    std::string cpu;               // "AMD EPYC 9654", printable
    uint64_t last_level_cache = 0; // bytes of the largest cache that the first processor sees
};

// Linux: /proc/cpuinfo and the cache folders of /sys. The arguments let tests give a made-up
// system.
MachineInfo machine_info(const std::filesystem::path &proc = "/proc",
                         const std::filesystem::path &cpus = "/sys/devices/system/cpu");

} // namespace keel
