#include "platform/system_monitor.hpp"

#include <cstdlib>
#include <fstream>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace keel {
namespace {

namespace fs = std::filesystem;

// Reads the value from "some avg10=1.25 avg60=..." of a PSI file.
std::optional<double> some_avg10(const fs::path &path) {
    std::ifstream in(path);
    std::string word, value;
    if (!(in >> word >> value) || word != "some" || value.compare(0, 6, "avg10=") != 0)
        return std::nullopt;
    char *end = nullptr;
    const double percent = std::strtod(value.c_str() + 6, &end);
    // The condition also refuses NaN.
    if (end == value.c_str() + 6 || !(percent >= 0 && percent <= 100)) return std::nullopt;
    return percent;
}

class Linux final : public SystemMonitor {
  public:
    Linux(fs::path proc, fs::path cgroup) : proc_(std::move(proc)), cgroup_(std::move(cgroup)) {}

    MemoryReading read() noexcept override {
        MemoryReading reading;
        try {
            reading.memory = memory_info(proc_, cgroup_);
            std::vector<fs::path> files;
            for (const fs::path &group : memory_groups(proc_, cgroup_))
                files.push_back(group / "memory.pressure");
            files.push_back(proc_ / "pressure" / "memory");
            for (const fs::path &file : files) {
                reading.stalled = some_avg10(file);
                if (!reading.stalled) continue;
                reading.stalled_where = file.string();
                break;
            }
        } catch (...) { // out of memory; the next reading can succeed
        }
        return reading;
    }

  private:
    fs::path proc_, cgroup_;
};

} // namespace

std::shared_ptr<SystemMonitor> system_monitor(const fs::path &proc, const fs::path &cgroup) {
    return std::make_shared<Linux>(proc, cgroup);
}

void return_free_memory() noexcept {
#if defined(__GLIBC__)
    ::malloc_trim(0);
#endif
}

} // namespace keel
