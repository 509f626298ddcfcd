#include "platform/threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace keel {
namespace {

constexpr size_t cache_line = 64;
constexpr int64_t spin_min_ns = 1'000;
constexpr int64_t spin_max_ns = 100'000;

thread_local bool running_region = false;

// Increases in the child of each fork(). The threads of the parent do not exist in the child.
std::atomic<uint32_t> fork_count{0};

void count_forks() {
    static std::once_flag once;
    std::call_once(once, [] {
        ::pthread_atfork(nullptr, nullptr,
                         [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
    });
}

void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    // uses isb, because isb waits about as long as x86's pause; `yield` does nothing on most cores
    asm volatile("isb" ::: "memory");
#endif
}

int64_t now_ns() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Decides how long a thread spins before it parks. If a wait is longer than the spinning, the spin
// time is halved, but not below spin_min_ns. A wait is long if the awaited thread is not running,
// for example if there are more runnable threads than cores. A wake-up takes longer than
// spin_min_ns. So two threads that wait for each other and both park would never spin again, even
// if both could run. Therefore, once in 64 failures, a thread spins for spin_max_ns. If the wait
// ends while the thread spins, the spin time becomes spin_max_ns again.
class alignas(cache_line) Spin {
  public:
    // Returns when the value of `word` is not `old`.
    void wait(const std::atomic<uint32_t> &word, uint32_t old, bool crowded) noexcept {
        if (!crowded && spin(word, old)) return;
        while (word.load(std::memory_order_acquire) == old)
            word.wait(old, std::memory_order_acquire);
    }

  private:
    static constexpr uint32_t probe_every = 64; // number of failures between two long attempts

    bool spin(const std::atomic<uint32_t> &word, uint32_t old) noexcept {
        const bool probe = failures_ % probe_every == probe_every - 1;
        int64_t end = 0;
        for (;;) {
            for (int i = 0; i < 64; ++i) {
                if (word.load(std::memory_order_acquire) != old) {
                    if (end != 0) budget_ns_ = spin_max_ns;
                    return true;
                }
                pause_cpu();
            }
            // a short wait ends before this line and does not read the clock
            const int64_t now = now_ns();
            if (end == 0) {
                end = now + (probe ? spin_max_ns : budget_ns_);
            } else if (now >= end) {
                ++failures_;
                budget_ns_ = failures_ % probe_every == 0 ? spin_max_ns
                                                          : std::max(spin_min_ns, budget_ns_ / 2);
                return false;
            }
        }
    }

    int64_t budget_ns_ = spin_max_ns;
    uint32_t failures_ = 0;
};

// Returns the processors on which this thread may run, beginning with the processor after its
// current one.
std::vector<int> cpus_after_mine() {
    std::vector<int> cpus;
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0)
        return cpus; // more than 1024 processors: threads are not pinned
    const int mine = ::sched_getcpu();
    for (int i = 1; i <= CPU_SETSIZE; ++i) {
        const int cpu = (mine + i) % CPU_SETSIZE;
        if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
    return cpus;
}

void pin_this_thread(int cpu) noexcept {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    // pinning is a hint; if the system refuses, only speed is lost
    static_cast<void>(::sched_setaffinity(0, sizeof set, &set));
}

struct alignas(cache_line) Word {
    std::atomic<uint32_t> value{0};
};

// A thread of the team. The thread that calls run() does not have a Worker.
struct Worker {
    Word go; // increases by one for each region in which the thread takes part
    Spin between_regions;
    Spin in_barrier;
    std::thread thread;
};

} // namespace

struct ThreadTeam::State {
    std::mutex mutex; // one region at a time; also guards the members from here to `crowded`
    std::vector<std::unique_ptr<Worker>> workers; // worker i of a region is workers[i - 1]
    uint32_t forks = fork_count.load(std::memory_order_relaxed);

    // The running region. The thread that calls run() writes these members before it sets `go`. The
    // workers read them after `go` is set.
    Body body = nullptr;
    void *user = nullptr;
    uint32_t size = 0;
    bool crowded = false; // more workers than processors: spinning would block other workers
    std::atomic<bool> stop{false};

    Word pending; // workers that have not finished
    Word arrived; // workers that have reached the barrier
    Word phase;   // increases when a barrier opens
    Spin caller_in_barrier;
    Spin caller_at_end;

    void work(ThreadTeam &team, Worker &self, uint32_t index) noexcept;
    bool grow(ThreadTeam &team, uint32_t wanted) noexcept;
    void barrier(uint32_t worker) noexcept;
    ~State();
};

void ThreadTeam::State::work(ThreadTeam &team, Worker &self, uint32_t index) noexcept {
    running_region = true; // this thread runs nothing but bodies of regions
    bool was_crowded = false;
    for (uint32_t seen = 0;; ++seen) {
        self.between_regions.wait(self.go.value, seen, was_crowded);
        if (stop.load(std::memory_order_acquire)) return;
        was_crowded = crowded;
        body(user, Region(team, index, size));
        // After the last decrement, the caller may write the members above. So the code below does
        // not read these members.
        if (pending.value.fetch_sub(1, std::memory_order_seq_cst) == 1) pending.value.notify_one();
    }
}

// Makes threads until a region of `wanted` workers can run. Returns false if the system refuses a
// thread.
// If the team has all processors, each worker is pinned to its own processor. Schedulers tend to
// place a woken thread on the processor of the thread that woke it. Two threads on one processor
// that wait for each other are slow.
// The caller is never pinned, because threads that it creates later would inherit the mask. A
// smaller team is not pinned, because two processes could pin their threads to the same processors.
bool ThreadTeam::State::grow(ThreadTeam &team, uint32_t wanted) noexcept {
    try {
        std::vector<int> cpus = cpus_after_mine();
        if (wanted != cpus.size()) cpus.clear();
        workers.reserve(wanted - 1);
        while (workers.size() + 1 < wanted) {
            const auto index = static_cast<uint32_t>(workers.size() + 1);
            auto worker = std::make_unique<Worker>();
            const int cpu = index <= cpus.size() ? cpus[index - 1] : -1;
            worker->thread = std::thread([this, &team, self = worker.get(), index, cpu] {
                if (cpu >= 0) pin_this_thread(cpu);
                work(team, *self, index);
            });
            workers.push_back(std::move(worker));
        }
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

void ThreadTeam::State::barrier(uint32_t worker) noexcept {
    if (size == 1) return;
    const uint32_t old = phase.value.load(std::memory_order_relaxed);
    if (arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
        arrived.value.store(0, std::memory_order_relaxed);
        phase.value.fetch_add(1, std::memory_order_seq_cst);
        phase.value.notify_all();
        return;
    }
    Spin &spin = worker == 0 ? caller_in_barrier : workers[worker - 1]->in_barrier;
    spin.wait(phase.value, old, crowded);
}

ThreadTeam::State::~State() {
    stop.store(true, std::memory_order_release);
    for (const auto &worker : workers) {
        worker->go.value.fetch_add(1, std::memory_order_seq_cst);
        worker->go.value.notify_one();
    }
    for (const auto &worker : workers) worker->thread.join();
}

ThreadTeam::ThreadTeam(uint32_t cpus)
    : cpus_(cpus != 0 ? cpus : usable_cpus()), state_(std::make_unique<State>()) {
    count_forks();
}

ThreadTeam::~ThreadTeam() {
    // A child process after fork() has the handles of the threads, but not the threads. So the
    // child cannot join the threads, and destroying a joinable handle would terminate the process.
    // Therefore the state is never freed.
    if (state_->forks != fork_count.load(std::memory_order_relaxed))
        static_cast<void>(state_.release());
}

bool ThreadTeam::inside_region() noexcept { return running_region; }

void ThreadTeam::Region::barrier() const noexcept {
    if (size_ > 1) team_->state_->barrier(worker_);
}

ThreadTeam::Result ThreadTeam::run(uint32_t size, Body body, void *user) noexcept {
    if (running_region) return Result::nested;
    if (size == 0) size = std::min(cpus_, max_workers);
    if (size > max_workers) return Result::bad_size;
    if (size == 1) {
        running_region = true;
        body(user, Region(*this, 0, 1));
        running_region = false;
        return Result::done;
    }
    if (state_->forks != fork_count.load(std::memory_order_relaxed)) {
        std::unique_ptr<State> fresh(new (std::nothrow) State);
        if (!fresh) return Result::no_threads;
        // the threads belong to the parent process, so the state is not freed
        static_cast<void>(state_.release());
        state_ = std::move(fresh);
    }
    State &state = *state_;
    const std::lock_guard lock(state.mutex);
    if (state.workers.size() + 1 < size && !state.grow(*this, size)) return Result::no_threads;
    state.body = body;
    state.user = user;
    state.size = size;
    state.crowded = size > cpus_;
    state.pending.value.store(size - 1, std::memory_order_relaxed);
    for (uint32_t i = 0; i + 1 < size; ++i) {
        std::atomic<uint32_t> &go = state.workers[i]->go.value;
        go.fetch_add(1, std::memory_order_seq_cst);
        go.notify_one();
    }
    running_region = true;
    body(user, Region(*this, 0, size));
    running_region = false;
    for (uint32_t left; (left = state.pending.value.load(std::memory_order_acquire)) != 0;)
        state.caller_at_end.wait(state.pending.value, left, state.crowded);
    return Result::done;
}

} // namespace keel
