#include "gpu/report.hpp"

#include <stdarg.h>
#include <stdio.h>

namespace keel_gpu {
namespace {

void tell(const keel_host *host, keel_status status, const char *format, va_list list) noexcept {
    char text[2048];
    vsnprintf(text, sizeof text, format, list);
    if (host != nullptr && KEEL_HAS(host, keel_host, set_error)) host->set_error(host, status, text);
}

} // namespace

void refuse(const keel_host *host, keel_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    tell(host, status, format, list);
    va_end(list);
    throw Refusal{status};
}

keel_status fail(const keel_host *host, keel_status status, const char *format, ...) noexcept {
    va_list list;
    va_start(list, format);
    tell(host, status, format, list);
    va_end(list);
    return status;
}

const keel_param *find_param(const keel_ctx_desc &desc, const char *key) {
    for (uint32_t i = 0; i < desc.n_params; ++i)
        if (keel_same(desc.params[i]->key, key)) return desc.params[i];
    return nullptr;
}

void name_kernel(PlanChoice &choice, const char *format, ...) noexcept {
    if (!choice.named) return;
    va_list list;
    va_start(list, format);
    vsnprintf(choice.kernel, sizeof choice.kernel, format, list);
    va_end(list);
}

} // namespace keel_gpu
