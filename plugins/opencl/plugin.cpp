// The descriptor and the table.
#include "ops.hpp"

namespace {

using namespace keel_opencl;

constexpr const char *kernels_choices[] = {"auto", "plain", "local", nullptr};
constexpr const char *memory_choices[] = {"auto", "staged", nullptr};

constexpr keel_param_spec kernels_param =
    KEEL_CHOICE_PARAM("kernels", "auto", kernels_choices,
                      "plain: a work-item does a row or tile alone, for processors. local: groups share "
                      "tiles in local memory, for GPUs. auto: "
                      "measured at first use and remembered in the cache folder.");
constexpr keel_param_spec memory_param = KEEL_CHOICE_PARAM(
    "memory", "auto", memory_choices,
    "auto: on unified memory weights are used where they are mapped and buffers are shared with the host. "
    "staged: everything is copied to the device.");
constexpr keel_param_spec cache_param = KEEL_STRING_PARAM(
    "cache", "auto",
    "Folder for compiled programs; auto: $XDG_CACHE_HOME/keel/opencl or ~/.cache/keel/opencl; off: none.");
constexpr const keel_param_spec *params[] = {&kernels_param, &memory_param, &cache_param};

constexpr keel_backend make_table() {
    keel_backend t{};
    t.h = KEEL_HEADER(keel_backend);
    t.device_count = device_count;
    t.device_info = device_info;
    t.ctx_create = ctx_create;
    t.ctx_destroy = ctx_destroy;
    t.buffer_create = buffer_create;
    t.buffer_destroy = buffer_destroy;
    t.buffer_write = buffer_write;
    t.buffer_read = buffer_read;
    t.flush = flush;
    t.wait = wait;
    t.poll = poll;
    t.ctx_info = ctx_info;
    t.mem_info = mem_info;
    t.buffer_map = buffer_map;
    t.weight_prepare = weight_prepare;
    t.weight_destroy = weight_destroy;
    t.weight_info = weight_info;
    t.op_plan = op_plan;
    t.plan_destroy = plan_destroy;
    t.plan_info = plan_info;
#define KEEL_OPENCL_SLOT(ID, slot, args_type) t.slot = op_call<args_type, plan_##slot, run_##slot>;
    KEEL_FOR_EACH_OP(KEEL_OPENCL_SLOT)
#undef KEEL_OPENCL_SLOT
    return t;
}

constexpr keel_backend table = make_table();

constexpr keel_plugin make_plugin() {
    keel_plugin p{};
    p.h = KEEL_HEADER(keel_plugin);
    p.min_host_abi = KEEL_ABI_VERSION;
    p.kind = KEEL_PLUGIN_BACKEND;
    p.id = "opencl";
    p.version = "0.1.0";
    p.vendor = "Keel";
    p.license = "MIT";
    p.doc = "Runs on any OpenCL 1.2 device: GPUs, and processors through PoCL.";
    p.build_info = __VERSION__;
    p.caps = KEEL_CAP_OWN_THREADS;
    p.sanitizer = KEEL_SANITIZER_HERE;
    p.n_params = sizeof params / sizeof params[0];
    p.params = params;
    p.vtable = &table;
    return p;
}

constexpr keel_plugin plugin = make_plugin();

} // namespace

extern "C" KEEL_EXPORT const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    return host_abi_version >> 16 == KEEL_ABI_MAJOR ? &plugin : nullptr;
}
