#include "platform/threads.hpp"

#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <numeric>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using keel::ThreadTeam;
using Region = ThreadTeam::Region;
using Result = ThreadTeam::Result;

namespace {

// Runs a callable as the body of a parallel region.
template <typename Fn> Result run(ThreadTeam &team, uint32_t size, Fn fn) {
    return team.run(
        size, [](void *user, const Region &region) { (*static_cast<Fn *>(user))(region); }, &fn);
}

} // namespace

TEST_CASE("a region runs its body once on each worker, with the caller as worker 0") {
    ThreadTeam team;
    for (uint32_t size : {1u, 2u, 3u, 8u, 2u, 16u, 1u, 5u}) {
        // plain ints, because the end of the region must synchronize them
        std::vector<int> runs(size, 0);
        std::thread::id first;
        const Result result = run(team, size, [&](const Region &region) {
            CHECK_NOTHROW(runs.at(region.worker()) += 1);
            if (region.worker() == 0) first = std::this_thread::get_id();
        });
        CHECK(result == Result::done);
        CHECK(runs == std::vector<int>(size, 1));
        CHECK(first == std::this_thread::get_id());
    }
}

TEST_CASE("size 0 means one worker per processor") {
    ThreadTeam team(3);
    std::atomic<uint32_t> size{0};
    CHECK(run(team, 0, [&](const Region &region) { size = region.size(); }) == Result::done);
    CHECK(size == 3);
}

TEST_CASE("after a barrier, all workers see the writes before it") {
    ThreadTeam team;
    for (uint32_t size : {2u, 3u, 4u, 7u}) {
        constexpr int rounds = 300;
        std::vector<int> cells(size, 0);
        std::atomic<int> wrong{0};
        run(team, size, [&](const Region &region) {
            for (int round = 1; round <= rounds; ++round) {
                cells[region.worker()] = round;
                region.barrier();
                if (std::accumulate(cells.begin(), cells.end(), 0) !=
                    round * static_cast<int>(size))
                    ++wrong;
                region.barrier();
            }
        });
        CHECK(wrong == 0);
        CHECK(cells == std::vector<int>(size, rounds));
    }
}

TEST_CASE("100000 regions of two workers give the right sum") {
    ThreadTeam team;
    std::array<uint64_t, 2> sums{};
    for (int i = 0; i < 100'000; ++i)
        run(team, 2, [&](const Region &region) { sums[region.worker()] += 1; });
    CHECK(sums == std::array<uint64_t, 2>{100'000, 100'000});
}

TEST_CASE("sizes may change from region to region") {
    ThreadTeam team;
    uint64_t expected = 0;
    std::atomic<uint64_t> total{0};
    for (uint32_t i = 0; i < 2000; ++i) {
        const uint32_t size = 1 + i % 5;
        expected += size;
        run(team, size, [&](const Region &region) {
            region.barrier();
            total += 1;
            region.barrier();
        });
    }
    CHECK(total == expected);
}

TEST_CASE("a region inside a region is refused, on the caller, on a worker and in another team") {
    ThreadTeam team;
    ThreadTeam other;
    std::array<Result, 3> results{Result::done, Result::done, Result::done};
    std::atomic<int> inner{0};
    run(team, 2, [&](const Region &region) {
        results[region.worker()] = run(team, 2, [&](const Region &) { ++inner; });
        if (region.worker() == 0) results[2] = run(other, 1, [&](const Region &) { ++inner; });
    });
    CHECK(results == std::array<Result, 3>{Result::nested, Result::nested, Result::nested});
    CHECK(inner == 0);
    CHECK_FALSE(ThreadTeam::inside_region());
    CHECK(run(team, 2, [&](const Region &) { ++inner; }) == Result::done);
    CHECK(inner == 2);
}

TEST_CASE("more than 256 workers are refused, and nothing runs") {
    ThreadTeam team;
    std::atomic<int> ran{0};
    CHECK(run(team, ThreadTeam::max_workers + 1, [&](const Region &) { ++ran; }) ==
          Result::bad_size);
    CHECK(ran == 0);
}

TEST_CASE("callers on different threads take turns") {
    ThreadTeam team;
    std::atomic<int> inside{0};
    std::atomic<int> overlaps{0};
    std::atomic<int> runs{0};
    const auto call = [&] {
        for (int i = 0; i < 500; ++i) {
            run(team, 2, [&](const Region &region) {
                if (region.worker() == 0 && inside.fetch_add(1) != 0) ++overlaps;
                region.barrier();
                if (region.worker() == 0) inside.fetch_sub(1);
                ++runs;
            });
        }
    };
    std::thread other(call);
    call();
    other.join();
    CHECK(overlaps == 0);
    CHECK(runs == 2000);
}

TEST_CASE("parked workers are woken again") {
    ThreadTeam team;
    std::atomic<int> runs{0};
    for (int i = 0; i < 5; ++i) {
        // longer than the time for which workers spin
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        run(team, 3, [&](const Region &region) {
            if (region.worker() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            region.barrier();
            ++runs;
        });
    }
    CHECK(runs == 15);
}

#if !defined(__SANITIZE_THREAD__) // ThreadSanitizer does not follow threads into a child process
TEST_CASE("after fork, the child's team works, and both processes end cleanly") {
    ThreadTeam team;
    std::atomic<int> runs{0};
    run(team, 2, [&](const Region &) { ++runs; });
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        {
            ThreadTeam unused; // a new team in the child process
            run(unused, 2, [&](const Region &) { ++runs; });
        }
        run(team, 3, [&](const Region &) { ++runs; });
        ::_exit(runs == 7 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(run(team, 2, [&](const Region &) { ++runs; }) == Result::done);
    CHECK(runs == 4);
}
#endif

TEST_CASE("the processor count honours the cgroup's quota on every level") {
    const keel::test::TempFolder system;
    system.write("proc/self/cgroup", "0::/a/b\n");
    const auto count = [&] { return keel::usable_cpus(system / "proc", system / "cg"); };
    const uint32_t all = count();
    CHECK(all >= 1);
    CHECK(all <= std::thread::hardware_concurrency());
    system.write("cg/a/b/cpu.max", "max 100000\n");
    CHECK(count() == all);
    system.write("cg/a/cpu.max", "50000 100000\n"); // half a processor
    CHECK(count() == 1);
    system.write("cg/a/cpu.max", "150000 100000\n");
    CHECK(count() == std::min(all, 2u));
    system.write("cg/a/cpu.max", "rubbish\n");
    CHECK(count() == all);
    system.write("cg/a/cpu.max", "100000 0\n");
    CHECK(count() == all);
}
