// The Vulkan instance. It loads the validation layers if the user requests them.
#pragma once

#include "vulkan/messages.hpp"
#include "vulkan/vk.hpp"

namespace keel_vulkan {

class Instance {
  public:
    Instance() = default;
    ~Instance();
    Instance(const Instance &) = delete;
    Instance &operator=(const Instance &) = delete;

    // Throws Refusal with KEEL_E_NOT_FOUND if there is no driver, or if `validation` is true and
    // there is no validation layer. `messages` must outlive the instance. If `messages` is NULL,
    // messages are ignored.
    void open(const keel_host *host, bool validation, Messages *messages);
    VkInstance handle() const { return instance_; }
    bool validating() const { return messenger_ != VK_NULL_HANDLE; }

  private:
    VkInstance instance_ = VK_NULL_HANDLE;
    VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
};

} // namespace keel_vulkan
