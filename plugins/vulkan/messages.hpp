// Messages of the validation layers.
#pragma once

#include <keel/host.h>

#include <mutex>
#include <string>

namespace keel_vulkan {

// Complaints of the validation layers since they were last taken. The messenger writes them; the
// driver calls it during our calls, from any thread.
class Messages {
  public:
    const keel_host *host = nullptr;
    void add(const char *text);
    void close(); // ignores messages from now on
    // Takes the first complaint; false if there is none.
    bool take(std::string &text);

  private:
    std::mutex mutex_;
    std::string first_;
    bool any_ = false;
};

} // namespace keel_vulkan
