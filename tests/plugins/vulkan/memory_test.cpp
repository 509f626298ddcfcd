// Tests of device memory: it is allocated in few blocks and given back.
#include "conformance/test_host.hpp"
#include "gpu/report.hpp"
#include "support/skip.hpp"
#include "vulkan/memory.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace keel_vulkan;

namespace {

// The first device, with its memory. The constructor skips the case if there is no device.
struct Opened {
    keel::test::TestHost host;
    Instance instance;
    Device device;
    Memory memory;

    Opened() {
        try {
            instance.open(host.table(), false, nullptr);
        } catch (const keel_gpu::Refusal &) {
        }
        const auto devices = instance.handle() == VK_NULL_HANDLE ? std::vector<VkPhysicalDevice>{}
                                                                 : list_devices(instance);
        if (devices.empty()) keel::test::skip("no Vulkan device here");
        device.open(host.table(), instance, devices[0], false, false);
        memory.open(host.table(), &device);
    }

    // Returns the status and the message of a call that is refused.
    template <class F> keel_status refused(const F &body) {
        try {
            body();
        } catch (const keel_gpu::Refusal &refusal) {
            return refusal.status;
        }
        return KEEL_OK;
    }
};

} // namespace

TEST_CASE("thousands of buffers need few allocations and do not overlap") {
    Opened o;
    std::vector<Range> ranges;
    for (int i = 0; i < 5000; ++i) {
        ranges.push_back(o.memory.take(MemoryUse::device, 1 + static_cast<uint64_t>(i) * 7 % 9000));
        CHECK(ranges.back().offset % Memory::kAlign == 0);
        CHECK(ranges.back().address() % Memory::kAlign == 0);
    }
    CHECK(o.memory.allocations() <= 2);
    std::sort(ranges.begin(), ranges.end(),
              [](const Range &a, const Range &b) { return a.address() < b.address(); });
    for (size_t i = 1; i < ranges.size(); ++i)
        REQUIRE(ranges[i - 1].address() + ranges[i - 1].size <= ranges[i].address());
    // The parts are given back in a random order. Then the whole memory can be taken as one part.
    const uint64_t held = o.memory.held();
    for (size_t i = 0; i < ranges.size(); i += 2) o.memory.give_back(ranges[i]);
    for (size_t i = 1; i < ranges.size(); i += 2) o.memory.give_back(ranges[i]);
    Range large = o.memory.take(MemoryUse::device, 30u << 20);
    CHECK(o.memory.held() == held);
    o.memory.give_back(large);
}

TEST_CASE("a large buffer has its own allocation, which is freed immediately") {
    Opened o;
    Range small = o.memory.take(MemoryUse::device, 100);
    const uint64_t held = o.memory.held();
    Range large = o.memory.take(MemoryUse::device, 100u << 20);
    CHECK(o.memory.held() == held + (100u << 20));
    CHECK(large.offset == 0);
    o.memory.give_back(large);
    CHECK(o.memory.held() == held);
    o.memory.give_back(small);
}

TEST_CASE("sizes above the device's limits are refused with the limits' names") {
    Opened o;
    const uint64_t limit = o.device.facts().max_allocation;
    REQUIRE(limit != 0);
    CHECK(o.refused([&] { o.memory.take(MemoryUse::device, limit + 1); }) == KEEL_E_OUT_OF_MEMORY);
    CHECK(o.host.last_error().find("maxMemoryAllocationSize") != std::string::npos);
    CHECK(o.refused([&] { o.memory.take(MemoryUse::device, UINT64_MAX); }) == KEEL_E_OUT_OF_MEMORY);
    CHECK(o.memory.held() == 0);
}

TEST_CASE("host memory is imported in whole units or refused") {
    Opened o;
    if (!o.device.facts().imports) keel::test::skip("the device imports no host memory");
    const uint64_t align = o.device.facts().import_align;
    std::vector<uint8_t> room(3 * align);
    auto *begin = reinterpret_cast<uint8_t *>(
        (reinterpret_cast<uintptr_t>(room.data()) + align - 1) / align * align);
    CHECK(o.refused([&] { o.memory.import(begin + 1, align); }) == KEEL_E_UNSUPPORTED);
    CHECK(o.refused([&] { o.memory.import(begin, align + 1); }) == KEEL_E_UNSUPPORTED);
    CHECK(o.refused([&] { o.memory.import(nullptr, align); }) == KEEL_E_UNSUPPORTED);
    Block *block = o.memory.import(begin, align);
    CHECK(o.memory.held() == 0); // imported memory belongs to the host
    o.memory.close(block);
}
