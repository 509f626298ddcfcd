#include "conformance/facts.hpp"

#include <cstring>
#include <functional>

namespace keel::conformance {

void check_slots(Facts &facts, const keel_backend &t) {
    facts.expect(t.device_count != nullptr && t.device_info != nullptr && t.ctx_create != nullptr &&
                     t.ctx_destroy != nullptr && t.buffer_create != nullptr &&
                     t.buffer_destroy != nullptr && t.buffer_write != nullptr &&
                     t.buffer_read != nullptr && t.flush != nullptr && t.wait != nullptr,
                 "a required slot is NULL");
    facts.expect((t.weight_prepare == nullptr) == (t.weight_destroy == nullptr) &&
                     (t.weight_prepare == nullptr) == (t.weight_info == nullptr),
                 "weight_prepare, weight_destroy and weight_info must be all NULL or all set");
    facts.expect((t.op_plan == nullptr) == (t.plan_destroy == nullptr) &&
                     (t.op_plan == nullptr) == (t.plan_info == nullptr),
                 "op_plan, plan_destroy and plan_info must be all NULL or all set");
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

namespace {

// The output struct of an older peer is shorter. The plugin must not write after its end.
template <typename Info>
void check_out_struct(Facts &facts, const char *name,
                      const std::function<keel_status(Info *)> &call) {
    for (const uint32_t size : {uint32_t{sizeof(keel_header)}, uint32_t{sizeof(keel_header) + 8},
                                uint32_t{sizeof(Info)}}) {
        std::vector<unsigned char> memory(sizeof(Info) + 64, 0xA5);
        std::memset(memory.data(), 0, size);
        keel_header header = {size, KEEL_ABI_VERSION};
        std::memcpy(memory.data(), &header, sizeof(header));
        const keel_status status = call(reinterpret_cast<Info *>(memory.data()));
        facts.expect(status == KEEL_OK, fmt::format("{}: status {} for an out-struct of {} bytes",
                                                    name, status, size));
        bool intact = true;
        for (size_t i = size; i < memory.size(); ++i) intact = intact && memory[i] == 0xA5;
        facts.expect(intact, fmt::format("{}: wrote after the end of an out-struct of {} bytes",
                                         name, size));
        std::memcpy(&header, memory.data(), sizeof(header));
        facts.expect(header.struct_size == size,
                     fmt::format("{}: changed the caller's struct_size", name));
    }
}

} // namespace

void check_out_structs(Facts &facts, Side &side) {
    const keel_backend &t = side.table();
    check_out_struct<keel_device_info>(facts, "device_info", [&](keel_device_info *out) {
        return t.device_info(side.host().table(), 0, out);
    });
    if (t.ctx_info != nullptr) {
        check_out_struct<keel_ctx_info>(
            facts, "ctx_info", [&](keel_ctx_info *out) { return t.ctx_info(side.ctx(), out); });
    }
    if (t.mem_info != nullptr) {
        check_out_struct<keel_mem_info>(
            facts, "mem_info", [&](keel_mem_info *out) { return t.mem_info(side.ctx(), out); });
    }
    const keel_ctx_info &info = side.info();
    facts.expect(std::memchr(info.description, 0, sizeof(info.description)) != nullptr,
                 "ctx_info.description has no NUL at its end");
    facts.expect((info.kv_block_slots & (info.kv_block_slots - 1)) == 0,
                 "ctx_info.kv_block_slots is not a power of two");
}

keel_status try_host(Facts &facts, const Library &library, const Params &params,
                     const keel_host *host, const std::string &what) {
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
         // A plugin may accept or refuse an older host. It must not read after the end of the
         // host's table.
         prefixes) {
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
                 "destroyed contexts did not free all memory of the host");
}

void check_devices(Facts &facts, const Library &library, const Params &params, Side &side) {
    const keel_backend &t = library.table();
    uint32_t n = 0;
    t.device_count(side.host().table(), &n);
    keel_device_info info = {};
    info.h = KEEL_HEADER(keel_device_info);
    facts.expect(t.device_info(side.host().table(), n, &info) != KEEL_OK,
                 "device_info returns OK for a device that does not exist");
    const test::ParamValues values(library.plugin(), params);
    keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), n, values.size(), values.data()};
    keel_ctx *ctx = nullptr;
    facts.expect(t.ctx_create(side.host().table(), &desc, &ctx) != KEEL_OK,
                 "ctx_create returns OK for a device that does not exist");
}

namespace {

// Calls create() with the description of an older peer, and with a description of another major
// version. The older description ends after `size` bytes, at the end of a page. The plugin may
// refuse it. If the plugin reads after the end of the description, the program crashes.
template <class Desc, class Create>
void check_description(Facts &facts, const char *name, const Desc &desc, uint32_t size,
                       const Create &create) {
    GuardedPage guard;
    auto *older = static_cast<Desc *>(guard.last(size));
    std::memcpy(static_cast<void *>(older), &desc, size);
    older->h.struct_size = size;
    create(older);
    Desc other = desc;
    other.h.abi_version = (KEEL_ABI_MAJOR + 1) << 16;
    facts.expect(create(&other) != KEEL_OK, fmt::format("a {} of another major is accepted", name));
    facts.expect(create(&desc) == KEEL_OK, fmt::format("a {} is refused", name));
}

} // namespace

void check_descriptions(Facts &facts, const Library &library, const Params &params, Side &side) {
    const keel_backend &t = library.table();
    const test::ParamValues values(library.plugin(), params);
    const keel_ctx_desc context = {KEEL_HEADER(keel_ctx_desc), 0, values.size(), values.data()};
    check_description(facts, "keel_ctx_desc", context, KEEL_PREFIX(keel_ctx_desc, device),
                      [&](const keel_ctx_desc *desc) {
                          keel_ctx *ctx = nullptr;
                          const keel_status status = t.ctx_create(side.host().table(), desc, &ctx);
                          if (status == KEEL_OK) t.ctx_destroy(ctx);
                          return status;
                      });
    keel_buffer_desc bytes = {};
    bytes.h = KEEL_HEADER(keel_buffer_desc);
    bytes.size = 256;
    check_description(facts, "keel_buffer_desc", bytes, KEEL_PREFIX(keel_buffer_desc, kind),
                      [&](const keel_buffer_desc *desc) {
                          keel_buffer *buffer = nullptr;
                          const keel_status status = t.buffer_create(side.ctx(), desc, &buffer);
                          if (status == KEEL_OK) t.buffer_destroy(side.ctx(), buffer);
                          return status;
                      });
    // the description of an older peer ends before the member `host`, which IMPORT needs
    GuardedPage guard;
    bytes.kind = KEEL_BUFFER_IMPORT;
    bytes.h.struct_size = KEEL_PREFIX(keel_buffer_desc, kind);
    void *import = guard.last(bytes.h.struct_size);
    std::memcpy(import, &bytes, bytes.h.struct_size);
    keel_buffer *nothing = nullptr;
    facts.expect(t.buffer_create(side.ctx(), static_cast<const keel_buffer_desc *>(import),
                                 &nothing) != KEEL_OK,
                 "an import from an older host that gives no memory is accepted");
    if (t.weight_prepare == nullptr) return;
    const std::vector<float> rows(4 * 32, 1.0F);
    keel_weight_source source = {};
    source.h = KEEL_HEADER(keel_weight_source);
    source.mapping = rows.data();
    source.mapping_bytes = 4 * rows.size();
    source.dtype = KEEL_DTYPE_F32;
    source.rows = 4;
    source.cols = 32;
    const keel_weight_source *sources[] = {&source};
    keel_weight_desc joined = {};
    joined.h = KEEL_HEADER(keel_weight_desc);
    joined.sources = sources;
    joined.n_sources = 1;
    joined.use = KEEL_USE_MATMUL;
    joined.max_m = 1;
    check_description(facts, "keel_weight_desc", joined, KEEL_PREFIX(keel_weight_desc, use),
                      [&](const keel_weight_desc *desc) {
                          keel_weight *weight = nullptr;
                          const keel_status status = t.weight_prepare(side.ctx(), desc, &weight);
                          if (status == KEEL_OK) t.weight_destroy(side.ctx(), weight);
                          return status == KEEL_E_UNSUPPORTED ? keel_status{KEEL_OK} : status;
                      });
}

} // namespace keel::conformance
