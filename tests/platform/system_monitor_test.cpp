#include "platform/system_monitor.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using test::TempFolder;

namespace {

constexpr uint64_t one_mib = uint64_t{1} << 20;
const std::string meminfo_text =
    "MemTotal:        8388608 kB\nMemFree:          102400 kB\nMemAvailable:    4194304 kB\n";

} // namespace

TEST_CASE("a monitor reads memory and stalls again each time") {
    const TempFolder system;
    system.write("proc/meminfo", meminfo_text);
    system.write("proc/self/cgroup", "0::/a\n");
    system.write("proc/pressure/memory",
                 "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00\n");
    const auto monitor = system_monitor(system / "proc", system / "cgroup");
    MemoryReading reading = monitor->read();
    CHECK(reading.memory.available == 4096 * one_mib);
    CHECK(reading.stalled == 1.5);
    CHECK(reading.stalled_where == (system / "proc/pressure/memory").string());

    // The limit of the group has priority over the system's memory. A change of the limit takes
    // effect immediately.
    system.write("cgroup/a/memory.max", "1073741824\n");
    system.write("cgroup/a/memory.current", "1048576\n");
    system.write("cgroup/a/memory.pressure", "some avg10=42.25 avg60=0.00 avg300=0.00 total=1\n");
    reading = monitor->read();
    CHECK(reading.memory.available == 1023 * one_mib);
    CHECK(reading.stalled == 42.25);
    system.write("cgroup/a/memory.current", "1073741824\n");
    CHECK(monitor->read().memory.available == 0);
}

TEST_CASE("a control group of version 1 limits the memory, also if version 2 is mounted") {
    const TempFolder system;
    system.write("proc/meminfo", meminfo_text);
    system.write("proc/self/cgroup", "5:cpu,memory:/job\n2:cpuset:/\n0::/slice\n");
    system.write("cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
    system.write("cgroup/memory/job/memory.usage_in_bytes", "805306368\n");
    system.write("cgroup/memory/job/memory.stat",
                 "inactive_file 1\ntotal_inactive_file 268435456\n");
    // this value means no limit
    system.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    system.write("cgroup/unified/slice/memory.pressure",
                 "some avg10=3.00 avg60=0.00 avg300=0.00 total=1\n");
    const MemoryReading reading = system_monitor(system / "proc", system / "cgroup")->read();
    CHECK(reading.memory.total == 1024 * one_mib);
    CHECK(reading.memory.available == 512 * one_mib);
    CHECK(reading.memory.limited_by == (system / "cgroup/memory/job").string());
    CHECK(reading.stalled == 3.0);
}

TEST_CASE("missing or invalid information of the system counts as unknown") {
    const TempFolder system;
    for (const char *text : {"", "some", "some avg10=", "some avg10=nan", "some avg10=-1",
                             "some avg10=101", "full avg10=5"}) {
        INFO(text);
        system.write("proc/pressure/memory", text);
        const MemoryReading reading = system_monitor(system / "proc", system / "cgroup")->read();
        CHECK(reading.memory.total == 0);
        CHECK_FALSE(reading.stalled);
    }
}

TEST_CASE("free memory of the allocator can be released at any time") {
    CHECK_NOTHROW(return_free_memory());
    CHECK(system_monitor()->read().memory.total > 0);
}
