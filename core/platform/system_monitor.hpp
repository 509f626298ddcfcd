#pragma once

#include "platform/memory.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace keel {

// What the system says about its memory at one moment.
struct MemoryReading {
    MemoryInfo memory; // total 0: unknown
    // Share of the last ten seconds, in percent, in which some task had to wait for memory (PSI,
    // "some avg10"); nullopt: not told.
    std::optional<double> stalled;
    std::string stalled_where; // the file that tells it
};

// Where readings come from: the system, or a test's script.
class SystemMonitor {
  public:
    SystemMonitor() = default;
    virtual ~SystemMonitor() = default;
    SystemMonitor(const SystemMonitor &) = delete;
    SystemMonitor &operator=(const SystemMonitor &) = delete;

    // May be called from any thread; some tenths of a millisecond. Never throws: what cannot be
    // read is unknown.
    virtual MemoryReading read() noexcept = 0;
};

// The machine: memory_info(), and PSI of the process's control group, or of the system where the
// group has none. Each reading opens the files anew, so a limit that is changed while a model runs
// counts from then on. The arguments let tests give a made-up system.
std::shared_ptr<SystemMonitor>
system_monitor(const std::filesystem::path &proc = "/proc",
               const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// Gives memory that the process's allocator holds free back to the system, where it can. A few
// milliseconds.
void return_free_memory() noexcept;

} // namespace keel
