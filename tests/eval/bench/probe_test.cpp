#include "eval/bench/probes/bandwidth.hpp"
#include "eval/bench/probes/flops.hpp"
#include "platform/machine.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

using namespace keel;

TEST_CASE("every reading loop reads every byte") {
    constexpr size_t bytes = 3 * probe_read_unit;
    PageBuffer buffer(bytes, "a test");
    std::mt19937_64 random(3);
    uint64_t expected = 0;
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        const uint64_t word = random();
        expected ^= word;
        std::memcpy(buffer.data() + i, &word, sizeof word);
    }
    for (const ProbeKernels *kernels : {&baseline_probe_kernels(), &best_probe_kernels()}) {
        INFO(kernels->isa);
        CHECK(kernels->read(buffer.data(), bytes) == expected);
        CHECK(kernels->read_prefetched(buffer.data(), bytes) == expected);
        CHECK(kernels->read(buffer.data(), 0) == 0);
    }
}

TEST_CASE("the multiply-add loop does the number of operations that it reports") {
    for (const ProbeKernels *kernels : {&baseline_probe_kernels(), &best_probe_kernels()}) {
        INFO(kernels->isa);
        // Every lane converges to 0.001 / (1 - 0.999) = 1, so the sum is the number of lanes. Each
        // lane takes one multiplication and one addition.
        CHECK(2 * kernels->multiply_add(40000) == Approx(kernels->flops_per_round).epsilon(0.01));
    }
}

TEST_CASE("the bandwidth probe uses a buffer that is larger than caches and fits the memory") {
    constexpr uint64_t gib = uint64_t{1} << 30, mib = uint64_t{1} << 20;
    CHECK(probe_buffer_bytes(32 * mib, 64 * gib) == gib);
    CHECK(probe_buffer_bytes(512 * mib, 64 * gib) == 2 * gib);
    CHECK(probe_buffer_bytes(512 * mib, 2 * gib) == gib / 2);
    CHECK(probe_buffer_bytes(0, 0) == gib); // the sizes of the caches are unknown
    CHECK(probe_buffer_bytes(UINT64_MAX, 0) == 16 * gib);
}

TEST_CASE("probes measure something on any team") {
    for (const uint32_t cpus : {1U, 3U}) {
        ThreadTeam team(cpus);
        BandwidthProbe probe(team, (uint64_t{1} << 20) + 77);
        CHECK(probe.bytes() % (probe_read_unit * cpus) == 0);
        CHECK(probe.bytes() > 0);
        const BandwidthProbe::Reading reading = probe.measure();
        CHECK(reading.plain > 0);
        CHECK(reading.prefetched > 0);
        CHECK(reading.best() == std::max(reading.plain, reading.prefetched));
        const FlopsReading flops = measure_flops(team, 0.001);
        CHECK(flops.flops > 0);
        CHECK(std::string(flops.isa) == best_probe_kernels().isa);
    }
    ThreadTeam team(2);
    BandwidthProbe none(team, 100);
    CHECK(none.bytes() == 0);
    CHECK(none.measure().best() == 0);
}

TEST_CASE("the machine is described by what the system reports") {
    const test::TempFolder folder;
    folder.write(
        "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: A Very \x1b[31mFine Processor\nmodel name\t: other\n");
    folder.write("cpu/cpu0/cache/index0/size", "48K\n");
    folder.write("cpu/cpu0/cache/index3/size", "32M\n");
    const MachineInfo info = machine_info(folder / "proc", folder / "cpu");
    CHECK(info.cpu == "A Very \\x1b[31mFine Processor");
    CHECK(info.last_level_cache == uint64_t{32} << 20);
    const MachineInfo nothing = machine_info(folder / "none", folder / "none");
    CHECK(nothing.cpu.empty());
    CHECK(nothing.last_level_cache == 0);
}
