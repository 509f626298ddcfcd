#include "conformance/protocol.hpp"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <thread>

namespace keel::conformance {
namespace {

// Collects what went wrong; each fact that is looked at counts as a case.
class Facts {
  public:
    explicit Facts(int max_messages) : max_messages_(max_messages) {}

    void expect(bool fact, const std::string &message) {
        ++report_.cases;
        if (fact) return;
        ++report_.failures;
        if (static_cast<int>(report_.messages.size()) < max_messages_) report_.messages.push_back(message);
    }
    void take(const char *op, const Report &other) {
        report_.cases += other.cases;
        report_.failures += other.failures;
        for (const std::string &message : other.messages) {
            if (static_cast<int>(report_.messages.size()) < max_messages_)
                report_.messages.push_back(fmt::format("{}: {}", op, message));
        }
    }
    const Report &report() const { return report_; }

  private:
    Report report_;
    int max_messages_;
};

// One call of an op whose args and result are simple: out = a + b on n floats. True if the numbers are right.
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
    const keel_status status = side.table().add(side.ctx(), static_cast<const keel_elementwise_args *>(at));
    if (status == KEEL_OK) side.read(buffers[2], out.data(), bytes);
    for (keel_buffer *buffer : buffers)
        side.destroy(buffer);
    bool right = status == KEEL_OK;
    for (size_t i = 0; i < out.size(); ++i)
        right = right && out[i] == a[i] + b[i];
    return right;
}

void check_slots(Facts &facts, const keel_backend &t) {
    facts.expect(t.device_count != nullptr && t.device_info != nullptr && t.ctx_create != nullptr &&
                     t.ctx_destroy != nullptr && t.buffer_create != nullptr && t.buffer_destroy != nullptr &&
                     t.buffer_write != nullptr && t.buffer_read != nullptr && t.flush != nullptr &&
                     t.wait != nullptr,
                 "a required slot is NULL");
    facts.expect((t.weight_prepare == nullptr) == (t.weight_destroy == nullptr) &&
                     (t.weight_prepare == nullptr) == (t.weight_info == nullptr),
                 "of weight_prepare, weight_destroy and weight_info some are NULL and some are not");
    facts.expect((t.op_plan == nullptr) == (t.plan_destroy == nullptr) &&
                     (t.op_plan == nullptr) == (t.plan_info == nullptr),
                 "of op_plan, plan_destroy and plan_info some are NULL and some are not");
}

void check_plugin(Facts &facts, const keel_plugin &plugin) {
    facts.expect(plugin.id != nullptr && plugin.version != nullptr && plugin.license != nullptr &&
                     plugin.doc != nullptr,
                 "the descriptor lacks id, version, license or doc");
    for (uint32_t i = 0; i < plugin.n_params; ++i) {
        const keel_param_spec *spec = plugin.params[i];
        facts.expect(spec != nullptr && spec->key != nullptr && spec->doc != nullptr,
                     fmt::format("parameter {} lacks key or doc", i));
        facts.expect(spec->type != KEEL_PARAM_CHOICE || spec->choices != nullptr,
                     fmt::format("parameter {} lacks choices", spec->key));
    }
}

// An out-struct of an older peer is shorter: nothing may be written behind it.
template <typename Info>
void check_out_struct(Facts &facts, const char *name, const std::function<keel_status(Info *)> &call) {
    for (const uint32_t size :
         {uint32_t{sizeof(keel_header)}, uint32_t{sizeof(keel_header) + 8}, uint32_t{sizeof(Info)}}) {
        std::vector<unsigned char> memory(sizeof(Info) + 64, 0xA5);
        std::memset(memory.data(), 0, size);
        keel_header header = {size, KEEL_ABI_VERSION};
        std::memcpy(memory.data(), &header, sizeof(header));
        const keel_status status = call(reinterpret_cast<Info *>(memory.data()));
        facts.expect(status == KEEL_OK,
                     fmt::format("{}: status {} for an out-struct of {} bytes", name, status, size));
        bool intact = true;
        for (size_t i = size; i < memory.size(); ++i)
            intact = intact && memory[i] == 0xA5;
        facts.expect(intact, fmt::format("{}: wrote behind an out-struct of {} bytes", name, size));
        std::memcpy(&header, memory.data(), sizeof(header));
        facts.expect(header.struct_size == size, fmt::format("{}: changed the caller's struct_size", name));
    }
}

void check_out_structs(Facts &facts, Side &side) {
    const keel_backend &t = side.table();
    check_out_struct<keel_device_info>(facts, "device_info", [&](keel_device_info *out) {
        return t.device_info(side.host().table(), 0, out);
    });
    if (t.ctx_info != nullptr) {
        check_out_struct<keel_ctx_info>(facts, "ctx_info",
                                        [&](keel_ctx_info *out) { return t.ctx_info(side.ctx(), out); });
    }
    if (t.mem_info != nullptr) {
        check_out_struct<keel_mem_info>(facts, "mem_info",
                                        [&](keel_mem_info *out) { return t.mem_info(side.ctx(), out); });
    }
    const keel_ctx_info &info = side.info();
    facts.expect(std::memchr(info.description, 0, sizeof(info.description)) != nullptr,
                 "ctx_info.description has no NUL at its end");
    facts.expect((info.kv_block_slots & (info.kv_block_slots - 1)) == 0,
                 "ctx_info.kv_block_slots is no power of two");
}

// A context with the host that `host` points to. Status of ctx_create; on success the context is used once and destroyed.
keel_status try_host(Facts &facts, const Library &library, const Params &params, const keel_host *host,
                     const std::string &what) {
    const test::ParamValues values(library.plugin(), params);
    keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), 0, values.size(), values.data()};
    keel_ctx *ctx = nullptr;
    const keel_backend &t = library.table();
    const keel_status status = t.ctx_create(host, &desc, &ctx);
    if (status != KEEL_OK) return status;
    keel_buffer_desc buffer_desc = {};
    buffer_desc.h = KEEL_HEADER(keel_buffer_desc);
    buffer_desc.size = 256;
    keel_buffer *buffer = nullptr;
    uint64_t word = 42, back = 0;
    const bool works = t.buffer_create(ctx, &buffer_desc, &buffer) == KEEL_OK &&
                       t.buffer_write(ctx, buffer, 8, &word, 8) == KEEL_OK &&
                       t.buffer_read(ctx, buffer, 8, &back, 8) == KEEL_OK && back == word;
    facts.expect(works, what + ": the context does not work");
    t.buffer_destroy(ctx, buffer);
    t.ctx_destroy(ctx);
    return KEEL_OK;
}

void check_hosts(Facts &facts, const Library &library, const Params &params) {
    test::TestHost host;
    GuardedPage guard;
    const uint32_t prefixes[] = {sizeof(keel_header),
                                 KEEL_PREFIX(keel_host, host_data),
                                 KEEL_PREFIX(keel_host, log),
                                 KEEL_PREFIX(keel_host, set_error),
                                 KEEL_PREFIX(keel_host, alloc),
                                 KEEL_PREFIX(keel_host, free),
                                 KEEL_PREFIX(keel_host, worker_count),
                                 KEEL_PREFIX(keel_host, parallel_region),
                                 KEEL_PREFIX(keel_host, cancelled),
                                 sizeof(keel_host)};
    for (const uint32_t size :
         prefixes) { // older hosts: to work or to refuse are both fine, to read on is not
        auto *older = static_cast<keel_host *>(guard.last(size));
        std::memcpy(static_cast<void *>(older), host.table(), size);
        older->h.struct_size = size;
        const keel_status status =
            try_host(facts, library, params, older, fmt::format("a host of {} bytes", size));
        facts.expect(size < sizeof(keel_host) || status == KEEL_OK,
                     fmt::format("the host at the end of a page: status {}", status));
    }
    struct {
        keel_host host;
        unsigned char more[128];
    } newer;
    std::memset(&newer, 0xA5, sizeof(newer));
    std::memcpy(static_cast<void *>(&newer.host), host.table(), sizeof(keel_host));
    newer.host.h = {sizeof(newer), KEEL_ABI_VERSION + 1};
    facts.expect(try_host(facts, library, params, &newer.host, "a newer host") == KEEL_OK,
                 "a newer host of the same major is refused");
    newer.host.h.abi_version = (KEEL_ABI_MAJOR + 1) << 16;
    facts.expect(try_host(facts, library, params, &newer.host, "another major") != KEEL_OK,
                 "a host of another major is accepted");
    facts.expect(host.live_allocations() == 0,
                 "memory of the host's was not given back by contexts that are gone");
}

void check_devices(Facts &facts, const Library &library, const Params &params, Side &side) {
    const keel_backend &t = library.table();
    uint32_t n = 0;
    t.device_count(side.host().table(), &n);
    keel_device_info info = {};
    info.h = KEEL_HEADER(keel_device_info);
    facts.expect(t.device_info(side.host().table(), n, &info) != KEEL_OK,
                 "device_info of a device that is not there says OK");
    const test::ParamValues values(library.plugin(), params);
    keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), n, values.size(), values.data()};
    keel_ctx *ctx = nullptr;
    facts.expect(t.ctx_create(side.host().table(), &desc, &ctx) != KEEL_OK,
                 "ctx_create of a device that is not there says OK");
}

keel_status create(Side &side, uint64_t size, keel_buffer_kind kind, void *host, keel_buffer **out) {
    keel_buffer_desc desc = {};
    desc.h = KEEL_HEADER(keel_buffer_desc);
    desc.size = size;
    desc.kind = kind;
    desc.host = host;
    return side.table().buffer_create(side.ctx(), &desc, out);
}

void check_buffers(Facts &facts, Side &side) {
    const keel_backend &t = side.table();
    const uint64_t held = side.bytes_held();
    keel_buffer *buffer = nullptr;
    facts.expect(create(side, 0, KEEL_BUFFER_DEVICE, nullptr, &buffer) != KEEL_OK,
                 "a buffer of 0 bytes is made");
    facts.expect(create(side, 64, 0x7777, nullptr, &buffer) == KEEL_E_UNSUPPORTED,
                 "an unknown buffer kind is not UNSUPPORTED");
    facts.expect(create(side, uint64_t{1} << 62, KEEL_BUFFER_DEVICE, nullptr, &buffer) != KEEL_OK,
                 "a buffer of 2^62 bytes is made");
    facts.expect(create(side, UINT64_MAX, KEEL_BUFFER_DEVICE, nullptr, &buffer) != KEEL_OK,
                 "a buffer of 2^64-1 bytes is made");
    facts.expect(side.bytes_held() == held, "mem_info.ours changed though no buffer was made");
    t.buffer_destroy(side.ctx(), nullptr);
    if (t.weight_destroy != nullptr) t.weight_destroy(side.ctx(), nullptr);
    if (t.plan_destroy != nullptr) t.plan_destroy(side.ctx(), nullptr);

    for (const uint64_t size : {1, 63, 4096, 100003}) {
        facts.expect(create(side, size, KEEL_BUFFER_DEVICE, nullptr, &buffer) == KEEL_OK,
                     fmt::format("no buffer of {} bytes", size));
        std::vector<uint8_t> data(size), back(size);
        for (size_t i = 0; i < size; ++i)
            data[i] = static_cast<uint8_t>(i * 7 + 1);
        std::vector<uint8_t> source = data;
        t.buffer_write(side.ctx(), buffer, 0, source.data(), size);
        std::fill(source.begin(), source.end(), uint8_t{0}); // the write has taken its copy
        t.buffer_write(side.ctx(), buffer, size / 2, data.data(), size / 3);
        std::memcpy(data.data() + size / 2, std::vector<uint8_t>(data).data(), size / 3);
        const keel_status status = t.buffer_read(side.ctx(), buffer, 0, back.data(), size);
        facts.expect(status == KEEL_OK && back == data,
                     fmt::format("a buffer of {} bytes does not read back what was written", size));
        facts.expect(t.buffer_read(side.ctx(), buffer, size / 2, back.data(), size - size / 2) == KEEL_OK &&
                         std::memcmp(back.data(), data.data() + size / 2, size - size / 2) == 0,
                     "reading from the middle of a buffer gives something else");
        facts.expect(t.buffer_write(side.ctx(), buffer, size, nullptr, 0) == KEEL_OK,
                     "writing 0 bytes at the end fails");
        side.destroy(buffer);
    }
    facts.expect(side.bytes_held() == held, "mem_info.ours does not come back after buffers are destroyed");
}

void check_mapped(Facts &facts, Side &side) {
    const keel_backend &t = side.table();
    if (t.buffer_map == nullptr) return;
    keel_buffer *buffer = nullptr;
    if (create(side, 5000, KEEL_BUFFER_HOST_VISIBLE, nullptr, &buffer) == KEEL_OK) {
        void *at = nullptr, *again = nullptr;
        facts.expect(t.buffer_map(side.ctx(), buffer, &at) == KEEL_OK && at != nullptr,
                     "a HOST_VISIBLE buffer cannot be mapped");
        facts.expect(reinterpret_cast<uintptr_t>(at) % 64 == 0, "a mapped buffer is not aligned to 64 bytes");
        t.buffer_map(side.ctx(), buffer, &again);
        facts.expect(at == again, "a buffer maps to another address the second time");
        std::memset(at, 0x5A, 5000);
        std::vector<uint8_t> back(5000);
        t.buffer_read(side.ctx(), buffer, 0, back.data(), back.size());
        facts.expect(back == std::vector<uint8_t>(5000, 0x5A),
                     "what the host wrote into a mapped buffer does not read back");
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
        facts.expect(back == 99 && memory[8000] == 12, "an IMPORT buffer is not the memory that was given");
        side.destroy(buffer);
    }
    constexpr uint64_t reserve = uint64_t{64} << 20;
    if (t.buffer_commit != nullptr &&
        create(side, reserve, KEEL_BUFFER_RESERVE, nullptr, &buffer) == KEEL_OK) {
        constexpr uint64_t part = 1 << 16;
        std::vector<uint8_t> data(part, 0x33), back(part);
        for (const uint64_t offset : {uint64_t{0}, uint64_t{5} << 20, reserve - part}) {
            const bool works = t.buffer_commit(side.ctx(), buffer, offset, part, 1) == KEEL_OK &&
                               t.buffer_write(side.ctx(), buffer, offset, data.data(), part) == KEEL_OK &&
                               t.buffer_read(side.ctx(), buffer, offset, back.data(), part) == KEEL_OK &&
                               back == data;
            facts.expect(works, fmt::format("a committed range at {} does not hold data", offset));
            facts.expect(t.buffer_commit(side.ctx(), buffer, offset, part, 0) == KEEL_OK,
                         "giving back a range fails");
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
    facts.expect(second > first, "tickets do not rise");
    facts.expect(t.wait(side.ctx(), second + 1000) == KEEL_E_INVALID_ARG,
                 "waiting for a ticket never given is not INVALID_ARG");
    facts.expect(t.wait(side.ctx(), second) == KEEL_OK && t.wait(side.ctx(), first) == KEEL_OK,
                 "waiting for a given ticket fails");
    facts.expect(t.poll == nullptr || t.poll(side.ctx(), second) == KEEL_OK,
                 "poll of a ticket that was waited for is not OK");
    if (t.op_plan != nullptr) {
        keel_op_args args = {};
        args.h = KEEL_HEADER(keel_op_args);
        keel_plan *plan = nullptr;
        for (const keel_op op : {0U, uint32_t{last_op} + 1000U, 0x10001U}) {
            facts.expect(t.op_plan(side.ctx(), op, &args, &plan) == KEEL_E_UNSUPPORTED,
                         fmt::format("planning op {} is not UNSUPPORTED", op));
        }
    }
    if (t.add == nullptr || t.scale == nullptr) return;
    GuardedPage guard;
    facts.expect(adds(side, 100, sizeof(keel_elementwise_args), guard),
                 "add with args at the end of a page is wrong");
    facts.expect(adds(side, 100, KEEL_PREFIX(keel_elementwise_args, out), guard),
                 "add with args of an older peer is wrong");
    // a chain: each op needs the one before it, and writes come in between
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
    for (int i = 0; i < 20; ++i)
        t.add(side.ctx(), &twice);
    value = 3.0F;
    t.buffer_write(side.ctx(), buffer, 0, &value, 4);
    value = -7.0F;
    for (int i = 0; i < 10; ++i)
        t.add(side.ctx(), &twice);
    float result = 0;
    side.read(buffer, &result, 4);
    facts.expect(result == 3.0F * 1024,
                 fmt::format("queued ops and writes do not run in order: {} instead of 3072", result));
    side.destroy(buffer);
}

// Some cases of a few ops, on a pair of contexts.
void sample(Facts &facts, Side &subject, Side &oracle, Options options, uint64_t seed) {
    options.quick = true;
    options.every = 29;
    options.seed = seed;
    for (const keel_op op : {KEEL_OP_MATMUL, KEEL_OP_RMS_NORM, KEEL_OP_ATTENTION, KEEL_OP_KV_APPEND,
                             KEEL_OP_KV_GATHER, KEEL_OP_TOP_K_ROWS}) {
        if (!has_op(subject.table(), op)) continue;
        Suite suite(subject, oracle, options);
        cases_of(suite, op);
        facts.take(op_name(op), suite.report());
    }
}

void check_threads(Facts &facts, const Library &library, const Params &params, const Options &options) {
    const Library reference("reference");
    Facts first(options.max_messages), second(options.max_messages);
    std::string trouble;
    const auto work = [&](Facts &mine, uint64_t seed) {
        try {
            Side subject(library, params);
            Side oracle(reference, {});
            sample(mine, subject, oracle, options, seed);
        } catch (const Unusable &unusable) {
            mine.expect(false, unusable.why);
        }
    };
    std::thread other([&] { work(second, 22); });
    work(first, 11);
    other.join();
    facts.take("in one of two threads", first.report());
    facts.take("in the other of two threads", second.report());

    Side subject(library, params); // made here, used there: calls are serialized, the thread may change
    Side oracle(reference, {});
    std::thread elsewhere([&] { sample(facts, subject, oracle, options, 33); });
    elsewhere.join();
    sample(facts, subject, oracle, options, 44);
}

void check_leaks(Facts &facts, const Library &library, const Params &params, const Options &options) {
    const Library reference("reference");
    test::TestHost host;
    for (int i = 0; i < 20; ++i)
        try_host(facts, library, params, host.table(), "one of many contexts");
    facts.expect(host.live_allocations() == 0, "contexts leave memory of the host's behind");
    Side subject(library, params);
    Side oracle(reference, {});
    sample(facts, subject, oracle, options, 55); // scratch may be kept, so the first round does not count
    const uint64_t held = subject.bytes_held();
    const uint64_t live = subject.host().live_allocations();
    for (int i = 0; i < 3; ++i)
        sample(facts, subject, oracle, options, 55);
    facts.expect(
        subject.bytes_held() == held,
        fmt::format("mem_info.ours grows from {} to {} over equal work", held, subject.bytes_held()));
    facts.expect(subject.host().live_allocations() == live, "allocations of the host's grow over equal work");
}

} // namespace

Report check_protocol(const Library &library, const Params &params, const Options &options) {
    Facts facts(options.max_messages);
    check_plugin(facts, library.plugin());
    check_slots(facts, library.table());
    {
        Side side(library, params);
        check_devices(facts, library, params, side);
        check_out_structs(facts, side);
        check_buffers(facts, side);
        check_mapped(facts, side);
        check_stream(facts, side);
    }
    check_hosts(facts, library, params);
    check_threads(facts, library, params, options);
    check_leaks(facts, library, params, options);
    return facts.report();
}

} // namespace keel::conformance
