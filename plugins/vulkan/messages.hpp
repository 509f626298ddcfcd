// What the validation layers say.
#pragma once

#include <keel/host.h>

#include <mutex>
#include <string>

namespace keel_vulkan {

// What the validation layers complained about since the last look. Written by the messenger, which
// the driver calls inside our own calls, from any thread of its own.
class Messages {
  public:
    const keel_host *host = nullptr;
    void add(const char *text);
    void close(); // nobody is told any more
    // Takes the first complaint; false if there is none.
    bool take(std::string &text);

  private:
    std::mutex mutex_;
    std::string first_;
    bool any_ = false;
};

} // namespace keel_vulkan
