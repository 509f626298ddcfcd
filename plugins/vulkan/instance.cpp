#include "vulkan/instance.hpp"

#include "vulkan/context.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace keel_vulkan {
namespace {

constexpr const char *kValidationLayer = "VK_LAYER_KHRONOS_validation";

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT *data, void *user) {
    // The loader and drivers speak here too (a missing manifest, a conformance notice); only what the layers say is about us.
    if (data->pMessageIdName != nullptr && std::strncmp(data->pMessageIdName, "Loader", 6) == 0)
        return VK_FALSE;
    static_cast<Messages *>(user)->add(data->pMessage != nullptr ? data->pMessage : "?");
    return VK_FALSE;
}

bool has_layer(const char *name) {
    uint32_t n = 0;
    if (vkEnumerateInstanceLayerProperties(&n, nullptr) != VK_SUCCESS) return false;
    std::vector<VkLayerProperties> layers(n);
    if (vkEnumerateInstanceLayerProperties(&n, layers.data()) < 0) return false;
    return std::any_of(layers.begin(), layers.end(),
                       [&](const VkLayerProperties &l) { return std::strcmp(l.layerName, name) == 0; });
}

bool has_extension(const std::vector<VkExtensionProperties> &list, const char *name) {
    return std::any_of(list.begin(), list.end(), [&](const VkExtensionProperties &e) {
        return std::strcmp(e.extensionName, name) == 0;
    });
}

std::vector<VkExtensionProperties> instance_extensions(const char *layer) {
    uint32_t n = 0;
    if (vkEnumerateInstanceExtensionProperties(layer, &n, nullptr) != VK_SUCCESS) return {};
    std::vector<VkExtensionProperties> list(n);
    if (vkEnumerateInstanceExtensionProperties(layer, &n, list.data()) < 0) return {};
    return list;
}

std::vector<VkExtensionProperties> device_extensions(VkPhysicalDevice device) {
    uint32_t n = 0;
    if (vkEnumerateDeviceExtensionProperties(device, nullptr, &n, nullptr) != VK_SUCCESS) return {};
    std::vector<VkExtensionProperties> list(n);
    if (vkEnumerateDeviceExtensionProperties(device, nullptr, &n, list.data()) < 0) return {};
    return list;
}

// A family with compute; one without graphics if there is one, because nothing else waits in it.
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
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return 4;
    default:
        return 3;
    }
}

} // namespace

void Messages::add(const char *text) {
    const std::lock_guard lock(mutex_);
    if (host != nullptr) host->log(host, KEEL_LOG_ERROR, text);
    if (any_) return;
    any_ = true;
    try {
        first_ = text;
    } catch (...) { // no memory for the words; the fact stays
    }
}

void Messages::close() {
    const std::lock_guard lock(mutex_);
    host = nullptr;
}

bool Messages::take(std::string &text) {
    const std::lock_guard lock(mutex_);
    if (!any_) return false;
    text = std::move(first_);
    first_.clear();
    any_ = false;
    return true;
}

keel_status status_of(VkResult result) {
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
        return KEEL_E_OUT_OF_MEMORY;
    case VK_ERROR_DEVICE_LOST:
        return KEEL_E_DEVICE_LOST;
    default:
        return result < 0 ? KEEL_E_INTERNAL : KEEL_OK;
    }
}

void check(const keel_host *host, VkResult result, const char *what) {
    if (result >= 0) return;
    const char *why = "an error of the driver";
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY) why = "no host memory";
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY) why = "no device memory";
    if (result == VK_ERROR_TOO_MANY_OBJECTS) why = "the driver has no more objects of that kind";
    if (result == VK_ERROR_DEVICE_LOST) why = "the device was lost";
    refuse(host, status_of(result), "%s: %s (VkResult %d)", what, why, static_cast<int>(result));
}

Instance::~Instance() {
    if (instance_ == VK_NULL_HANDLE) return;
    if (messenger_ != VK_NULL_HANDLE) {
        const auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
            vkGetInstanceProcAddr(instance_, "vkDestroyDebugUtilsMessengerEXT"));
        if (destroy != nullptr) destroy(instance_, messenger_, nullptr);
    }
    vkDestroyInstance(instance_, nullptr);
}

void Instance::open(const keel_host *host, bool validation, Messages *messages) {
    uint32_t loader = 0;
    if (vkEnumerateInstanceVersion(&loader) != VK_SUCCESS || loader < VK_API_VERSION_1_2)
        refuse(host, KEEL_E_NOT_FOUND, "the Vulkan loader is older than 1.2");
    // Layers named in the environment are loaded without being asked for: then somebody wants to hear them.
    const char *named = getenv("VK_INSTANCE_LAYERS");
    const bool from_environment = named != nullptr && std::strstr(named, kValidationLayer) != nullptr;
    const bool present = (validation || from_environment) && has_layer(kValidationLayer);
    if (validation && !present)
        refuse(host, KEEL_E_NOT_FOUND,
               "validation: the layer %s is not installed (Debian: vulkan-validationlayers)",
               kValidationLayer);

    VkApplicationInfo app = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
    app.pApplicationName = "keel";
    app.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    info.pApplicationInfo = &app;
    const VkValidationFeatureEnableEXT enabled[] = {
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    VkValidationFeaturesEXT features = {VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
    features.enabledValidationFeatureCount = 1;
    features.pEnabledValidationFeatures = enabled;
    const char *extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
    const bool listens =
        present && messages != nullptr && has_extension(instance_extensions(kValidationLayer), extensions[0]);
    if (validation && messages != nullptr && !listens)
        refuse(host, KEEL_E_UNSUPPORTED,
               "validation: the layer %s that is installed cannot report (it lacks %s)", kValidationLayer,
               extensions[0]);
    if (listens) {
        info.enabledExtensionCount = 1;
        info.ppEnabledExtensionNames = extensions;
    }
    if (validation) {
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &kValidationLayer;
        if (has_extension(instance_extensions(kValidationLayer), extensions[1])) {
            info.pNext = &features;
            info.enabledExtensionCount = 2;
            info.ppEnabledExtensionNames = extensions;
        }
    }
    const VkResult made = vkCreateInstance(&info, nullptr, &instance_);
    if (made == VK_ERROR_INCOMPATIBLE_DRIVER || made == VK_ERROR_INITIALIZATION_FAILED) {
        instance_ = VK_NULL_HANDLE;
        refuse(host, KEEL_E_NOT_FOUND,
               "no Vulkan driver is installed, or none starts (Debian: mesa-vulkan-drivers)");
    }
    if (made != VK_SUCCESS) {
        instance_ = VK_NULL_HANDLE;
        check(host, made, "vkCreateInstance");
    }
    if (!listens) return;
    const auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkCreateDebugUtilsMessengerEXT"));
    if (create == nullptr) return;
    VkDebugUtilsMessengerCreateInfoEXT listen = {VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
    listen.messageSeverity =
        VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT;
    listen.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    listen.pfnUserCallback = on_message;
    listen.pUserData = messages;
    check(host, create(instance_, &listen, nullptr, &messenger_), "vkCreateDebugUtilsMessengerEXT");
}

std::vector<VkPhysicalDevice> Instance::devices() const {
    uint32_t n = 0;
    if (vkEnumeratePhysicalDevices(instance_, &n, nullptr) != VK_SUCCESS) return {};
    std::vector<VkPhysicalDevice> all(n);
    if (vkEnumeratePhysicalDevices(instance_, &n, all.data()) < 0) return {};
    all.resize(n);
    std::vector<std::pair<int, VkPhysicalDevice>> usable;
    for (VkPhysicalDevice device : all) {
        VkPhysicalDeviceProperties p;
        vkGetPhysicalDeviceProperties(device, &p);
        uint32_t family = 0;
        if (p.apiVersion < VK_API_VERSION_1_2 || !compute_family(device, family)) continue;
        usable.emplace_back(type_order(p.deviceType) + (missing_feature(device) != nullptr ? 10 : 0), device);
    }
    std::stable_sort(usable.begin(), usable.end(),
                     [](const auto &a, const auto &b) { return a.first < b.first; });
    std::vector<VkPhysicalDevice> list;
    for (const auto &entry : usable)
        list.push_back(entry.second);
    return list;
}

namespace {

uint32_t timestamp_bits(VkPhysicalDevice device, uint32_t family) {
    uint32_t n = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(device, &n, nullptr);
    std::vector<VkQueueFamilyProperties> families(n);
    vkGetPhysicalDeviceQueueFamilyProperties(device, &n, families.data());
    return family < families.size() ? families[family].timestampValidBits : 0;
}

} // namespace

DeviceFacts device_facts(VkPhysicalDevice device) {
    DeviceFacts f = {};
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceSubgroupProperties subgroups = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
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
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &driver, {}};
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

namespace {

// The features that every kernel needs, and those of them that a device has.
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

// Is there what linear_matrix is made of: f16 x f16 -> f32 by 16 x 16 x 16, in subgroups of 32?
bool fits_matrices(const Instance &instance, VkPhysicalDevice device, const DeviceFacts &facts) {
    if (facts.subgroup_size != 32 ||
        !has_extension(device_extensions(device), VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME))
        return false;
    Features has;
    VkPhysicalDeviceCooperativeMatrixFeaturesNV matrices = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV};
    has.v12.pNext = &matrices;
    vkGetPhysicalDeviceFeatures2(device, &has.all);
    if (!matrices.cooperativeMatrix || !has.v12.shaderFloat16 || !has.v12.vulkanMemoryModel) return false;
    const auto list = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV>(
        vkGetInstanceProcAddr(instance.handle(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV"));
    uint32_t n = 0;
    if (list == nullptr || list(device, &n, nullptr) != VK_SUCCESS) return false;
    std::vector<VkCooperativeMatrixPropertiesNV> shapes(n,
                                                        {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV});
    if (list(device, &n, shapes.data()) < 0) return false;
    return std::any_of(shapes.begin(), shapes.end(), [](const VkCooperativeMatrixPropertiesNV &s) {
        return s.MSize == 16 && s.NSize == 16 && s.KSize == 16 && s.AType == VK_COMPONENT_TYPE_FLOAT16_NV &&
               s.BType == VK_COMPONENT_TYPE_FLOAT16_NV && s.CType == VK_COMPONENT_TYPE_FLOAT32_NV &&
               s.DType == VK_COMPONENT_TYPE_FLOAT32_NV && s.scope == VK_SCOPE_SUBGROUP_NV;
    });
}

} // namespace

void Device::open(const keel_host *host, const Instance &instance, VkPhysicalDevice physical, bool staged,
                  bool matrices) {
    physical_ = physical;
    facts_ = device_facts(physical);
    if (staged) facts_.unified = false;
    if (const char *missing = missing_feature(physical))
        refuse(host, KEEL_E_UNSUPPORTED, "device '%s' lacks the Vulkan feature %s, which this backend needs",
               facts_.properties.deviceName, missing);
    Features wanted;
    wanted.v12.timelineSemaphore = wanted.v12.bufferDeviceAddress = wanted.v12.storageBuffer8BitAccess =
        VK_TRUE;
    wanted.v11.storageBuffer16BitAccess = VK_TRUE;
    wanted.all.features.shaderInt64 = VK_TRUE;
    std::vector<const char *> extensions;
    VkPhysicalDeviceCooperativeMatrixFeaturesNV matrix = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV};
    if (matrices && !fits_matrices(instance, physical, facts_))
        refuse(host, KEEL_E_UNSUPPORTED,
               "compute: fast needs cooperative matrices (VK_NV_cooperative_matrix, f16 in tiles of 16, "
               "subgroups of 32), which device "
               "'%s' lacks; use exact",
               facts_.properties.deviceName);
    if (matrices) {
        matrix.cooperativeMatrix = wanted.v12.shaderFloat16 = wanted.v12.vulkanMemoryModel = VK_TRUE;
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

} // namespace keel_vulkan
