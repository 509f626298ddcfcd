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

    // Any thread may call it. A call takes a few tenths of a millisecond. It never throws; values
    // that cannot be read are unknown.
    virtual MemoryReading read() noexcept = 0;
};

// The monitor of this machine. It reads memory_info(), and the PSI of the process's control group.
// If the group has no PSI, it reads the PSI of the system. Each reading opens the files again, so
// it sees limits that change while a model runs. Tests pass other folders to simulate a system.
std::shared_ptr<SystemMonitor>
system_monitor(const std::filesystem::path &proc = "/proc",
               const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// Gives memory that the process's allocator holds free back to the system, if the C library
// supports this. Takes a few milliseconds.
void return_free_memory() noexcept;

} // namespace keel
