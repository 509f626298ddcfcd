#pragma once

#include "platform/memory.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace keel {

// The state of the system's memory at one moment.
struct MemoryReading {
    MemoryInfo memory; // total == 0: unknown
    // Percentage of the last ten seconds in which at least one task waited for memory (PSI, "some
    // avg10"). nullopt if unknown.
    std::optional<double> stalled;
    std::string stalled_where; // the PSI file that was read
};

// The source of readings: the system, or a script in tests.
class SystemMonitor {
  public:
    SystemMonitor() = default;
    virtual ~SystemMonitor() = default;
    SystemMonitor(const SystemMonitor &) = delete;
    SystemMonitor &operator=(const SystemMonitor &) = delete;

    // Any thread may call it. It takes a few tenths of a millisecond. It never throws; values that
    // cannot be read are unknown.
    virtual MemoryReading read() noexcept = 0;
};

// The monitor of this machine: memory_info(), and PSI of the process's control group, or of the
// system if the group has none. Each reading opens the files again, so it sees limits that change
// while a model runs. Tests pass other folders to simulate a system.
std::shared_ptr<SystemMonitor>
system_monitor(const std::filesystem::path &proc = "/proc",
               const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// Returns memory that the process's allocator holds free to the system, if the C library supports
// it. Takes a few milliseconds.
void return_free_memory() noexcept;

} // namespace keel
