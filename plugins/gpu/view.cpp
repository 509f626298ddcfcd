#include "gpu/view.hpp"

namespace keel_gpu {
namespace {

constexpr int64_t most = int64_t{1} << 32;

// Returns true if the whole view is within the first 2^32 units of the buffer. Kernels address
// elements modulo 2^32. So they would read elements beyond this limit from a wrong address.
bool reaches_only(const View &view, const int64_t (&strides)[3]) {
    int64_t low = view.offset, high = low + view.n;
    for (int i = 0; i < 3; ++i) {
        if (view.shape[i] == 0) return true; // the view is empty
        const int64_t steps = int64_t{view.shape[i]} - 1, stride = strides[i];
        if (steps != 0 && (stride >= 0 ? stride : -stride) > most / steps) return false;
        (stride >= 0 ? high : low) += steps * stride;
    }
    return low >= 0 && high <= most;
}

bool divides(uint32_t unit, const keel_tensor *t) {
    if (t->offset % unit != 0 || row_bytes(t) % unit != 0) return false;
    for (uint32_t i = 0; i + 1 < t->rank; ++i)
        if (t->stride[i] % unit != 0) return false;
    return true;
}

View flatten(const keel_host *host, const keel_tensor *t, uint32_t unit, uint64_t n,
             const char *name) {
    if (t == nullptr || t->rank < 1 || t->rank > KEEL_MAX_RANK)
        refuse(host, KEEL_E_INVALID_ARG, "%s is missing, or its rank is not in 1..4", name);
    int64_t strides[3] = {};
    View view = {
        {1, 1, 1}, {0, 0, 0}, static_cast<uint32_t>(n), static_cast<uint32_t>(t->offset / unit)};
    bool fits = t->offset % unit == 0 && t->offset / unit < static_cast<uint64_t>(most) &&
                n < static_cast<uint64_t>(most);
    for (uint32_t i = 0; i + 1 < t->rank; ++i) {
        const uint32_t place = 3 - (t->rank - 1) + i;
        const int64_t stride = t->stride[i] / unit;
        fits = fits && t->stride[i] % unit == 0 && stride > -most / 2 && stride < most &&
               t->shape[i] < most;
        view.shape[place] = static_cast<uint32_t>(t->shape[i]);
        view.stride[place] = static_cast<uint32_t>(stride);
        strides[place] = stride;
    }
    if (!fits || !reaches_only(view, strides))
        refuse(host, KEEL_E_UNSUPPORTED,
               "%s: the offset or a stride is not a multiple of %u bytes, or does not fit into 32 "
               "bits",
               name, unit);
    return view;
}

} // namespace

bool type_of(keel_dtype dtype, Type &type) {
    switch (dtype) {
    case KEEL_DTYPE_F32: type = type_f32; return true;
    case KEEL_DTYPE_F16: type = type_f16; return true;
    case KEEL_DTYPE_BF16: type = type_bf16; return true;
    case KEEL_DTYPE_Q8_0: type = type_q8_0; return true;
    case KEEL_DTYPE_Q4_0: type = type_q4_0; return true;
    default: return false;
    }
}

keel_dtype dtype_of(Type type) {
    constexpr keel_dtype dtypes[type_count] = {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16,
                                               KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0};
    return dtypes[type];
}

View view_of(const keel_host *host, const keel_tensor *t, const char *name) {
    return flatten(host, t, t != nullptr ? unit_bytes(t->dtype) : 1,
                   t != nullptr && t->rank != 0 ? static_cast<uint64_t>(last_dim(t)) : 0, name);
}

View bytes_view(const keel_host *host, const keel_tensor *t, uint32_t unit, const char *name) {
    return flatten(host, t, unit, row_bytes(t) / unit, name);
}

uint32_t common_unit(const keel_tensor *a, const keel_tensor *b) {
    for (uint32_t unit = 4; unit > 1; unit /= 2)
        if (divides(unit, a) && (b == nullptr || divides(unit, b))) return unit;
    return 1;
}

} // namespace keel_gpu
