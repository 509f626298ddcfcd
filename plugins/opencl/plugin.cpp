// The plugin descriptor and the table of entry points.
#include "opencl/ops/ops.hpp"

#include "gpu/extensions.hpp"
#include "gpu/table.hpp"

namespace {

constexpr const char *kernels_choices[] = {"auto", "plain", "local", nullptr};
// any other value is the path of a folder
constexpr const char *cache_words[] = {"auto", "off", nullptr};
constexpr const char *memory_choices[] = {"auto", "staged", nullptr};

constexpr keel_param_spec kernels_param = KEEL_CHOICE_PARAM(
    "kernels", "auto", kernels_choices,
    "plain: a work-item does a row or tile alone, for processors. local: groups share "
    "tiles in local memory, for GPUs. auto: "
    "plain on processors, local on other devices that can run it.");
constexpr keel_param_spec memory_param =
    KEEL_CHOICE_PARAM("memory", "auto", memory_choices,
                      "auto: on unified memory weights are used where they are mapped and buffers "
                      "are shared with the host. "
                      "staged: everything is copied to the device.");
constexpr keel_param_spec cache_param = {
    KEEL_HEADER(keel_param_spec),
    "cache",
    "Folder for compiled programs; auto: $XDG_CACHE_HOME/keel/opencl or ~/.cache/keel/opencl; off: "
    "none.",
    KEEL_PARAM_PATH,
    0,
    0,
    0,
    "auto",
    cache_words};
constexpr keel_param_spec wait_param =
    KEEL_INT_PARAM("wait_seconds", "300", 1, 86400,
                   "Seconds without any progress after which the device counts as lost.");
constexpr const keel_param_spec *params[] = {&kernels_param, &memory_param, &cache_param,
                                             &wait_param};

constexpr keel_backend table = keel_gpu::make_table();

constexpr keel_plugin make_plugin() {
    keel_plugin p = keel_common::backend_plugin(
        "opencl", "Runs on any OpenCL 1.2 device: GPUs, and processors through PoCL.", params,
        table);
    p.caps = KEEL_CAP_OWN_THREADS; // drivers start their own threads
    p.get_extension = keel_gpu::extension;
    return p;
}

constexpr keel_plugin plugin = make_plugin();

} // namespace

KEEL_DEFINE_PLUGIN_QUERY(plugin)
