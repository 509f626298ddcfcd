#include "vulkan/instance.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace keel_vulkan {
namespace {

constexpr const char *kValidationLayer = "VK_LAYER_KHRONOS_validation";

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT *data,
                                          void *user) {
    // The loader and the drivers also report other messages here, for example about a missing
    // manifest. Only messages of the validation layers concern this plugin.
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
    return std::any_of(layers.begin(), layers.end(), [&](const VkLayerProperties &l) {
        return std::strcmp(l.layerName, name) == 0;
    });
}

Extensions instance_extensions(const char *layer) {
    uint32_t n = 0;
    if (vkEnumerateInstanceExtensionProperties(layer, &n, nullptr) != VK_SUCCESS) return {};
    Extensions list(n);
    if (vkEnumerateInstanceExtensionProperties(layer, &n, list.data()) < 0) return {};
    return list;
}

} // namespace

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
        refuse(host, KEEL_E_NOT_FOUND,
               "the Vulkan loader is older than version 1.2; install a newer one");
    // The environment variable VK_INSTANCE_LAYERS can name layers, which the loader then loads too.
    // If it names the validation layer, this plugin reports the messages of this layer.
    const char *named = getenv("VK_INSTANCE_LAYERS");
    const bool from_environment =
        named != nullptr && std::strstr(named, kValidationLayer) != nullptr;
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
    const char *extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME,
                                VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
    const bool listens = present && messages != nullptr &&
                         has_extension(instance_extensions(kValidationLayer), extensions[0]);
    if (validation && messages != nullptr && !listens)
        refuse(host, KEEL_E_UNSUPPORTED,
               "validation: the installed layer %s cannot report errors, because it lacks %s",
               kValidationLayer, extensions[0]);
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
    VkDebugUtilsMessengerCreateInfoEXT listen = {
        VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
    listen.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
                             VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT;
    listen.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    listen.pfnUserCallback = on_message;
    listen.pUserData = messages;
    check(host, create(instance_, &listen, nullptr, &messenger_), "vkCreateDebugUtilsMessengerEXT");
}

} // namespace keel_vulkan
