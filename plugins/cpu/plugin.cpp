// The descriptor and the table.
#include "ops.hpp"

namespace {

using namespace keel_cpu;

// The same everywhere, so that a config that names another architecture's is refused with what this machine has.
constexpr const char *isa_choices[] = {"auto",    "scalar", "avx2", "avx512", "neon",
                                       "dotprod", "fp16",   "i8mm", nullptr};
constexpr const char *compute_choices[] = {"exact", "fast", nullptr};

constexpr keel_param_spec threads_param =
    KEEL_INT_PARAM("threads", "0", 0, 256, "Worker threads; 0: as many as this process may use.");
constexpr keel_param_spec isa_param = KEEL_CHOICE_PARAM(
    "isa", "auto", isa_choices,
    "Instruction set of the kernels; auto: the best that the machine has. A forced one must be there.");
constexpr keel_param_spec compute_param =
    KEEL_CHOICE_PARAM("compute", "fast", compute_choices,
                      "exact: products in f32. fast: activations are rounded to 8 bits for products with "
                      "q8_0 and q4_0 weights.");
constexpr const keel_param_spec *params[] = {&threads_param, &isa_param, &compute_param};

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
    t.poll = wait; // all is done at once
    t.ctx_info = ctx_info;
    t.mem_info = mem_info;
    t.buffer_map = buffer_map;
    t.buffer_commit = buffer_commit;
    t.weight_prepare = weight_prepare;
    t.weight_destroy = weight_destroy;
    t.weight_info = weight_info;
    t.op_plan = op_plan;
    t.plan_destroy = plan_destroy;
    t.plan_info = plan_info;
#define KEEL_CPU_SLOT(ID, slot, args_type) t.slot = op_##slot;
    KEEL_FOR_EACH_OP(KEEL_CPU_SLOT)
#undef KEEL_CPU_SLOT
    return t;
}

constexpr keel_backend table = make_table();

#if defined(__SANITIZE_ADDRESS__)
constexpr keel_sanitizer sanitizer = KEEL_SANITIZER_ADDRESS;
#elif defined(__SANITIZE_THREAD__)
constexpr keel_sanitizer sanitizer = KEEL_SANITIZER_THREAD;
#else
constexpr keel_sanitizer sanitizer = KEEL_SANITIZER_NONE;
#endif

constexpr keel_plugin make_plugin() {
    keel_plugin p{};
    p.h = KEEL_HEADER(keel_plugin);
    p.min_host_abi = KEEL_ABI_VERSION;
    p.kind = KEEL_PLUGIN_BACKEND;
    p.id = KEEL_CPU_PLUGIN_ID;
    p.version = "0.1.0";
    p.vendor = "Keel";
    p.license = "MIT";
    p.doc = "Runs on the processor: kernels for scalar, AVX2 and AVX-512, chosen at run time.";
    p.build_info = __VERSION__;
    p.sanitizer = sanitizer;
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
