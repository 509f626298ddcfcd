#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace keel {

// Returns the number of processors that this process can use, at least 1. The number comes from the
// affinity mask. The CPU quota of the process's cgroup v2 and of its parents, rounded up, limits
// the number. Tests pass other folders to simulate a system.
uint32_t usable_cpus(const std::filesystem::path &proc = "/proc",
                     const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// A team of threads that run one body together, many times, with little delay. Threads are created
// when a region first needs them, and live until the team is destroyed. Between regions and at
// barriers a thread spins for a short time, then parks. Each thread adapts its spin time, so that
// on a busy machine other threads can use the processor.
class ThreadTeam {
  public:
    static constexpr uint32_t max_workers = 256;

    // A worker's view of a running region. Valid while the body runs.
    class Region {
      public:
        uint32_t worker() const noexcept { return worker_; } // 0 for the caller of run()
        uint32_t size() const noexcept { return size_; }
        // Waits until all workers have called barrier(). After the barrier, each worker sees the
        // writes that the other workers made before it. All workers must call barrier() equally
        // often.
        void barrier() const noexcept;

      private:
        friend class ThreadTeam;
        Region(ThreadTeam &team, uint32_t worker, uint32_t size) noexcept
            : team_(&team), worker_(worker), size_(size) {}
        ThreadTeam *team_;
        uint32_t worker_;
        uint32_t size_;
    };
    // The body of a region. It must not throw: an exception that leaves it ends the process
    // (std::terminate).
    using Body = void (*)(void *user, const Region &region);

    enum class Result {
        done,
        nested,     // run() was called inside a region of this or another team; nothing ran
        bad_size,   // size is above max_workers; nothing ran
        no_threads, // the system refused to create a thread; nothing ran
    };

    // `cpus` is the number of processors that the team can use. In a region with more workers than
    // `cpus`, threads park at once instead of spinning. 0: usable_cpus().
    explicit ThreadTeam(uint32_t cpus = 0);
    ~ThreadTeam();
    ThreadTeam(const ThreadTeam &) = delete;
    ThreadTeam &operator=(const ThreadTeam &) = delete;

    // Runs `body` on `size` workers and returns when all have finished. `size` 0: one worker for
    // each processor. The calling thread is worker 0. With size 1, run() only calls the body. If
    // several threads call run(), their regions run one after the other. After fork(), the team in
    // the child process starts without threads.
    Result run(uint32_t size, Body body, void *user) noexcept;

    uint32_t cpus() const noexcept { return cpus_; }

    // Returns true on a thread that runs the body of a region of any team.
    static bool inside_region() noexcept;

  private:
    struct State;
    uint32_t cpus_;
    std::unique_ptr<State> state_;
};

} // namespace keel
