#include "conformance/side.hpp"

#include "reference/reference.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace keel::conformance {

Library::Library(const std::string &path) {
    if (path == "reference") {
        adopt(reference_plugin());
        return;
    }
    void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw Unusable{dlerror()};
    const auto query =
        reinterpret_cast<keel_plugin_query_fn>(dlsym(handle, KEEL_PLUGIN_QUERY_SYMBOL));
    if (query == nullptr) throw Unusable{path + ": no symbol " KEEL_PLUGIN_QUERY_SYMBOL};
    adopt(query(KEEL_ABI_VERSION));
}

Library::Library(const keel_plugin *plugin) { adopt(plugin); }

void Library::adopt(const keel_plugin *plugin) {
    if (keel_adopt(&plugin_, sizeof(plugin_), plugin, KEEL_PREFIX(keel_plugin, vtable)) !=
        KEEL_OK) {
        throw Unusable{"the plugin's descriptor is missing, too small or of another ABI version"};
    }
    if (plugin_.kind != KEEL_PLUGIN_BACKEND) throw Unusable{"the plugin is no backend"};
    if (keel_adopt(&table_, sizeof(table_), plugin_.vtable, KEEL_PREFIX(keel_backend, wait)) !=
        KEEL_OK) {
        throw Unusable{"the backend's table is missing, too small or of another ABI version"};
    }
}

Side::Side(const Library &library, const Params &params, uint32_t workers)
    : host_(workers), table_(library.table()) {
    uint32_t devices = 0;
    expect_ok(table_.device_count(host_.table(), &devices), "device_count");
    if (devices == 0) throw Unusable{"the backend finds no device", true};
    std::unique_ptr<test::ParamValues> values;
    try {
        values = std::make_unique<test::ParamValues>(library.plugin(), params);
    } catch (const std::string &why) {
        throw Unusable{why};
    }
    keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), 0, values->size(), values->data()};
    const keel_status status = table_.ctx_create(host_.table(), &desc, &ctx_);
    if (status == KEEL_E_UNSUPPORTED || status == KEEL_E_NOT_FOUND)
        throw Unusable{"not on this machine: " + error(), true};
    expect_ok(status, "ctx_create");
    keel_ctx_info info = {};
    info.h = KEEL_HEADER(keel_ctx_info);
    if (table_.ctx_info != nullptr) expect_ok(table_.ctx_info(ctx_, &info), "ctx_info");
    if (info.activation_dtype == KEEL_DTYPE_NONE) info.activation_dtype = KEEL_DTYPE_F32;
    info_ = info;
}

Side::~Side() {
    if (ctx_ != nullptr) table_.ctx_destroy(ctx_);
}

void Side::expect_ok(keel_status status, const char *what) {
    if (status == KEEL_OK) return;
    throw Unusable{std::string(what) + " returned status " + std::to_string(status) + ": " +
                   error()};
}

uint64_t Side::bytes_held() const {
    keel_mem_info info = {};
    info.h = KEEL_HEADER(keel_mem_info);
    if (table_.mem_info == nullptr || table_.mem_info(ctx_, &info) != KEEL_OK) return 0;
    return info.ours;
}

keel_buffer *Side::upload(const void *data, uint64_t bytes) {
    keel_buffer_desc desc = {};
    desc.h = KEEL_HEADER(keel_buffer_desc);
    desc.size = std::max<uint64_t>(bytes, 1);
    desc.kind = KEEL_BUFFER_DEVICE;
    keel_buffer *buffer = nullptr;
    expect_ok(table_.buffer_create(ctx_, &desc, &buffer), "buffer_create");
    write(buffer, data, bytes);
    return buffer;
}

void Side::write(keel_buffer *buffer, const void *data, uint64_t bytes) {
    expect_ok(table_.buffer_write(ctx_, buffer, 0, data, bytes), "buffer_write");
}

void Side::read(keel_buffer *buffer, void *data, uint64_t bytes) {
    expect_ok(table_.buffer_read(ctx_, buffer, 0, data, bytes), "buffer_read");
}

keel_status Side::finish() {
    uint64_t ticket = 0;
    const keel_status status = table_.flush(ctx_, &ticket);
    return status != KEEL_OK ? status : table_.wait(ctx_, ticket);
}

keel_status call_op(const keel_backend &table, keel_op op, keel_ctx *ctx, const void *args) {
    switch (op) {
#define KEEL_CASE(ID, slot, type)                                                                  \
    case KEEL_OP_##ID:                                                                             \
        return table.slot == nullptr ? KEEL_E_UNSUPPORTED                                          \
                                     : table.slot(ctx, static_cast<const type *>(args));
        KEEL_FOR_EACH_OP(KEEL_CASE)
#undef KEEL_CASE
    default: return KEEL_E_UNSUPPORTED;
    }
}

bool has_op(const keel_backend &table, keel_op op) {
    switch (op) {
#define KEEL_CASE(ID, slot, type)                                                                  \
    case KEEL_OP_##ID: return table.slot != nullptr;
        KEEL_FOR_EACH_OP(KEEL_CASE)
#undef KEEL_CASE
    default: return false;
    }
}

const char *op_name(keel_op op) {
    switch (op) {
#define KEEL_CASE(ID, slot, type)                                                                  \
    case KEEL_OP_##ID: return #slot;
        KEEL_FOR_EACH_OP(KEEL_CASE)
#undef KEEL_CASE
    default: return "?";
    }
}

keel_op op_named(const std::string &name) {
    for (keel_op op = 1; op <= last_op; ++op) {
        if (name == op_name(op)) return op;
    }
    return 0;
}

} // namespace keel::conformance
