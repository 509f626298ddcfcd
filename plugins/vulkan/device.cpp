#include "vulkan/device.hpp"

#include "vulkan/ops/ops.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace keel_vulkan {
namespace {

Extensions device_extensions(VkPhysicalDevice device) {
    uint32_t n = 0;
    if (vkEnumerateDeviceExtensionProperties(device, nullptr, &n, nullptr) != VK_SUCCESS) return {};
    Extensions list(n);
    if (vkEnumerateDeviceExtensionProperties(device, nullptr, &n, list.data()) < 0) return {};
    return list;
}

// Finds a queue family that supports compute. A family without graphics is preferred, because no
// other work waits in its queue.
bool compute_family(VkPhysicalDevice device, uint32_t &family) {
    uint32_t n = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(device, &n, nullptr);
    std::vector<VkQueueFamilyProperties> families(n);
    vkGetPhysicalDeviceQueueFamilyProperties(device, &n, families.data());
    bool found = false;
    for (uint32_t i = 0; i < n; ++i) {
        if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
        const bool alone = (families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT) == 0;
        if (!found || alone) family = i;
        found = true;
        if (alone) break;
    }
    return found;
}

int type_order(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return 4;
    default: return 3;
    }
}

uint32_t timestamp_bits(VkPhysicalDevice device, uint32_t family) {
    uint32_t n = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(device, &n, nullptr);
    std::vector<VkQueueFamilyProperties> families(n);
    vkGetPhysicalDeviceQueueFamilyProperties(device, &n, families.data());
    return family < families.size() ? families[family].timestampValidBits : 0;
}

// The features that every kernel needs. Each member is true if the device has the feature.
struct Features {
    VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan11Features v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
    VkPhysicalDeviceFeatures2 all = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    Features() {
        v11.pNext = &v12;
        all.pNext = &v11;
    }
    Features(const Features &) = delete;
    Features &operator=(const Features &) = delete;
};

} // namespace

std::vector<VkPhysicalDevice> list_devices(const Instance &instance) {
    uint32_t n = 0;
    if (vkEnumeratePhysicalDevices(instance.handle(), &n, nullptr) != VK_SUCCESS) return {};
    std::vector<VkPhysicalDevice> all(n);
    if (vkEnumeratePhysicalDevices(instance.handle(), &n, all.data()) < 0) return {};
    all.resize(n);
    std::vector<std::pair<int, VkPhysicalDevice>> usable;
    for (VkPhysicalDevice device : all) {
        VkPhysicalDeviceProperties p;
        vkGetPhysicalDeviceProperties(device, &p);
        uint32_t family = 0;
        if (p.apiVersion < VK_API_VERSION_1_2 || !compute_family(device, family)) continue;
        usable.emplace_back(
            type_order(p.deviceType) + (missing_feature(device) != nullptr ? 10 : 0), device);
    }
    std::stable_sort(usable.begin(), usable.end(),
                     [](const auto &a, const auto &b) { return a.first < b.first; });
    std::vector<VkPhysicalDevice> list;
    for (const auto &entry : usable) list.push_back(entry.second);
    return list;
}

DeviceFacts device_facts(VkPhysicalDevice device) {
    DeviceFacts f = {};
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceSubgroupProperties subgroups = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
    VkPhysicalDeviceMaintenance3Properties maintenance = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
    VkPhysicalDeviceDriverProperties driver = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    const auto extensions = device_extensions(device);
    f.imports = has_extension(extensions, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    f.memory_budget = has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    f.calibrated = has_extension(extensions, VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME);
    subgroups.pNext = f.imports ? &host : nullptr;
    maintenance.pNext = &subgroups;
    driver.pNext = &maintenance;
    VkPhysicalDeviceProperties2 properties = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &driver, {}};
    vkGetPhysicalDeviceProperties2(device, &properties);
    f.properties = properties.properties;
    snprintf(f.driver, sizeof f.driver, "%s %s", driver.driverName, driver.driverInfo);
    std::memcpy(f.pipeline_uuid, f.properties.pipelineCacheUUID, VK_UUID_SIZE);
    f.subgroup_size = std::max(subgroups.subgroupSize, 1u);
    constexpr VkSubgroupFeatureFlags wanted =
        VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    f.subgroup_sums = (subgroups.supportedOperations & wanted) == wanted &&
                      (subgroups.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    f.import_align = host.minImportedHostPointerAlignment;
    f.max_allocation = maintenance.maxMemoryAllocationSize;
    compute_family(device, f.queue_family);
    f.timestamp_bits = timestamp_bits(device, f.queue_family);
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(device, &memory);
    for (uint32_t i = 0; i < memory.memoryHeapCount; ++i)
        if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0)
            f.memory_bytes += memory.memoryHeaps[i].size;
    f.unified = f.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ||
                f.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    return f;
}

const char *missing_feature(VkPhysicalDevice device) {
    Features has;
    vkGetPhysicalDeviceFeatures2(device, &has.all);
    if (!has.v12.timelineSemaphore) return "timelineSemaphore";
    if (!has.v12.bufferDeviceAddress) return "bufferDeviceAddress";
    if (!has.all.features.shaderInt64) return "shaderInt64";
    if (!has.v12.storageBuffer8BitAccess) return "storageBuffer8BitAccess";
    if (!has.v11.storageBuffer16BitAccess) return "storageBuffer16BitAccess";
    return nullptr;
}

Device::~Device() {
    if (device_ != VK_NULL_HANDLE) vkDestroyDevice(device_, nullptr);
}

namespace {

// Returns true if the device can run the kernel linear_matrix. The kernel needs cooperative
// matrices f16 x f16 -> f32 of 16 x 16 x 16 in subgroups of 32.
bool fits_matrices(const Instance &instance, VkPhysicalDevice device, const DeviceFacts &facts) {
    if (facts.subgroup_size != 32 ||
        !has_extension(device_extensions(device), VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME))
        return false;
    Features has;
    VkPhysicalDeviceCooperativeMatrixFeaturesNV matrices = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV};
    has.v12.pNext = &matrices;
    vkGetPhysicalDeviceFeatures2(device, &has.all);
    if (!matrices.cooperativeMatrix || !has.v12.shaderFloat16 || !has.v12.vulkanMemoryModel)
        return false;
    const auto list = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV>(
        vkGetInstanceProcAddr(instance.handle(),
                              "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV"));
    uint32_t n = 0;
    if (list == nullptr || list(device, &n, nullptr) != VK_SUCCESS) return false;
    std::vector<VkCooperativeMatrixPropertiesNV> shapes(
        n, {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV});
    if (list(device, &n, shapes.data()) < 0) return false;
    return std::any_of(shapes.begin(), shapes.end(), [](const VkCooperativeMatrixPropertiesNV &s) {
        return s.MSize == 16 && s.NSize == 16 && s.KSize == 16 &&
               s.AType == VK_COMPONENT_TYPE_FLOAT16_NV && s.BType == VK_COMPONENT_TYPE_FLOAT16_NV &&
               s.CType == VK_COMPONENT_TYPE_FLOAT32_NV && s.DType == VK_COMPONENT_TYPE_FLOAT32_NV &&
               s.scope == VK_SCOPE_SUBGROUP_NV;
    });
}

} // namespace

void Device::open(const keel_host *host, const Instance &instance, VkPhysicalDevice physical,
                  bool staged, bool matrices) {
    physical_ = physical;
    facts_ = device_facts(physical);
    if (staged) facts_.unified = false;
    if (const char *missing = missing_feature(physical))
        refuse(host, KEEL_E_UNSUPPORTED,
               "device '%s' lacks the Vulkan feature %s, which this backend needs",
               facts_.properties.deviceName, missing);
    Features wanted;
    wanted.v12.timelineSemaphore = wanted.v12.bufferDeviceAddress =
        wanted.v12.storageBuffer8BitAccess = VK_TRUE;
    wanted.v11.storageBuffer16BitAccess = VK_TRUE;
    wanted.all.features.shaderInt64 = VK_TRUE;
    std::vector<const char *> extensions;
    VkPhysicalDeviceCooperativeMatrixFeaturesNV matrix = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV};
    if (matrices && !fits_matrices(instance, physical, facts_))
        refuse(host, KEEL_E_UNSUPPORTED,
               "compute: fast needs cooperative matrices (VK_NV_cooperative_matrix, f16 in tiles "
               "of 16, "
               "subgroups of 32), which device "
               "'%s' lacks; use exact",
               facts_.properties.deviceName);
    if (matrices) {
        matrix.cooperativeMatrix = wanted.v12.shaderFloat16 = wanted.v12.vulkanMemoryModel =
            VK_TRUE;
        wanted.v12.pNext = &matrix;
        extensions.push_back(VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME);
    }
    matrices_ = matrices;
    if (facts_.imports) extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    if (facts_.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    if (facts_.calibrated) extensions.push_back(VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME);
    const float priority = 1;
    VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    queue.queueFamilyIndex = facts_.queue_family;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
    info.pNext = &wanted.all;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    const VkResult made = vkCreateDevice(physical, &info, nullptr, &device_);
    if (made != VK_SUCCESS) {
        device_ = VK_NULL_HANDLE;
        check(host, made, "vkCreateDevice");
    }
    vkGetDeviceQueue(device_, facts_.queue_family, 0, &queue_);
    if (facts_.imports)
        host_pointer_properties = reinterpret_cast<PFN_vkGetMemoryHostPointerPropertiesEXT>(
            vkGetDeviceProcAddr(device_, "vkGetMemoryHostPointerPropertiesEXT"));
    facts_.imports = host_pointer_properties != nullptr;
    if (facts_.calibrated)
        calibrated_timestamps = reinterpret_cast<PFN_vkGetCalibratedTimestampsEXT>(
            vkGetDeviceProcAddr(device_, "vkGetCalibratedTimestampsEXT"));
}

namespace {

const char *vendor_name(uint32_t id) {
    switch (id) {
    case 0x1002: return "AMD";
    case 0x10DE: return "NVIDIA";
    case 0x8086: return "Intel";
    case 0x13B5: return "Arm";
    case 0x5143: return "Qualcomm";
    case VK_VENDOR_ID_MESA: return "Mesa";
    default: return "";
    }
}

keel_device_type type_of(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return KEEL_DEVICE_CPU;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return KEEL_DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
    // This type is a GPU, or a part of a GPU, in a virtual machine.
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return KEEL_DEVICE_DISCRETE;
    default: return KEEL_DEVICE_OTHER;
    }
}

} // namespace

// A machine without a driver has 0 devices. This is not an error.
keel_status KEEL_CALL device_count(const keel_host *host, uint32_t *n) noexcept {
    *n = 0;
    const keel_status status = guarded(host, [&] {
        Instance instance;
        instance.open(host, false, nullptr);
        *n = static_cast<uint32_t>(list_devices(instance).size());
    });
    return status == KEEL_E_NOT_FOUND ? KEEL_OK : status;
}

keel_status KEEL_CALL device_info(const keel_host *host, uint32_t index,
                                  keel_device_info *out) noexcept {
    return guarded(host, [&] {
        Instance instance;
        instance.open(host, false, nullptr);
        const std::vector<VkPhysicalDevice> devices = list_devices(instance);
        if (index >= devices.size())
            refuse(host, KEEL_E_NOT_FOUND,
                   "device %u does not exist: Vulkan finds %zu device(s) on this machine", index,
                   devices.size());
        const DeviceFacts facts = device_facts(devices[index]);
        keel_device_info info = make_out<keel_device_info>();
        snprintf(info.name, sizeof info.name, "%.127s", facts.properties.deviceName);
        snprintf(info.vendor, sizeof info.vendor, "%s", vendor_name(facts.properties.vendorID));
        snprintf(info.driver, sizeof info.driver, "%.127s", facts.driver);
        info.type = keel_vulkan::type_of(facts.properties.deviceType);
        info.flags = (facts.unified ? KEEL_DEVICE_UNIFIED : 0) |
                     (facts.imports ? KEEL_DEVICE_IMPORTS_HOST : 0);
        info.total_bytes = facts.memory_bytes;
        keel_emit(out, &info, sizeof info);
    });
}

} // namespace keel_vulkan
