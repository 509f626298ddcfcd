// A Vulkan layer that makes calls of the driver fail. support/driver_faults.hpp describes how a
// test sets the faults. Special cases:
//   If vkEnumeratePhysicalDevices fails with VK_SUCCESS, it finds no device.
//   After VK_ERROR_DEVICE_LOST, every call that can return this code returns it.
//   If vkWaitSemaphores fails with VK_TIMEOUT, the values of the semaphores also stay the same, as
//   for a device that never answers.
//   If vkWaitSemaphores fails with VK_NOT_READY, the device becomes slow: from then on, each call
//   sees at most one more submission as done.
//   KEEL_DRIVER_LIMIT=N: maxMemoryAllocationSize is N.
#include "support/driver_faults.hpp"

#include <cstring>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define KEEL_LAYER_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

keel::test::DriverFaults &faults() {
    static keel::test::DriverFaults one;
    return one;
}
bool lost = false; // of the only device that is open

// Functions of the next layer. They are looked up when the instance is made, because the loader
// later returns the functions of the first layer.
struct Instance {
    PFN_vkGetInstanceProcAddr get = nullptr;
    VkInstance handle = VK_NULL_HANDLE;
    PFN_vkEnumeratePhysicalDevices devices = nullptr;
    PFN_vkGetPhysicalDeviceProperties2 properties = nullptr;
    PFN_vkCreateDevice create_device = nullptr;
} instance;
struct Device {
    PFN_vkGetDeviceProcAddr get = nullptr;
    VkDevice handle = VK_NULL_HANDLE;
} device;

template <class Function> Function next(const char *name) {
    return reinterpret_cast<Function>(device.get(device.handle, name));
}

// Returns true if this call fails. `result` is its result.
bool fails(const char *name, VkResult &result) {
    int32_t code = 0;
    const bool hit = faults().hits(name, code);
    result = hit ? static_cast<VkResult>(code) : VK_ERROR_DEVICE_LOST;
    if (hit && result == VK_ERROR_DEVICE_LOST) lost = true;
    return hit;
}

// The same for calls that can report a lost device.
bool fails_or_lost(const char *name, VkResult &result) { return fails(name, result) || lost; }

VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice d, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *a,
                                               VkDeviceMemory *out) {
    VkResult result;
    if (fails("vkAllocateMemory", result)) return result;
    return next<PFN_vkAllocateMemory>("vkAllocateMemory")(d, info, a, out);
}

VKAPI_ATTR VkResult VKAPI_CALL create_shader_module(VkDevice d,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *a,
                                                    VkShaderModule *out) {
    VkResult result;
    if (fails("vkCreateShaderModule", result)) return result;
    return next<PFN_vkCreateShaderModule>("vkCreateShaderModule")(d, info, a, out);
}

VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice d, VkPipelineCache cache, uint32_t n,
                                                const VkComputePipelineCreateInfo *infos,
                                                const VkAllocationCallbacks *a, VkPipeline *out) {
    VkResult result;
    if (fails("vkCreateComputePipelines", result)) return result;
    return next<PFN_vkCreateComputePipelines>("vkCreateComputePipelines")(d, cache, n, infos, a,
                                                                          out);
}

VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo *infos,
                                      VkFence fence) {
    VkResult result;
    if (fails_or_lost("vkQueueSubmit", result)) return result;
    return next<PFN_vkQueueSubmit>("vkQueueSubmit")(queue, n, infos, fence);
}

bool silent = false; // true: the device does not answer any more
bool slow = false;   // true: `shown` limits the submissions that count as done
uint64_t shown = 0;  // number of submissions that count as done

VkResult wait_slowly(VkDevice d, const VkSemaphoreWaitInfo *info, uint64_t timeout) {
    if (shown >= info->pValues[0]) return VK_SUCCESS;
    const uint64_t next_one = shown + 1;
    VkSemaphoreWaitInfo one = *info;
    one.pValues = &next_one;
    next<PFN_vkWaitSemaphores>("vkWaitSemaphores")(d, &one, timeout);
    return VK_TIMEOUT;
}

VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice d, const VkSemaphoreWaitInfo *info,
                                               uint64_t timeout) {
    VkResult result;
    if (fails_or_lost("vkWaitSemaphores", result)) {
        silent = silent || result == VK_TIMEOUT;
        if (result != VK_NOT_READY) return result;
        slow = true;
        next<PFN_vkGetSemaphoreCounterValue>("vkGetSemaphoreCounterValue")(d, info->pSemaphores[0],
                                                                           &shown);
    }
    if (slow) return wait_slowly(d, info, timeout);
    return next<PFN_vkWaitSemaphores>("vkWaitSemaphores")(d, info, timeout);
}

VKAPI_ATTR VkResult VKAPI_CALL counter_value(VkDevice d, VkSemaphore semaphore, uint64_t *value) {
    VkResult result;
    if (fails_or_lost("vkGetSemaphoreCounterValue", result)) return result;
    if (silent) return VK_SUCCESS; // *value does not change
    result =
        next<PFN_vkGetSemaphoreCounterValue>("vkGetSemaphoreCounterValue")(d, semaphore, value);
    if (slow && *value > shown) *value = ++shown;
    return result;
}

VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice d, const VkAllocationCallbacks *a) {
    faults().write_counts();
    next<PFN_vkDestroyDevice>("vkDestroyDevice")(d, a);
}

VKAPI_ATTR VkResult VKAPI_CALL enumerate_devices(VkInstance i, uint32_t *n,
                                                 VkPhysicalDevice *devices) {
    VkResult result;
    if (fails("vkEnumeratePhysicalDevices", result)) {
        *n = 0;
        return result;
    }
    return instance.devices(i, n, devices);
}

VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice d, VkPhysicalDeviceProperties2 *out) {
    instance.properties(d, out);
    const char *limit = std::getenv("KEEL_DRIVER_LIMIT");
    for (auto *p = static_cast<VkBaseOutStructure *>(out->pNext); p != nullptr && limit != nullptr;
         p = p->pNext)
        if (p->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES)
            reinterpret_cast<VkPhysicalDeviceMaintenance3Properties *>(p)->maxMemoryAllocationSize =
                std::strtoull(limit, nullptr, 10);
}

// Returns the link that the loader left for this layer in a chain of structs. The link after it is
// for the next layer.
template <class Info> Info *link(const void *chain, VkStructureType type) {
    auto *info = static_cast<Info *>(const_cast<void *>(chain));
    while (info != nullptr && (info->sType != type || info->function != VK_LAYER_LINK_INFO))
        info = static_cast<Info *>(const_cast<void *>(info->pNext));
    return info;
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                               const VkAllocationCallbacks *a, VkInstance *out) {
    VkResult result;
    if (fails("vkCreateInstance", result)) return result;
    auto *mine =
        link<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (mine == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
    const PFN_vkGetInstanceProcAddr get = mine->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    mine->u.pLayerInfo = mine->u.pLayerInfo->pNext;
    result = reinterpret_cast<PFN_vkCreateInstance>(get(VK_NULL_HANDLE, "vkCreateInstance"))(
        info, a, out);
    if (result != VK_SUCCESS) return result;
    const auto ask = [&](const char *name) { return get(*out, name); };
    instance = {
        get, *out,
        reinterpret_cast<PFN_vkEnumeratePhysicalDevices>(ask("vkEnumeratePhysicalDevices")),
        reinterpret_cast<PFN_vkGetPhysicalDeviceProperties2>(ask("vkGetPhysicalDeviceProperties2")),
        reinterpret_cast<PFN_vkCreateDevice>(ask("vkCreateDevice"))};
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                             const VkDeviceCreateInfo *info,
                                             const VkAllocationCallbacks *a, VkDevice *out) {
    VkResult result;
    if (fails("vkCreateDevice", result)) return result;
    auto *mine =
        link<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (mine == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
    const PFN_vkGetDeviceProcAddr get_device = mine->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    mine->u.pLayerInfo = mine->u.pLayerInfo->pNext;
    result = instance.create_device(physical, info, a, out);
    if (result == VK_SUCCESS) {
        device = {get_device, *out};
        lost = silent = slow = false;
    }
    return result;
}

PFN_vkVoidFunction ours(const char *name);

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc(VkDevice d, const char *name) {
    if (const PFN_vkVoidFunction mine = ours(name)) return mine;
    return device.get != nullptr ? device.get(d, name) : nullptr;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_proc(VkInstance i, const char *name) {
    if (const PFN_vkVoidFunction mine = ours(name)) return mine;
    return instance.get != nullptr ? instance.get(i, name) : nullptr;
}

PFN_vkVoidFunction ours(const char *name) {
    struct Row {
        const char *name;
        PFN_vkVoidFunction function;
    };
#define KEEL_ROW(name, function)                                                                   \
    { name, reinterpret_cast<PFN_vkVoidFunction>(function) }
    static const Row rows[] = {
        KEEL_ROW("vkGetInstanceProcAddr", get_instance_proc),
        KEEL_ROW("vkGetDeviceProcAddr", get_device_proc),
        KEEL_ROW("vkCreateInstance", create_instance),
        KEEL_ROW("vkCreateDevice", create_device),
        KEEL_ROW("vkDestroyDevice", destroy_device),
        KEEL_ROW("vkEnumeratePhysicalDevices", enumerate_devices),
        KEEL_ROW("vkGetPhysicalDeviceProperties2", properties),
        KEEL_ROW("vkAllocateMemory", allocate_memory),
        KEEL_ROW("vkCreateShaderModule", create_shader_module),
        KEEL_ROW("vkCreateComputePipelines", create_pipelines),
        KEEL_ROW("vkQueueSubmit", submit),
        KEEL_ROW("vkWaitSemaphores", wait_semaphores),
        KEEL_ROW("vkGetSemaphoreCounterValue", counter_value),
    };
#undef KEEL_ROW
    for (const Row &row : rows)
        if (std::strcmp(row.name, name) == 0) return row.function;
    return nullptr;
}

} // namespace

KEEL_LAYER_EXPORT VkResult vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *out) {
    if (out->loaderLayerInterfaceVersion < 2) return VK_ERROR_INITIALIZATION_FAILED;
    out->loaderLayerInterfaceVersion = 2;
    out->pfnGetInstanceProcAddr = get_instance_proc;
    out->pfnGetDeviceProcAddr = get_device_proc;
    out->pfnGetPhysicalDeviceProcAddr = nullptr;
    return VK_SUCCESS;
}
