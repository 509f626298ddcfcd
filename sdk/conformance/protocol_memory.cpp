#include "conformance/facts.hpp"

#include <cstring>

namespace keel::conformance {

namespace {

// Calls an op once with simple args: out = a + b on n floats. Returns true if the result is right.
bool adds(Side &side, int64_t n, uint32_t args_size, GuardedPage &guard) {
    std::vector<float> a(static_cast<size_t>(n)), b(a.size()), out(a.size(), -1.0F);
    for (size_t i = 0; i < a.size(); ++i) {
        a[i] = static_cast<float>(i);
        b[i] = 0.5F;
    }
    const uint64_t bytes = 4 * static_cast<uint64_t>(n);
    keel_buffer *buffers[] = {side.upload(a.data(), bytes), side.upload(b.data(), bytes),
                              side.upload(out.data(), bytes)};
    keel_tensor tensors[3] = {};
    for (int i = 0; i < 3; ++i) {
        tensors[i].h = KEEL_HEADER(keel_tensor);
        tensors[i].buffer = buffers[i];
        tensors[i].dtype = KEEL_DTYPE_F32;
        tensors[i].rank = 1;
        tensors[i].shape[0] = n;
    }
    keel_elementwise_args args = {};
    args.h = {args_size, KEEL_ABI_VERSION};
    args.a = &tensors[0];
    args.b = &tensors[1];
    args.out = &tensors[2];
    void *at = guard.last(args_size);
    std::memcpy(at, &args, args_size);
    const keel_status status =
        side.table().add(side.ctx(), static_cast<const keel_elementwise_args *>(at));
    if (status == KEEL_OK) side.read(buffers[2], out.data(), bytes);
    for (keel_buffer *buffer : buffers) side.destroy(buffer);
    bool right = status == KEEL_OK;
    for (size_t i = 0; i < out.size(); ++i) right = right && out[i] == a[i] + b[i];
    return right;
}

keel_status create(Side &side, uint64_t size, keel_buffer_kind kind, void *host,
                   keel_buffer **out) {
    keel_buffer_desc desc = {};
    desc.h = KEEL_HEADER(keel_buffer_desc);
    desc.size = size;
    desc.kind = kind;
    desc.host = host;
    return side.table().buffer_create(side.ctx(), &desc, out);
}

} // namespace

void check_buffers(Facts &facts, Side &side) {
    const keel_backend &t = side.table();
    const uint64_t held = side.bytes_held();
    keel_buffer *buffer = nullptr;
    facts.expect(create(side, 64, 0x7777, nullptr, &buffer) == KEEL_E_UNSUPPORTED,
                 "buffer_create must return UNSUPPORTED for an unknown buffer kind");
    facts.expect(create(side, uint64_t{1} << 62, KEEL_BUFFER_DEVICE, nullptr, &buffer) != KEEL_OK,
                 "buffer_create accepts a buffer of 2^62 bytes");
    facts.expect(create(side, UINT64_MAX, KEEL_BUFFER_DEVICE, nullptr, &buffer) != KEEL_OK,
                 "buffer_create accepts a buffer of 2^64-1 bytes");
    facts.expect(side.bytes_held() == held, "mem_info.ours changed although no buffer was created");
    t.buffer_destroy(side.ctx(), nullptr);
    if (t.weight_destroy != nullptr) t.weight_destroy(side.ctx(), nullptr);
    if (t.plan_destroy != nullptr) t.plan_destroy(side.ctx(), nullptr);

    for (const uint64_t size : {1, 63, 4096, 100003}) {
        facts.expect(create(side, size, KEEL_BUFFER_DEVICE, nullptr, &buffer) == KEEL_OK,
                     fmt::format("buffer_create fails for a buffer of {} bytes", size));
        std::vector<uint8_t> data(size), back(size);
        for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(i * 7 + 1);
        std::vector<uint8_t> source = data;
        t.buffer_write(side.ctx(), buffer, 0, source.data(), size);
        // buffer_write must have copied the source before it returned
        std::fill(source.begin(), source.end(), uint8_t{0});
        t.buffer_write(side.ctx(), buffer, size / 2, data.data(), size / 3);
        std::memcpy(data.data() + size / 2, std::vector<uint8_t>(data).data(), size / 3);
        const keel_status status = t.buffer_read(side.ctx(), buffer, 0, back.data(), size);
        facts.expect(
            status == KEEL_OK && back == data,
            fmt::format("a buffer of {} bytes does not return the bytes that were written", size));
        facts.expect(t.buffer_read(side.ctx(), buffer, size / 2, back.data(), size - size / 2) ==
                             KEEL_OK &&
                         std::memcmp(back.data(), data.data() + size / 2, size - size / 2) == 0,
                     "a read from the middle of a buffer returns wrong bytes");
        facts.expect(t.buffer_write(side.ctx(), buffer, size, nullptr, 0) == KEEL_OK,
                     "a write of 0 bytes at the end of a buffer fails");
        side.destroy(buffer);
    }
    facts.expect(side.bytes_held() == held,
                 "mem_info.ours does not return to the earlier value after buffers are destroyed");
}

void check_mapped(Facts &facts, Side &side) {
    const keel_backend &t = side.table();
    if (t.buffer_map == nullptr) return;
    keel_buffer *buffer = nullptr;
    if (create(side, 5000, KEEL_BUFFER_HOST_VISIBLE, nullptr, &buffer) == KEEL_OK) {
        void *at = nullptr, *again = nullptr;
        facts.expect(t.buffer_map(side.ctx(), buffer, &at) == KEEL_OK && at != nullptr,
                     "a HOST_VISIBLE buffer cannot be mapped");
        facts.expect(reinterpret_cast<uintptr_t>(at) % 64 == 0,
                     "a mapped buffer is not aligned to 64 bytes");
        t.buffer_map(side.ctx(), buffer, &again);
        facts.expect(at == again, "a second map of a buffer returns another address");
        std::memset(at, 0x5A, 5000);
        std::vector<uint8_t> back(5000);
        t.buffer_read(side.ctx(), buffer, 0, back.data(), back.size());
        facts.expect(back == std::vector<uint8_t>(5000, 0x5A),
                     "bytes that the host wrote into a mapped buffer are not read back");
        side.destroy(buffer);
    }
    alignas(4096) static thread_local uint8_t memory[8192];
    if (create(side, sizeof(memory), KEEL_BUFFER_IMPORT, memory, &buffer) == KEEL_OK) {
        memory[77] = 99;
        uint8_t back = 0;
        t.buffer_read(side.ctx(), buffer, 77, &back, 1);
        const uint8_t word = 12;
        t.buffer_write(side.ctx(), buffer, 8000, &word, 1);
        side.finish();
        facts.expect(back == 99 && memory[8000] == 12,
                     "an IMPORT buffer is not the memory that was given");
        side.destroy(buffer);
    }
    constexpr uint64_t reserve = uint64_t{64} << 20;
    if (t.buffer_commit != nullptr &&
        create(side, reserve, KEEL_BUFFER_RESERVE, nullptr, &buffer) == KEEL_OK) {
        constexpr uint64_t part = 1 << 16;
        std::vector<uint8_t> data(part, 0x33), back(part);
        for (const uint64_t offset : {uint64_t{0}, uint64_t{5} << 20, reserve - part}) {
            const bool works =
                t.buffer_commit(side.ctx(), buffer, offset, part, 1) == KEEL_OK &&
                t.buffer_write(side.ctx(), buffer, offset, data.data(), part) == KEEL_OK &&
                t.buffer_read(side.ctx(), buffer, offset, back.data(), part) == KEEL_OK &&
                back == data;
            facts.expect(works, fmt::format("a committed range at {} does not hold data", offset));
            facts.expect(t.buffer_commit(side.ctx(), buffer, offset, part, 0) == KEEL_OK,
                         "releasing a committed range fails");
            facts.expect(t.buffer_commit(side.ctx(), buffer, offset, part, 1) == KEEL_OK,
                         "a range cannot be committed again");
        }
        side.destroy(buffer);
    }
}

void check_stream(Facts &facts, Side &side) {
    const keel_backend &t = side.table();
    uint64_t first = 0, second = 0;
    facts.expect(t.flush(side.ctx(), &first) == KEEL_OK && t.flush(side.ctx(), &second) == KEEL_OK,
                 "flush fails");
    facts.expect(second > first, "flush must return rising tickets");
    facts.expect(t.wait(side.ctx(), second + 1000) == KEEL_E_INVALID_ARG,
                 "wait must return INVALID_ARG for a ticket that flush did not return");
    facts.expect(t.wait(side.ctx(), second) == KEEL_OK && t.wait(side.ctx(), first) == KEEL_OK,
                 "wait fails for a ticket that flush returned");
    facts.expect(t.poll == nullptr || t.poll(side.ctx(), second) == KEEL_OK,
                 "poll must return OK for a ticket after wait");
    if (t.op_plan != nullptr) {
        keel_op_args args = {};
        args.h = KEEL_HEADER(keel_op_args);
        keel_plan *plan = nullptr;
        for (const keel_op op : {0U, uint32_t{last_op} + 1000U, 0x10001U}) {
            facts.expect(t.op_plan(side.ctx(), op, &args, &plan) == KEEL_E_UNSUPPORTED,
                         fmt::format("op_plan must return UNSUPPORTED for op {}", op));
        }
    }
    if (t.add == nullptr || t.scale == nullptr) return;
    GuardedPage guard;
    facts.expect(adds(side, 100, sizeof(keel_elementwise_args), guard),
                 "add with args at the end of a page is wrong");
    facts.expect(adds(side, 100, KEEL_PREFIX(keel_elementwise_args, out), guard),
                 "add with args of an older peer is wrong");
    // Tests a chain of ops with writes in between. Each op needs the result of the previous op.
    float value = 1.0F;
    keel_buffer *buffer = side.upload(&value, 4);
    keel_tensor x = {};
    x.h = KEEL_HEADER(keel_tensor);
    x.buffer = buffer;
    x.dtype = KEEL_DTYPE_F32;
    x.rank = 1;
    x.shape[0] = 1;
    keel_elementwise_args twice = {};
    twice.h = KEEL_HEADER(keel_elementwise_args);
    twice.a = twice.b = twice.out = &x;
    for (int i = 0; i < 20; ++i) t.add(side.ctx(), &twice);
    value = 3.0F;
    t.buffer_write(side.ctx(), buffer, 0, &value, 4);
    value = -7.0F;
    for (int i = 0; i < 10; ++i) t.add(side.ctx(), &twice);
    float result = 0;
    side.read(buffer, &result, 4);
    facts.expect(
        result == 3.0F * 1024,
        fmt::format("queued ops and writes do not run in order: {} instead of 3072", result));
    side.destroy(buffer);
}

} // namespace keel::conformance
