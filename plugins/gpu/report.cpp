#include "gpu/report.hpp"

#include <stdarg.h>
#include <stdio.h>

namespace keel_gpu {
namespace {

void tell(const keel_host *host, keel_status status, const char *format, va_list list) noexcept {
    char text[2048];
    vsnprintf(text, sizeof text, format, list);
    if (host != nullptr && KEEL_HAS(host, keel_host, set_error))
        host->set_error(host, status, text);
}

const keel_param *find_param(const keel_ctx_desc &desc, const char *key) {
    for (uint32_t i = 0; i < desc.n_params; ++i)
        if (keel_same(desc.params[i]->key, key)) return desc.params[i];
    return nullptr;
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

const char *word(const keel_ctx_desc &desc, const char *key, const char *otherwise) {
    const keel_param *p = find_param(desc, key);
    return p != nullptr && p->s != nullptr ? p->s : otherwise;
}

int64_t number(const keel_ctx_desc &desc, const char *key, int64_t otherwise) {
    const keel_param *p = find_param(desc, key);
    return p != nullptr ? p->i : otherwise;
}

void need_range(const keel_host *host, uint64_t size, uint64_t offset, uint64_t n) {
    if (offset > size || n > size - offset)
        refuse(host, KEEL_E_INVALID_ARG,
               "offset %llu and size %llu do not fit into a buffer of %llu bytes",
               static_cast<unsigned long long>(offset), static_cast<unsigned long long>(n),
               static_cast<unsigned long long>(size));
}

void need_not_cancelled(const keel_host *host) {
    if (host->cancelled(host) != 0)
        refuse(host, KEEL_E_CANCELLED, "stopped while a weight was loaded");
}

void name_kernel(PlanChoice &choice, const char *format, ...) noexcept {
    if (!choice.named) return;
    va_list list;
    va_start(list, format);
    vsnprintf(choice.kernel, sizeof choice.kernel, format, list);
    va_end(list);
}

} // namespace keel_gpu
