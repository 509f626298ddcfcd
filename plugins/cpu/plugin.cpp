// The plugin descriptor, the table of entry points, and the list of extensions.
#include "cpu/ext/attention_dense.hpp"
#include "cpu/ext/batched_decode.hpp"
#include "cpu/ops/ops.hpp"

namespace {

using namespace keel_cpu;

// The list is the same on all architectures. So a config that names an instruction set of another
// architecture gets an error that lists the sets of this machine.
constexpr const char *isa_choices[] = {"auto", "scalar", "avx2",    "avx512", "vnni", "avx512bf16",
                                       "amx",  "neon",   "dotprod", "fp16",   "i8mm", nullptr};
constexpr const char *compute_choices[] = {"exact", "fast", nullptr};
constexpr const char *copy_choices[] = {"auto", "on", "off", nullptr};
constexpr const char *prefetch_choices[] = {"auto", "on", "off", nullptr};

constexpr keel_param_spec threads_param =
    KEEL_INT_PARAM("threads", "0", 0, 256, "Worker threads; 0: as many as this process may use.");
constexpr keel_param_spec isa_param =
    KEEL_CHOICE_PARAM("isa", "auto", isa_choices,
                      "Instruction set of the kernels; auto: the best that the machine has. A "
                      "forced one must be there.");
constexpr keel_param_spec compute_param = KEEL_CHOICE_PARAM(
    "compute", "fast", compute_choices,
    "exact: products in f32. fast: activations are rounded to 8 bits for products with "
    "quantized weights, and to 16 bits for f16 and bf16 where isa is fp16 or i8mm, where rows are "
    "long, and for prompts where it is avx512bf16 or amx (with amx for quantized weights, too); "
    "there attention is rounded to bf16 as well.");
constexpr keel_param_spec prefetch_param = KEEL_CHOICE_PARAM(
    "prefetch", "auto", prefetch_choices,
    "Whether weights are asked for 2 KiB before they are read; auto: on AMD's "
    "processors up to Zen 4 only rows of f32, f16 and bf16 that some tokens share, "
    "they read other streams faster alone. What is unpacked row by row "
    "(f32, f16 and bf16 of a prompt, all of compute: exact but few tokens of those "
    "three) is never asked for.");
constexpr keel_param_spec copy_param = KEEL_CHOICE_PARAM(
    "copy", "auto", copy_choices,
    "Whether f16 and bf16 weights are copied out of the mapped file into large pages, which are "
    "read faster; auto: those of 1 MiB and more, as long as an eighth of memory stays free.");
constexpr const keel_param_spec *params[] = {&threads_param, &isa_param, &compute_param,
                                             &prefetch_param, &copy_param};

constexpr keel_backend make_table() {
    keel_backend t{};
    t.h = KEEL_HEADER(keel_backend);
#define KEEL_CPU_ENTRY(slot) t.slot = slot;
    KEEL_FOR_EACH_ENTRY_POINT(KEEL_CPU_ENTRY)
#undef KEEL_CPU_ENTRY
    t.buffer_commit = buffer_commit;
    t.op_plan = op_plan;
    t.plan_destroy = plan_destroy;
    t.plan_info = plan_info;
#define KEEL_CPU_SLOT(ID, slot, args_type) t.slot = op_##slot;
    KEEL_FOR_EACH_OP(KEEL_CPU_SLOT)
#undef KEEL_CPU_SLOT
    return t;
}

constexpr keel_backend table = make_table();

const void *KEEL_CALL extension(const char *id) noexcept {
    if (keel_same(id, KEEL_EXT_BATCHED_DECODE) != 0) return &batched_decode;
    if (keel_same(id, KEEL_EXT_ATTENTION_DENSE) != 0) return &attention_dense;
    return nullptr;
}

constexpr keel_plugin make_plugin() {
    keel_plugin p = keel_common::backend_plugin(
        KEEL_CPU_PLUGIN_ID,
        "Runs on the processor: kernels for scalar, AVX2, AVX-512, AMX, "
        "and on ARM64 NEON, dotprod, fp16 and i8mm.",
        params, table);
    p.get_extension = extension;
    return p;
}

constexpr keel_plugin plugin = make_plugin();

} // namespace

KEEL_DEFINE_PLUGIN_QUERY(plugin)
