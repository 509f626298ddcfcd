// Messages of the validation layers.
#pragma once

#include <keel/host.h>

#include <mutex>
#include <string>

namespace keel_vulkan {

// The errors that the validation layers reported since the last take(). The driver's callback adds
// errors during Vulkan calls, from any thread.
class Messages {
  public:
    const keel_host *host = nullptr;
    void add(const char *text);
    void close(); // later messages are ignored
    // Removes the first error and returns it in `text`. Returns false if there is no error.
    bool take(std::string &text);

  private:
    std::mutex mutex_;
    std::string first_;
    bool any_ = false;
};

} // namespace keel_vulkan
