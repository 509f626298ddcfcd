#include "kv/store/kv_shape.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

uint64_t KvShape::bytes_per_token() const {
    return uint64_t{layers} * kv_heads *
           (keel_dtype_row_bytes(key_dtype, head_dim) +
            keel_dtype_row_bytes(value_dtype, head_dim));
}

int64_t KvShape::held_slots(int64_t tokens) const {
    if (window == 0) return tokens;
    const int64_t block = block_slots, unseen = std::max<int64_t>(0, tokens - window + 1);
    return tokens - std::max<int64_t>(0, unseen / block - 1) * block;
}

std::string KvShape::cap_text() const {
    // rounds the number, because 0.1 MiB is not a whole number of bytes
    const auto mib = [](uint64_t bytes) {
        return std::round(1e4 * static_cast<double>(bytes) / bytes_per_mib) / 1e4;
    };
    std::string text = fmt::format("kv.max_mib = {:.6g}", mib(max_bytes + cap_beside));
    if (cap_beside > 0)
        text += fmt::format(" (of which attention windows take {:.6g})", mib(cap_beside));
    return text;
}

uint64_t KvShape::bytes_of(int64_t slots) const {
    const int64_t block = block_slots;
    return static_cast<uint64_t>((slots + block - 1) / block) * block_bytes() * layers * kv_heads;
}

uint64_t KvShape::book_bytes() const {
    const uint64_t heads_in_all = uint64_t{layers} * kv_heads;
    const auto blocks = static_cast<uint64_t>(blocks_per_head());
    // Positions and the block table are stored once on the device and once on the host.
    const uint64_t per_head =
        2 * sizeof(int32_t) * static_cast<uint64_t>(max_slots) + 3 * sizeof(int32_t) * blocks;
    const uint64_t gather =
        kv_heads * sizeof(int32_t) * (static_cast<uint64_t>(max_slots) + blocks);
    const uint64_t owners = layers * sizeof(uint32_t) * static_cast<uint64_t>(capacity_blocks());
    return heads_in_all * per_head + gather + owners;
}

void KvShape::check() const {
    for (const auto &[key, dtype] :
         {std::pair{"kv.key_dtype", key_dtype}, std::pair{"kv.value_dtype", value_dtype}}) {
        const uint32_t block = keel_dtype_block(dtype);
        if (block == 0) throw_key_error(ErrorKind::input, key, "unknown dtype {}", dtype);
        if (head_dim % block != 0) {
            throw_key_error(ErrorKind::input, key,
                            "{} stores {} values in a block, but this model's heads have {} "
                            "values; use f16 or bf16",
                            keel_dtype_name(dtype), block, head_dim);
        }
    }
    if (max_slots <= 0 || max_slots > most_slots) {
        throw_key_error(ErrorKind::input, "model.context", "expected 1 to {} tokens, found {}; {}",
                        most_slots, max_slots,
                        max_slots > 0 ? "lower model.context" : "raise model.context");
    }
    if (layers == 0 || kv_heads == 0 || (block_slots & (block_slots - 1)) != 0 ||
        block_slots == 0) {
        throw_error(ErrorKind::internal,
                    "a KV cache cannot have {} layers, {} heads and {} slots in blocks of {}",
                    layers, kv_heads, max_slots, block_slots);
    }
}

int64_t window_slots(int64_t window, int64_t step_tokens, uint32_t block_slots) {
    const int64_t block = block_slots, slots = window + step_tokens + 2 * block;
    return (slots + block - 1) / block * block;
}

KvTemplate::KvTemplate(const KvShape &s)
    : k_(Tensor::shape(s.key_dtype, {s.capacity_blocks(), s.block_slots, s.head_dim})),
      v_(Tensor::shape(s.value_dtype, {s.capacity_blocks(), s.block_slots, s.head_dim})),
      table_(Tensor::shape(KEEL_DTYPE_I32, {s.kv_heads, s.blocks_per_head()})),
      lengths_(Tensor::shape(KEEL_DTYPE_I32, {s.kv_heads})),
      positions_(Tensor::shape(KEEL_DTYPE_I32, {s.kv_heads, s.blocks_per_head() * s.block_slots})) {
    view_.k = k_.c();
    view_.v = v_.c();
    view_.block_table = table_.c();
    view_.lengths = lengths_.c();
    view_.positions = positions_.c();
    view_.block_slots = s.block_slots;
    view_.kv_heads = s.kv_heads;
    view_.max_length = s.max_slots;
}

} // namespace keel
