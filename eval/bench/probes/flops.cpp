#include "eval/bench/probes/flops.hpp"

#include "eval/bench/probes/kernels.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

struct Pass {
    const ProbeKernels &kernels;
    uint64_t rounds;
    std::atomic<float> sink{0};
    Clock::time_point start{}, end{};
    uint32_t workers = 0;
};

double run_pass(ThreadTeam &team, Pass &pass) {
    const auto body = [](void *user, const ThreadTeam::Region &region) {
        auto &p = *static_cast<Pass *>(user);
        region.barrier();
        if (region.worker() == 0) p.start = Clock::now();
        p.sink.store(p.kernels.multiply_add(p.rounds), std::memory_order_relaxed);
        region.barrier();
        if (region.worker() == 0) {
            p.end = Clock::now();
            p.workers = region.size();
        }
    };
    if (team.run(0, body, &pass) != ThreadTeam::Result::done) return 0;
    return std::chrono::duration<double>(pass.end - pass.start).count();
}

} // namespace

FlopsReading measure_flops(ThreadTeam &team, double seconds) {
    const ProbeKernels &kernels = best_probe_kernels();
    FlopsReading best{0, kernels.isa};
    // The first pass brings the processor to full speed and shows how long a round takes. The
    // measured peak is the speed of the fastest pass.
    uint64_t rounds = uint64_t{1} << 18;
    for (int i = 0; i < 5; ++i) {
        Pass pass{kernels, rounds};
        const double took = run_pass(team, pass);
        if (took <= 0) return best;
        best.flops = std::max(best.flops, static_cast<double>(rounds * kernels.flops_per_round) *
                                              pass.workers / took);
        const double wanted = seconds / 4 / took;
        rounds = static_cast<uint64_t>(std::clamp(static_cast<double>(rounds) * wanted, 1e4, 1e9));
    }
    return best;
}

} // namespace keel
