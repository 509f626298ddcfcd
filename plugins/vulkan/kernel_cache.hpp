// Kernels compiled for a device. The build compiles them to SPIR-V. A pipeline is made for each set
// of specialization constants when it is first needed, which is in op_plan. The driver's cache data
// is stored on disk.
#pragma once

#include "gpu/disk_cache.hpp"
#include "gpu/slow_start.hpp"
#include "vulkan/device.hpp"

#include <array>
#include <initializer_list>
#include <map>

namespace keel_vulkan {

// The list of kernels. CMakeLists.txt has the source file and the -D option of each kernel, in the
// same order.
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

// The SPIR-V of a kernel in two forms: with subgroup sums, and with shared memory only. The build
// generates shaders.cpp, which defines them.
struct Spirv {
    const char *name;
    const uint32_t *words;
    size_t bytes;
};
extern const Spirv kSubgroupKernels[], kSharedKernels[];

// The pipelines that an op has looked up. A plan stores them, so that its calls find them without a
// search. The struct has no pointers to free.
struct KeptPipelines {
    static constexpr size_t kMostConstants = 11, kMost = 6;
    // the kernel and its specialization constants
    using Key = std::array<uint32_t, kMostConstants + 1>;
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

    // If `subgroups` is true, the forms with subgroup sums are used. `cache_folder` is the folder
    // for keel_gpu::DiskCache.
    void open(const keel_host *host, const Device *device, bool subgroups,
              std::string cache_folder);
    void close() noexcept; // writes the cache file if there is new data
    VkPipelineLayout layout() const { return layout_; }
    // Until the next call of keep_in(), get() searches `kept` first. It also stores the pipelines
    // that it looked up in `kept`. If `kept` is NULL, nothing is stored.
    void keep_in(KeptPipelines *kept) { kept_ = kept; }
    // Returns the pipeline whose specialization constants 0, 1, ... have these values. Constant 0
    // is the size of the workgroup.
    VkPipeline get(Kernel kernel, std::initializer_list<uint32_t> constants);
    keel_gpu::SlowStart &slow_start() { return slow_start_; }
    // Number of pipelines that exist.
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
    keel_gpu::DiskCache disk_; // cache data of the driver's compiler
    std::array<VkShaderModule, static_cast<size_t>(Kernel::count)> modules_ = {};
    std::map<Key, VkPipeline> pipelines_;
    KeptPipelines *kept_ = nullptr;
    keel_gpu::SlowStart slow_start_;
};

} // namespace keel_vulkan
