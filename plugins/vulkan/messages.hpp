// Messages of the validation layers.
#pragma once

#include <keel/host.h>

#include <mutex>
#include <string>

namespace keel_vulkan {

// Errors that the validation layers reported since the last take(). The driver's messenger callback
// writes them during Vulkan calls, from any thread.
class Messages {
  public:
    const keel_host *host = nullptr;
    void add(const char *text);
    void close(); // ignores messages from now on
    // Takes the first error. Returns false if there is none.
    bool take(std::string &text);

  private:
    std::mutex mutex_;
    std::string first_;
    bool any_ = false;
};

} // namespace keel_vulkan
