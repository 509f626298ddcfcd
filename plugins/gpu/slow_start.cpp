#include "gpu/slow_start.hpp"

#include <stdio.h>

namespace keel_gpu {

void SlowStart::passed(const keel_host *host, const char *device, double seconds) noexcept {
    if (!is_watched()) return;
    seconds_ += seconds;
    if (seconds_ < 1) return;
    told_ = true;
    if (host == nullptr || !KEEL_HAS(host, keel_host, log)) return;
    char text[400];
    snprintf(text, sizeof text,
             "the first work of '%.200s' takes a while: drivers compile kernels when they meet "
             "them, and keep "
             "them for the next time",
             device);
    host->log(host, KEEL_LOG_INFO, text);
}

} // namespace keel_gpu
