#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace keel {

// Processors that this process may keep busy: the affinity mask, lowered to the CPU quota of the
// process's cgroup v2 and its parents (rounded up). At least 1. The arguments let tests give a
// made-up system.
uint32_t usable_cpus(const std::filesystem::path &proc = "/proc",
                     const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// A team of threads that run one body together, again and again, with little delay. Threads are
// made when a region first asks for them and stay until destruction. Between regions and in
// barriers a thread spins for a short while, then parks; how long is learnt per thread, so that on
// a busy machine the time is left to those who can use it.
class ThreadTeam {
  public:
    static constexpr uint32_t max_workers = 256;

    // A worker's view of a running region; lives as long as the body runs.
    class Region {
      public:
        uint32_t worker() const noexcept { return worker_; } // 0 is the caller of run()
        uint32_t size() const noexcept { return size_; }
        // All workers meet here; what one wrote before is seen by all after. Same number of calls
        // on each worker.
        void barrier() const noexcept;

      private:
        friend class ThreadTeam;
        Region(ThreadTeam &team, uint32_t worker, uint32_t size) noexcept
            : team_(&team), worker_(worker), size_(size) {}
        ThreadTeam *team_;
        uint32_t worker_;
        uint32_t size_;
    };
    // The body; it must not throw: an exception that leaves it ends the process (std::terminate).
    using Body = void (*)(void *user, const Region &region);

    enum class Result {
        done,
        nested,     // called from inside a region of this or another team; nothing ran
        bad_size,   // size above max_workers; nothing ran
        no_threads, // the system refused to make a thread; nothing ran
    };

    // `cpus`: processors the team may count on; above that it parks at once instead of spinning. 0:
    // usable_cpus().
    explicit ThreadTeam(uint32_t cpus = 0);
    ~ThreadTeam();
    ThreadTeam(const ThreadTeam &) = delete;
    ThreadTeam &operator=(const ThreadTeam &) = delete;

    // Runs `body` on `size` workers (0: one per processor), the calling thread being worker 0;
    // returns when all are through. size 1 is a plain call. Callers on different threads take
    // turns. After fork() the child's team starts anew.
    Result run(uint32_t size, Body body, void *user) noexcept;

    uint32_t cpus() const noexcept { return cpus_; }

    // True on a thread that runs a region's body, of any team.
    static bool inside_region() noexcept;

  private:
    struct State;
    uint32_t cpus_;
    std::unique_ptr<State> state_;
};

} // namespace keel
