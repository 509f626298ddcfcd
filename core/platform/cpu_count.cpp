#include "platform/threads.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

namespace keel {
namespace {

namespace fs = std::filesystem;

uint32_t affinity_cpus() {
    // The kernel's mask can be larger than cpu_set_t. If the buffer is too small, the call fails
    // with EINVAL.
    for (size_t bits = 1024; bits <= (size_t{1} << 20); bits *= 4) {
        std::vector<unsigned long> mask(bits / (8 * sizeof(unsigned long)));
        const size_t bytes = mask.size() * sizeof(unsigned long);
        auto *set = reinterpret_cast<cpu_set_t *>(mask.data());
        if (::sched_getaffinity(0, bytes, set) == 0)
            return static_cast<uint32_t>(CPU_COUNT_S(bytes, set));
    }
    return std::thread::hardware_concurrency();
}

// Returns the number of processors that "QUOTA PERIOD" in cpu.max allows, rounded up. The text
// "max" and a missing file allow all processors.
uint32_t quota_cpus(const fs::path &group) {
    constexpr uint32_t all = std::numeric_limits<uint32_t>::max();
    std::ifstream in(group / "cpu.max");
    uint64_t quota = 0;
    uint64_t period = 0;
    if (!(in >> quota >> period) || period == 0) return all;
    const uint64_t cpus = quota / period + (quota % period != 0 ? 1 : 0);
    return static_cast<uint32_t>(std::clamp<uint64_t>(cpus, 1, all));
}

} // namespace

uint32_t usable_cpus(const fs::path &proc, const fs::path &cgroup) {
    uint32_t cpus = std::max(1u, affinity_cpus());
    std::ifstream in(proc / "self" / "cgroup");
    for (std::string line; std::getline(in, line);) {
        if (line.rfind("0::/", 0) != 0) continue;
        // each cgroup from the leaf to the root can have a quota
        for (fs::path group = fs::path(line.substr(4)).lexically_normal();;
             group = group.parent_path()) {
            cpus = std::min(cpus, quota_cpus(cgroup / group));
            if (group.empty() || group == group.parent_path()) break;
        }
    }
    return cpus;
}

} // namespace keel
