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
             "the first work of '%.200s' takes some time, because the driver compiles each kernel "
             "at its first use; later runs reuse the compiled kernels",
             device);
    host->log(host, KEEL_LOG_INFO, text);
}

} // namespace keel_gpu
