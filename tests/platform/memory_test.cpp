#include "platform/memory.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <limits>

using namespace keel;
using Catch::Matchers::Contains;
using keel::test::error_text;
using keel::test::TempFolder;

namespace {
constexpr uint64_t mib = uint64_t{1} << 20;
constexpr const char *meminfo =
    "MemTotal:        8388608 kB\nMemFree:          100000 kB\nMemAvailable:    4194304 kB\n";
} // namespace

TEST_CASE("page buffers are aligned to pages, large ones to huge pages") {
    PageBuffer small(100, "a test");
    CHECK(reinterpret_cast<uintptr_t>(small.data()) % page_size() == 0);
    CHECK(small.size() == 100);
    PageBuffer large(5 * mib + 1, "a test");
    CHECK(reinterpret_cast<uintptr_t>(large.data()) % (2 * mib) == 0);
    std::memset(large.data(), 7, large.size());
    const std::byte *where = large.data();
    const PageBuffer moved(std::move(large));
    CHECK(moved.data() == where);
    CHECK(moved.bytes().back() == std::byte{7});
    CHECK(PageBuffer(0, "nothing").data() == nullptr);
}

TEST_CASE("if the system has no memory, the error names its purpose") {
    const auto impossible = [] {
        PageBuffer buffer(std::numeric_limits<uint64_t>::max() - 5, "the KV cache");
    };
    CHECK_THAT(error_text(impossible, ErrorKind::resource),
               Contains("the KV cache") && Contains("16.0 EiB"));
}

TEST_CASE("resident memory grows with the accessed memory") {
    const uint64_t before = resident_bytes();
    REQUIRE(before > 0);
    PageBuffer buffer(64 * mib, "a test");
    std::memset(buffer.data(), 1, buffer.size());
    CHECK(resident_bytes() > before + 32 * mib);
    CHECK(peak_resident_bytes() > 32 * mib);
}

TEST_CASE("the system reports its memory") {
    const MemoryInfo info = memory_info();
    CHECK(info.total > 64 * mib);
    CHECK(info.available > 0);
    CHECK(info.available <= info.total);
    CHECK(!info.limited_by.empty());
}

TEST_CASE("available memory without a control group is MemAvailable") {
    const TempFolder system;
    system.write("proc/meminfo", meminfo);
    const MemoryInfo info = memory_info(system / "proc", system / "cgroup");
    CHECK(info.total == 8192 * mib);
    CHECK(info.available == 4096 * mib);
    CHECK(info.limited_by == "system memory");
}

TEST_CASE("the smallest limit of the control groups up to the root limits the memory") {
    const TempFolder system;
    system.write("proc/meminfo", meminfo);
    system.write("proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n");
    system.write("cgroup/a/b/memory.max", "max\n");
    system.write("cgroup/a/b/memory.high", "3221225472\n"); // 3 GiB
    system.write("cgroup/a/b/memory.current", "1048576\n");
    system.write("cgroup/a/memory.max", "2147483648\n"); // 2 GiB
    system.write("cgroup/a/memory.current", "1610612736\n");
    system.write("cgroup/a/memory.stat",
                 "anon 5\ninactive_file 536870912\n"); // 512 MiB of this can be released
    const MemoryInfo info = memory_info(system / "proc", system / "cgroup");
    CHECK(info.total == 2048 * mib);
    CHECK(info.available == 1024 * mib);
    CHECK(info.limited_by == (system / "cgroup/a").string());
}

TEST_CASE("in a container, the process's group is at the root of the mount") {
    const TempFolder system;
    system.write("proc/meminfo", meminfo);
    system.write("proc/self/cgroup", "0::/\n");
    system.write("cgroup/memory.max", "1073741824\n");
    // the limit is exceeded, so nothing is left
    system.write("cgroup/memory.current", "2147483648\n");
    const MemoryInfo info = memory_info(system / "proc", system / "cgroup");
    CHECK(info.total == 1024 * mib);
    CHECK(info.available == 0);
}

TEST_CASE("if the system reports nothing, memory is unknown and nothing is refused") {
    const TempFolder system;
    const MemoryInfo info = memory_info(system / "proc", system / "cgroup");
    CHECK(info.total == 0);
    CHECK_NOTHROW(require_memory(uint64_t{1} << 60, "model", "take a smaller one", info));
}

TEST_CASE("if memory is too small, the error has the need, the available memory and what to do") {
    const MemoryInfo info{8192 * mib, 1024 * mib, "system memory"};
    CHECK_NOTHROW(require_memory(1024 * mib, "model", "", info));
    const auto text = error_text(
        [&] { require_memory(4200 * mib, "models/big", "use weights.dtype: q4_0", info); },
        ErrorKind::resource);
    CHECK(text == "models/big: needs 4.1 GiB of memory, 1.0 GiB is available (system memory); use "
                  "weights.dtype: q4_0");
}
