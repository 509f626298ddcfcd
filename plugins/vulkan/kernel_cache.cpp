#include "vulkan/kernel_cache.hpp"

#include "gpu/report.hpp"

#include <stdio.h>

namespace keel_vulkan {

namespace {

keel_gpu::DiskCache::Key key_of(const DeviceFacts &facts) {
    char ids[64];
    snprintf(ids, sizeof ids, "%x %x %x", facts.properties.vendorID, facts.properties.deviceID,
             facts.properties.driverVersion);
    return keel_gpu::DiskCache::key(
        {ids, {reinterpret_cast<const char *>(facts.pipeline_uuid), VK_UUID_SIZE}});
}

} // namespace

KernelCache::~KernelCache() { close(); }

void KernelCache::open(const keel_host *host, const Device *device, bool subgroups,
                       std::string cache_folder) {
    host_ = host;
    device_ = device;
    subgroups_ = subgroups;
    // Kernels need no descriptors, because they access all memory by address.
    const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 128};
    VkPipelineLayoutCreateInfo layout = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &push;
    check(host, vkCreatePipelineLayout(device->handle(), &layout, nullptr, &layout_),
          "vkCreatePipelineLayout");
    disk_ = keel_gpu::DiskCache(std::move(cache_folder));
    VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    const std::vector<uint8_t> data = disk_.load(key_of(device->facts()));
    info.initialDataSize = data.size();
    info.pInitialData = data.data();
    if (vkCreatePipelineCache(device->handle(), &info, nullptr, &cache_) == VK_SUCCESS) return;
    info.initialDataSize = 0; // the driver did not accept the cached data
    check(host, vkCreatePipelineCache(device->handle(), &info, nullptr, &cache_),
          "vkCreatePipelineCache");
}

void KernelCache::close() noexcept {
    if (device_ == nullptr) return;
    const VkDevice device = device_->handle();
    if (dirty_ && disk_.is_on()) {
        try {
            size_t n = 0;
            if (vkGetPipelineCacheData(device, cache_, &n, nullptr) == VK_SUCCESS) {
                std::vector<uint8_t> data(n);
                if (vkGetPipelineCacheData(device, cache_, &n, data.data()) == VK_SUCCESS) {
                    data.resize(n);
                    // some drivers cache pipelines themselves and always return the same few bytes
                    // here
                    if (data != disk_.load(key_of(device_->facts())))
                        disk_.store(key_of(device_->facts()), data);
                }
            }
        } catch (...) { // if there is no memory, nothing is cached
        }
    }
    for (const auto &entry : pipelines_) vkDestroyPipeline(device, entry.second, nullptr);
    pipelines_.clear();
    for (VkShaderModule &module : modules_) {
        vkDestroyShaderModule(device, module, nullptr);
        module = VK_NULL_HANDLE;
    }
    vkDestroyPipelineCache(device, cache_, nullptr);
    vkDestroyPipelineLayout(device, layout_, nullptr);
    device_ = nullptr;
}

VkPipeline KernelCache::get(Kernel kernel, std::initializer_list<uint32_t> constants) {
    Key key = {static_cast<uint32_t>(kernel)};
    size_t i = 1;
    for (const uint32_t value : constants) key[i++] = value;
    if (kept_ == nullptr) return find(key, kernel, constants);
    for (size_t row = 0; row < kept_->n; ++row)
        if (kept_->rows[row].key == key) return kept_->rows[row].pipeline;
    const VkPipeline pipeline = find(key, kernel, constants);
    if (kept_->n < KeptPipelines::kMost) kept_->rows[kept_->n++] = {key, pipeline};
    return pipeline;
}

VkPipeline KernelCache::find(const Key &key, Kernel kernel,
                             std::initializer_list<uint32_t> constants) {
    const auto found = pipelines_.find(key);
    if (found != pipelines_.end()) return found->second;
    VkPipeline &place =
        // The map entry is inserted before the pipeline is made. If there is no memory for the
        // entry, no pipeline is leaked.
        pipelines_[key];
    try {
        place = make(kernel, constants);
    } catch (...) {
        pipelines_.erase(key);
        throw;
    }
    return place;
}

VkPipeline KernelCache::make(Kernel kernel, std::initializer_list<uint32_t> constants) {
    slow_start_.kernel_made();
    const keel_gpu::DriverTime time(slow_start_, host_, device_->facts().properties.deviceName);
    const auto index = static_cast<size_t>(kernel);
    const Spirv &spirv = (subgroups_ ? kSubgroupKernels : kSharedKernels)[index];
    VkShaderModule &module = modules_[index];
    char what[64];
    snprintf(what, sizeof what, "kernel %s", spirv.name);
    if (module == VK_NULL_HANDLE) {
        VkShaderModuleCreateInfo info = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
        info.codeSize = spirv.bytes;
        info.pCode = spirv.words;
        check(host_, vkCreateShaderModule(device_->handle(), &info, nullptr, &module), what);
    }
    std::array<VkSpecializationMapEntry, kMostConstants> entries;
    uint32_t n = 0;
    for (; n < constants.size(); ++n) entries[n] = {n, n * 4, 4};
    const VkSpecializationInfo special = {n, entries.data(), n * 4, constants.begin()};
    VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
    info.stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  nullptr,
                  0,
                  VK_SHADER_STAGE_COMPUTE_BIT,
                  module,
                  "main",
                  &special};
    info.layout = layout_;
    VkPipeline pipeline = VK_NULL_HANDLE;
    check(host_, vkCreateComputePipelines(device_->handle(), cache_, 1, &info, nullptr, &pipeline),
          what);
    dirty_ = true;
    return pipeline;
}

} // namespace keel_vulkan
