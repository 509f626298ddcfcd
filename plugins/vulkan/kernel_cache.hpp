// Kernels compiled for a device. SPIR-V is compiled at build time. A pipeline is made for each set
// of specialization constants when it is first used, which is at plan time. The driver's cache data
// is stored on disk.
#pragma once

#include "gpu/disk_cache.hpp"
#include "gpu/slow_start.hpp"
#include "vulkan/device.hpp"

#include <array>
#include <initializer_list>
#include <map>

namespace keel_vulkan {

// The kernels. CMakeLists.txt has the source file and the -D of each, in the same order.
#define KEEL_VULKAN_FOR_EACH_KERNEL(X)                                                             \
    X(linear_vec)                                                                                  \
    X(linear_tile)                                                                                 \
    X(linear_matrix)                                                                               \
    X(embed)                                                                                       \
    X(norm)                                                                                        \
    X(elementwise)                                                                                 \
    X(gate)                                                                                        \
    X(copy)                                                                                        \
    X(cast)                                                                                        \
    X(cast_blocks)                                                                                 \
    X(softmax)                                                                                     \
    X(argmax)                                                                                      \
    X(top_k)                                                                                       \
    X(rope)                                                                                        \
    X(kv_append)                                                                                   \
    X(kv_gather)                                                                                   \
    X(kv_rerotate)                                                                                 \
    X(attention)                                                                                   \
    X(attention_merge)                                                                             \
    X(attention_reduce)                                                                            \
    X(keys)                                                                                        \
    X(key_sum)                                                                                     \
    X(query_stats)

enum class Kernel : uint32_t {
#define KEEL_VULKAN_KERNEL(name) name,
    KEEL_VULKAN_FOR_EACH_KERNEL(KEEL_VULKAN_KERNEL)
#undef KEEL_VULKAN_KERNEL
        count
};

// The SPIR-V of a kernel in two forms: with subgroup sums, and with shared memory only (generated
// shaders.cpp).
struct Spirv {
    const char *name;
    const uint32_t *words;
    size_t bytes;
};
extern const Spirv kSubgroupKernels[], kSharedKernels[];

// The pipelines that an op looked up under a plan, so that its calls find them without a search.
// Plain data, stored in the plan.
struct KeptPipelines {
    static constexpr size_t kMostConstants = 11, kMost = 6;
    using Key = std::array<uint32_t, kMostConstants + 1>; // the kernel and its constants
    struct Row {
        Key key;
        VkPipeline pipeline;
    };
    std::array<Row, kMost> rows;
    size_t n = 0;
};

class KernelCache {
  public:
    KernelCache() = default;
    ~KernelCache();
    KernelCache(const KernelCache &) = delete;
    KernelCache &operator=(const KernelCache &) = delete;

    // `subgroups`: use the forms with subgroup sums. `cache_folder`: as in keel_gpu::DiskCache.
    void open(const keel_host *host, const Device *device, bool subgroups,
              std::string cache_folder);
    void close() noexcept; // writes the cache file if there is new data
    VkPipelineLayout layout() const { return layout_; }
    // Until the next call of keep_in(), get() first searches `kept` and stores there the pipelines
    // that it had to look up. NULL: nothing is stored.
    void keep_in(KeptPipelines *kept) { kept_ = kept; }
    // The pipeline whose specialization constants 0, 1, ... have these values. Constant 0 is the
    // workgroup's size.
    VkPipeline get(Kernel kernel, std::initializer_list<uint32_t> constants);
    keel_gpu::SlowStart &slow_start() { return slow_start_; }
    // Number of pipelines made so far.
    size_t count() const { return pipelines_.size(); }

  private:
    static constexpr size_t kMostConstants = KeptPipelines::kMostConstants;
    using Key = KeptPipelines::Key;

    VkPipeline find(const Key &key, Kernel kernel, std::initializer_list<uint32_t> constants);
    VkPipeline make(Kernel kernel, std::initializer_list<uint32_t> constants);

    const keel_host *host_ = nullptr;
    const Device *device_ = nullptr;
    bool subgroups_ = true, dirty_ = false;
    VkPipelineLayout layout_ = VK_NULL_HANDLE;
    VkPipelineCache cache_ = VK_NULL_HANDLE;
    keel_gpu::DiskCache disk_; // data of the driver's compiler
    std::array<VkShaderModule, static_cast<size_t>(Kernel::count)> modules_ = {};
    std::map<Key, VkPipeline> pipelines_;
    KeptPipelines *kept_ = nullptr;
    keel_gpu::SlowStart slow_start_;
};

} // namespace keel_vulkan
