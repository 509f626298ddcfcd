// The plugin descriptor and the table of entry points.
#include "vulkan/ops/ops.hpp"

#include "gpu/extensions.hpp"
#include "gpu/table.hpp"

namespace {

constexpr const char *reduce_choices[] = {"auto", "subgroup", "shared", nullptr};
constexpr const char *compute_choices[] = {"exact", "fast", nullptr};
// any other value is the path of a folder
constexpr const char *cache_words[] = {"auto", "off", nullptr};
constexpr const char *memory_choices[] = {"auto", "staged", nullptr};
constexpr const char *read_later_choices[] = {"auto", "on", "off", nullptr};

constexpr keel_param_spec reduce_param = KEEL_CHOICE_PARAM(
    "reduce", "auto", reduce_choices,
    "How the invocations of a kernel add up: subgroup (where the device has it), shared: "
    "through shared memory alone.");
constexpr keel_param_spec compute_param = KEEL_CHOICE_PARAM(
    "compute", "exact", compute_choices,
    "exact: products in f32. fast: matmuls of more than 16 rows round both sides to f16 "
    "for cooperative matrices (VK_NV_cooperative_matrix).");
constexpr keel_param_spec memory_param =
    KEEL_CHOICE_PARAM("memory", "auto", memory_choices,
                      "auto: on unified memory the host writes and reads buffers in place. staged: "
                      "everything is copied.");
constexpr keel_param_spec cache_param = {
    KEEL_HEADER(keel_param_spec),
    "cache",
    "Folder for compiled pipelines; auto: $XDG_CACHE_HOME/keel/vulkan or ~/.cache/keel/vulkan; "
    "off: none.",
    KEEL_PARAM_PATH,
    0,
    0,
    0,
    "auto",
    cache_words};
constexpr keel_param_spec validation_param =
    KEEL_BOOL_PARAM("validation", "false",
                    "Runs under VK_LAYER_KHRONOS_validation with synchronization validation; what "
                    "it says fails the call.");
constexpr keel_param_spec wait_param =
    KEEL_INT_PARAM("wait_seconds", "300", 1, 86400,
                   "Seconds without an answer after which the device counts as lost.");
constexpr keel_param_spec read_later_param =
    KEEL_CHOICE_PARAM("read_later", "auto", read_later_choices,
                      "Whether greedy steps may be queued before their token is read "
                      "(keel.read_later/1); auto: on all devices "
                      "but processors, where it was measured to be slower.");
constexpr const keel_param_spec *params[] = {&read_later_param, &compute_param, &reduce_param,
                                             &memory_param,     &cache_param,   &validation_param,
                                             &wait_param};

constexpr keel_backend table = keel_gpu::make_table();

constexpr keel_plugin make_plugin() {
    keel_plugin p = keel_common::backend_plugin(
        "vulkan",
        "Runs on any device with Vulkan 1.2 compute: GPUs, and lavapipe on the processor.", params,
        table);
    p.caps = KEEL_CAP_OWN_THREADS; // drivers start their own threads
    p.get_extension = keel_gpu::extension;
    return p;
}

constexpr keel_plugin plugin = make_plugin();

} // namespace

KEEL_DEFINE_PLUGIN_QUERY(plugin)
