#include "reference/view.hpp"

#include "numbers/convert.hpp"

namespace keel::reference {

View bind(const keel_tensor *t) {
    if (t->buffer == nullptr) refuse(KEEL_E_INVALID_ARG, "a tensor has no buffer");
    const Buffer &buffer = of(t->buffer);
    View view;
    view.dtype = t->dtype;
    view.n = t->shape[t->rank - 1];
    bool empty = view.n == 0;
    // the type has 128 bits, so that invalid strides cannot cause an overflow
    __int128 first = t->offset;
    __int128 last = first + static_cast<__int128>(view.n) / keel_dtype_block(t->dtype) *
                                keel_dtype_bytes(t->dtype);
    for (uint32_t i = 0; i + 1 < t->rank; ++i) {
        const size_t place = 3 - (t->rank - 1) + i;
        view.outer[place] = t->shape[i];
        view.stride[place] = t->stride[i];
        empty |= t->shape[i] == 0;
        const __int128 reach = static_cast<__int128>(t->shape[i] - 1) * t->stride[i];
        (reach < 0 ? first : last) += reach;
    }
    if (!empty && (first < 0 || last > static_cast<__int128>(buffer.size))) {
        refuse(KEEL_E_INVALID_ARG, "a tensor does not fit into its buffer");
    }
    view.data = empty ? buffer.data : buffer.data + t->offset;
    return view;
}

Row load(const std::byte *at, keel_dtype dtype, int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    convert_to_f32(dtype, at, values.data(), values.size());
    return {values.begin(), values.end()};
}

void store(std::byte *at, keel_dtype dtype, const Row &values) {
    const std::vector<float> rounded(values.begin(), values.end());
    convert_from_f32(dtype, rounded.data(), at, rounded.size());
}

double dot(const Row &a, const Row &b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

Cache::Cache(const keel_kv_view &kv)
    : k_(bind(kv.k)), v_(bind(kv.v)), table_(bind(kv.block_table)), lengths_(bind(kv.lengths)),
      positions_(bind(kv.positions)), block_slots_(kv.block_slots), heads_(kv.kv_heads),
      max_length_(kv.max_length) {}

int64_t Cache::length(int64_t head) const {
    const int32_t length = lengths_.integer(head);
    if (length < 0 || length > max_length_)
        refuse(KEEL_E_INVALID_ARG, "a cache length is negative or above max_length");
    return length;
}

std::byte *Cache::row(const View &arena, int64_t head, int64_t slot) const {
    const int64_t place = slot / block_slots_;
    const int32_t block = slot >= 0 && place < table_.n ? table_.integer(head, place) : -1;
    if (block < 0 || block >= arena.outer[1])
        refuse(KEEL_E_INVALID_ARG, "a cache slot has no block");
    return arena.row(block, slot % block_slots_);
}

int32_t Cache::position(int64_t head, int64_t slot) const {
    if (slot < 0 || slot >= positions_.n)
        refuse(KEEL_E_INVALID_ARG, "a cache slot has no position");
    return positions_.integer(head, slot);
}

void Cache::set_position(int64_t head, int64_t slot, int32_t position) const {
    if (slot < 0 || slot >= positions_.n)
        refuse(KEEL_E_INVALID_ARG, "a cache slot has no position");
    View::set(positions_.row(head), slot, position);
}

} // namespace keel::reference
