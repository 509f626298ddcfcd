// Code that the tests of the GPU plugins share: the plugin's table with a driver that can be made
// to fail, one number on a device, and a cache with one head.
#pragma once

#include "conformance/side.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEL_FINDS_LEAKS
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define KEEL_FINDS_LEAKS
#endif
#ifdef KEEL_FINDS_LEAKS
#include <sanitizer/lsan_interface.h>
#endif

namespace keel::test {

// While this object exists, allocations of this thread do not count as leaks. A device that does
// not answer keeps its memory.
struct DeviceKeeps {
#ifdef KEEL_FINDS_LEAKS
    DeviceKeeps() { __lsan_disable(); }
    ~DeviceKeeps() { __lsan_enable(); }
#else
    DeviceKeeps() {}
    ~DeviceKeeps() {}
#endif
    DeviceKeeps(const DeviceKeeps &) = delete;
    DeviceKeeps &operator=(const DeviceKeeps &) = delete;
};

// Environment variables "NAME=VALUE" that a loader reads at its first use. Make a global object of
// this type in the test program.
struct Environment {
    explicit Environment(const std::vector<std::string> &pairs) {
        for (const std::string &pair : pairs)
            setenv(pair.substr(0, pair.find('=')).c_str(), pair.substr(pair.find('=') + 1).c_str(),
                   1);
    }
};

// Sets the fault of the driver's next calls (driver_faults.hpp). "" removes it.
inline void fail(const std::string &what) { setenv("KEEL_DRIVER_FAULT", what.c_str(), 1); }

inline uint32_t device_count(const conformance::Library &library) {
    TestHost host;
    uint32_t n = 0;
    CHECK(library.table().device_count(host.table(), &n) == KEEL_OK);
    return n;
}

// Skips the case if this machine has no device for the plugin.
inline void need_device(const conformance::Library &library) {
    fail("");
    if (device_count(library) == 0) skip(std::string("no device here for ") + library.plugin().id);
}

inline keel_tensor tensor_of(keel_buffer *buffer, const std::vector<int64_t> &shape,
                             keel_dtype dtype = KEEL_DTYPE_F32, uint64_t offset = 0) {
    keel_tensor t = {KEEL_HEADER(keel_tensor)};
    t.buffer = buffer;
    t.offset = offset;
    t.dtype = dtype;
    t.rank = static_cast<uint32_t>(shape.size());
    auto bytes =
        static_cast<int64_t>(keel_dtype_row_bytes(dtype, static_cast<uint64_t>(shape.back())));
    for (size_t i = shape.size(); i-- > 0;) {
        t.shape[i] = shape[i];
        if (i + 1 == shape.size()) continue;
        t.stride[i] = bytes;
        bytes *= shape[i];
    }
    return t;
}

// Computes value *= 2 for the first n numbers of a buffer.
inline keel_status doubles(conformance::Side &side, keel_buffer *buffer, int64_t n = 1) {
    const keel_tensor t = tensor_of(buffer, {n});
    keel_elementwise_args a = {KEEL_HEADER(keel_elementwise_args)};
    a.a = a.b = a.out = &t;
    return side.table().add(side.ctx(), &a);
}

inline keel_status plan_doubles(conformance::Side &side, keel_buffer *buffer) {
    const keel_tensor t = tensor_of(buffer, {1});
    keel_elementwise_args a = {KEEL_HEADER(keel_elementwise_args)};
    a.a = a.b = a.out = &t;
    keel_plan *plan = nullptr;
    const keel_status status = side.table().op_plan(
        side.ctx(), KEEL_OP_ADD, reinterpret_cast<const keel_op_args *>(&a), &plan);
    side.table().plan_destroy(side.ctx(), plan);
    return status;
}

// An open device with a buffer that holds one number, 1.
struct OneNumber {
    conformance::Side side;
    keel_buffer *buffer = nullptr;

    explicit OneNumber(const conformance::Library &library, const conformance::Params &params = {})
        : side(library, params) {
        const float one = 1;
        buffer = side.upload(&one, 4);
    }
    ~OneNumber() {
        fail("");
        side.destroy(buffer);
    }
    keel_status doubles() { return test::doubles(side, buffer); }
    keel_status read(float &value) {
        return side.table().buffer_read(side.ctx(), buffer, 0, &value, 4);
    }
    keel_status create(uint64_t bytes, keel_buffer **out) {
        keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
        desc.size = bytes;
        return side.table().buffer_create(side.ctx(), &desc, out);
    }
    // Checks that every call immediately reports a lost device.
    void check_lost() {
        float value = 0;
        uint64_t ticket = 0;
        keel_buffer *none = nullptr;
        CHECK(doubles() == KEEL_E_DEVICE_LOST);
        CHECK(read(value) == KEEL_E_DEVICE_LOST);
        CHECK(side.table().buffer_write(side.ctx(), buffer, 0, &value, 4) == KEEL_E_DEVICE_LOST);
        CHECK(side.table().flush(side.ctx(), &ticket) == KEEL_E_DEVICE_LOST);
        CHECK(side.table().wait(side.ctx(), 1) == KEEL_E_DEVICE_LOST);
        CHECK(side.table().poll(side.ctx(), 1) == KEEL_E_DEVICE_LOST);
        if (create(4096, &none) == KEEL_OK)
            side.destroy(none); // a lost device may still allocate memory
    }
};

// Checks that with each of these faults the driver has no device.
inline void check_no_devices(const conformance::Library &library,
                             const std::vector<std::string> &faults) {
    for (const std::string &fault : faults) {
        INFO(fault);
        fail(fault);
        CHECK(device_count(library) == 0);
    }
    fail("");
}

// Checks that with each of these faults a device does not open, and that the message contains
// `word`.
inline void check_does_not_open(const conformance::Library &library,
                                const std::vector<std::string> &faults, const std::string &word) {
    for (const std::string &fault : faults) {
        INFO(fault);
        fail(fault);
        try {
            const conformance::Side side(library, {});
            FAIL("it opened");
        } catch (const conformance::Unusable &unusable) {
            CHECK(unusable.why.find(word) != std::string::npos);
        }
    }
    fail("");
}

// Checks that an allocation that fails reports its size, and that the context can continue. `codes`
// are the results of the driver's function `call`.
inline void check_memory_refusals(OneNumber &rig, const std::string &call,
                                  const std::vector<std::string> &codes) {
    const uint64_t held = rig.side.bytes_held();
    keel_buffer *buffer = nullptr;
    for (const std::string &code : codes) {
        fail(call + " 1 " + code);
        CHECK(rig.create(100u << 20, &buffer) == KEEL_E_OUT_OF_MEMORY);
        CHECK(buffer == nullptr);
        CHECK(rig.side.error().find("104857600 bytes") != std::string::npos);
        CHECK(rig.side.bytes_held() == held);
    }
    REQUIRE(rig.create(100u << 20, &buffer) == KEEL_OK);
    rig.side.destroy(buffer);
    float value = 0;
    CHECK(rig.doubles() == KEEL_OK);
    CHECK(rig.read(value) == KEEL_OK);
    CHECK(value == 2);
}

// A cache with one head whose keys are also its values. It has `slots` slots in blocks of
// `block_slots`. All slots are in use and in order.
struct OneHeadCache {
    conformance::Side &side;
    keel_buffer *buffers[4];
    keel_tensor k, table, lengths, positions;
    keel_kv_view view = {KEEL_HEADER(keel_kv_view)};

    OneHeadCache(conformance::Side &on, const std::vector<float> &keys, int64_t dim,
                 int64_t block_slots)
        : side(on) {
        const auto slots = static_cast<int32_t>(keys.size() / static_cast<size_t>(dim));
        const int64_t blocks = slots / block_slots;
        std::vector<int32_t> numbers(static_cast<size_t>(slots));
        std::iota(numbers.begin(), numbers.end(), 0);
        buffers[0] = side.upload(keys.data(), 4 * keys.size());
        buffers[1] = side.upload(numbers.data(), 4 * static_cast<uint64_t>(blocks));
        buffers[2] = side.upload(&slots, 4);
        buffers[3] = side.upload(numbers.data(), 4 * numbers.size());
        k = tensor_of(buffers[0], {blocks, block_slots, dim});
        table = tensor_of(buffers[1], {1, blocks}, KEEL_DTYPE_I32);
        lengths = tensor_of(buffers[2], {1}, KEEL_DTYPE_I32);
        positions = tensor_of(buffers[3], {1, slots}, KEEL_DTYPE_I32);
        view.k = view.v = &k;
        view.block_table = &table;
        view.lengths = &lengths;
        view.positions = &positions;
        view.block_slots = static_cast<uint32_t>(block_slots);
        view.kv_heads = 1;
        view.max_length = slots;
    }
    ~OneHeadCache() {
        for (keel_buffer *buffer : buffers) side.destroy(buffer);
    }
    OneHeadCache(const OneHeadCache &) = delete;
    OneHeadCache &operator=(const OneHeadCache &) = delete;
};

} // namespace keel::test
