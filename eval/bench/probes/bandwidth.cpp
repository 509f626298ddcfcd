#include "eval/bench/probes/bandwidth.hpp"

#include <atomic>
#include <chrono>
#include <cstring>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t gib = uint64_t{1} << 30;

struct Slice {
    std::byte *begin;
    size_t bytes;
};

// Returns the part of the buffer that worker w reads, in whole units. The buffer's size is a
// multiple of units times workers.
Slice slice(const ThreadTeam::Region &region, PageBuffer &buffer) {
    const size_t each = buffer.size() / region.size() / probe_read_unit * probe_read_unit;
    return {buffer.data() + each * region.worker(), each};
}

uint64_t whole_units(uint64_t bytes, uint32_t workers) {
    const uint64_t step = probe_read_unit * workers;
    return bytes / step * step;
}

} // namespace

uint64_t probe_buffer_bytes(uint64_t last_level_cache, uint64_t available_memory) {
    const uint64_t wanted = std::max(gib, 4 * std::min(last_level_cache, 4 * gib));
    return available_memory == 0 ? wanted : std::min(wanted, available_memory / 4);
}

BandwidthProbe::BandwidthProbe(ThreadTeam &team, uint64_t bytes)
    : team_(team), kernels_(best_probe_kernels()),
      buffer_(whole_units(bytes, team.cpus()), "the bandwidth probe's buffer") {
    // Writes to every page. Pages that were never written share one page of zeros, which fits in a
    // CPU cache. Each worker writes to its own part.
    const auto touch = [](void *user, const ThreadTeam::Region &region) {
        const Slice part = slice(region, *static_cast<PageBuffer *>(user));
        std::memset(part.begin, 1 + static_cast<int>(region.worker() % 100), part.bytes);
    };
    if (buffer_.size() > 0) team_.run(0, touch, &buffer_);
}

BandwidthProbe::Reading BandwidthProbe::measure() {
    if (buffer_.size() == 0) return {};
    Reading reading;
    reading.plain = pass(kernels_.read);
    reading.prefetched = pass(kernels_.read_prefetched);
    return reading;
}

double BandwidthProbe::pass(uint64_t (*read)(const std::byte *, size_t)) {
    struct Pass {
        PageBuffer &buffer;
        uint64_t (*read)(const std::byte *, size_t);
        std::atomic<uint64_t> sink{0};
        Clock::time_point start, end;
        size_t bytes = 0;
    } pass{buffer_, read, {}, {}, {}, 0};
    const auto body = [](void *user, const ThreadTeam::Region &region) {
        auto &p = *static_cast<Pass *>(user);
        const Slice part = slice(region, p.buffer);
        region.barrier(); // after the barrier, all threads are awake; so the measured time does not
                          // include waking threads
        if (region.worker() == 0) p.start = Clock::now();
        p.sink ^= p.read(part.begin, part.bytes);
        region.barrier();
        if (region.worker() == 0) {
            p.end = Clock::now();
            p.bytes = part.bytes * region.size();
        }
    };
    if (team_.run(0, body, &pass) != ThreadTeam::Result::done) return 0;
    const double seconds = std::chrono::duration<double>(pass.end - pass.start).count();
    return seconds > 0 ? static_cast<double>(pass.bytes) / seconds : 0;
}

} // namespace keel
