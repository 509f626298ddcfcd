// The descriptor and the table.
#include "ops.hpp"

namespace {

using namespace keel_vulkan;

constexpr const char *reduce_choices[] = {"auto", "subgroup", "shared", nullptr};
constexpr const char *compute_choices[] = {"exact", "fast", nullptr};
constexpr const char *memory_choices[] = {"auto", "staged", nullptr};

constexpr keel_param_spec reduce_param =
    KEEL_CHOICE_PARAM("reduce", "auto", reduce_choices,
                      "How the invocations of a kernel add up: subgroup (where the device has it), shared: "
                      "through shared memory alone.");
constexpr keel_param_spec compute_param =
    KEEL_CHOICE_PARAM("compute", "exact", compute_choices,
                      "exact: products in f32. fast: matmuls of more than 16 rows round both sides to f16 "
                      "for cooperative matrices "
                      "(VK_NV_cooperative_matrix; not yet tried on a device).");
constexpr keel_param_spec memory_param = KEEL_CHOICE_PARAM(
    "memory", "auto", memory_choices,
    "auto: on unified memory the host writes and reads buffers in place. staged: everything is copied.");
constexpr keel_param_spec cache_param = KEEL_STRING_PARAM(
    "cache", "auto",
    "Folder for compiled pipelines; auto: $XDG_CACHE_HOME/keel/vulkan or ~/.cache/keel/vulkan; off: none.");
constexpr keel_param_spec validation_param = KEEL_BOOL_PARAM(
    "validation", "false",
    "Runs under VK_LAYER_KHRONOS_validation with synchronization validation; what it says fails the call.");
constexpr keel_param_spec wait_param = KEEL_INT_PARAM(
    "wait_seconds", "300", 1, 86400, "Seconds without an answer after which the device counts as lost.");
constexpr const keel_param_spec *params[] = {&compute_param, &reduce_param,     &memory_param,
                                             &cache_param,   &validation_param, &wait_param};

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
#define KEEL_VULKAN_SLOT(ID, slot, args_type) t.slot = op_call<args_type, plan_##slot, run_##slot>;
    KEEL_FOR_EACH_OP(KEEL_VULKAN_SLOT)
#undef KEEL_VULKAN_SLOT
    return t;
}

constexpr keel_backend table = make_table();

constexpr keel_plugin make_plugin() {
    keel_plugin p{};
    p.h = KEEL_HEADER(keel_plugin);
    p.min_host_abi = KEEL_ABI_VERSION;
    p.kind = KEEL_PLUGIN_BACKEND;
    p.id = "vulkan";
    p.version = "0.1.0";
    p.vendor = "Keel";
    p.license = "MIT";
    p.doc = "Runs on any device with Vulkan 1.2 compute: GPUs, and lavapipe on the processor.";
    p.build_info = __VERSION__;
    p.caps = KEEL_CAP_OWN_THREADS; // drivers start threads
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
