// Tests of memory limits of control groups, and of the decision of `copy: auto`.
#include "cpu/memory/memory.hpp"
#include "cpu/memory/memory_groups.hpp"
#include "cpu/weights/copy.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <string>

using keel::test::TempFolder;

namespace {

struct Memory {
    uint64_t total = 1000, available = 800;
    bool operator==(const Memory &) const = default;
};

Memory within(const TempFolder &folder) {
    Memory m;
    keel_cpu::limit_to_groups((folder / "self").c_str(), (folder / "groups").c_str(), m.total,
                              m.available);
    return m;
}

} // namespace

TEST_CASE("a control group's limit counts, and memory that it can release is free") {
    const TempFolder folder;
    folder.write("self", "0::/app\n");
    folder.write("groups/app/memory.max", "500\n");
    folder.write("groups/app/memory.current", "450\n");
    CHECK(within(folder) == Memory{500, 50});
    folder.write("groups/app/memory.stat",
                 "anon 100\nfile 350\ninactive_file 300\nactive_file 50\n");
    CHECK(within(folder) == Memory{500, 350});
    // "inactive_file" is the first line, and the file has more idle pages than used pages.
    folder.write("groups/app/memory.stat", "inactive_file 9000\n");
    CHECK(within(folder) == Memory{500, 500});
    folder.write("groups/app/memory.high", "400\n");
    CHECK(within(folder) == Memory{400, 400});
    folder.write("groups/app/memory.current", "9000\n");
    folder.write("groups/app/memory.stat", "anon 9000\n");
    CHECK(within(folder) == Memory{400, 0});
}

TEST_CASE("of nested control groups the smallest limit counts, and none above the mount") {
    const TempFolder folder;
    folder.write("self", "12:cpu:/\n0::/a.slice/b.service/\n");
    folder.write("memory.max", "1\n"); // a file next to the mount
    folder.write("groups/a.slice/b.service/memory.max", "max\n");
    CHECK(within(folder) == Memory{});
    folder.write("groups/a.slice/memory.max", "600\n");
    folder.write("groups/a.slice/memory.current", "10\n");
    CHECK(within(folder) == Memory{600, 590});
    folder.write("groups/memory.max", "300\n");
    CHECK(within(folder) == Memory{300, 300});
    // In a container, the path can be a path of the system outside.
    folder.write("self", "0::/elsewhere/far\n");
    CHECK(within(folder) == Memory{300, 300});
}

TEST_CASE("control groups of version 1 and of both versions count as well") {
    const TempFolder folder;
    folder.write("self", "5:cpuset,memory:/job\n0::/x\n");
    folder.write("groups/memory/job/memory.limit_in_bytes", "700\n");
    folder.write("groups/memory/job/memory.usage_in_bytes", "200\n");
    folder.write("groups/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n");
    folder.write("groups/unified/x/cgroup.procs", "");
    CHECK(within(folder) == Memory{700, 550});
}

TEST_CASE("unreadable files of control groups set no limit") {
    const TempFolder folder;
    CHECK(within(folder) == Memory{});
    for (const std::string &self : {std::string(), std::string("\n\n"), std::string("0:"),
                                    std::string("0::"), std::string("::::"), std::string(9000, ':'),
                                    "0::/" + std::string(9000, 'a'), std::string("0::/app\n0::")}) {
        folder.write("self", self);
        folder.write("groups/app/memory.max", "many\n");
        folder.write("groups/app/memory.current", "-1\n");
        folder.write("groups/memory.max", "");
        CHECK(within(folder) == Memory{});
    }
}

TEST_CASE("16-bit weights are copied while an eighth of memory stays free") {
    using keel_cpu::leaves_an_eighth;
    CHECK(leaves_an_eighth(400, 800, 500));
    CHECK_FALSE(leaves_an_eighth(401, 800, 500));
    CHECK_FALSE(leaves_an_eighth(0, 800, 99));
    CHECK(leaves_an_eighth(0, 0, 0)); // the sizes are unknown, but a copy of nothing always fits
    CHECK_FALSE(leaves_an_eighth(1, 0, 0)); // the sizes are unknown, so a copy does not fit
    CHECK_FALSE(leaves_an_eighth(UINT64_MAX, 800, 500)); // the sum must not overflow
}

TEST_CASE("memory that the system does not report is unknown, not zero") {
    const TempFolder folder;
    folder.write("some", "MemTotal: 8000 kB\nMemFree: 10 kB\nMemAvailable:    2000 kB\n");
    folder.write("full", "MemTotal: 8000 kB\nMemAvailable: 0 kB\n");
    folder.write("old", "MemTotal: 8000 kB\n");
    const auto available = [&](const char *name) {
        uint64_t total = 0, free = 7;
        keel_cpu::system_memory(total, free, (folder / name).c_str());
        CHECK(total > 0);
        return free;
    };
    CHECK(available("some") == 2000 * 1024);
    CHECK(available("full") == 1);
    CHECK(available("old") == 0);
    CHECK(available("missing") == 0);
}

TEST_CASE("copy: auto distinguishes too little memory from unknown memory") {
    using keel_cpu::Room;
    const TempFolder folder;
    folder.write("self", "0::/app\n");
    const auto room = [&](uint64_t total, uint64_t available) {
        return keel_cpu::room_for(100, total, available, (folder / "self").c_str(),
                                  (folder / "groups").c_str());
    };
    CHECK(room(800, 200) == Room::enough);
    CHECK(room(800, 199) == Room::none);
    CHECK(room(800, 0) == Room::unknown);
    CHECK(room(0, 800) == Room::unknown);
    folder.write("groups/app/memory.max", "500\n"); // the size of a full group is known
    folder.write("groups/app/memory.current", "500\n");
    CHECK(room(800, 800) == Room::none);
}
