#include "vulkan/messages.hpp"

#include <utility>

namespace keel_vulkan {

void Messages::add(const char *text) {
    const std::lock_guard lock(mutex_);
    if (host != nullptr && KEEL_HAS(host, keel_host, log)) host->log(host, KEEL_LOG_ERROR, text);
    if (any_) return;
    any_ = true;
    try {
        first_ = text;
    } catch (...) { // there is no memory for the text; the error is still counted
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

} // namespace keel_vulkan
