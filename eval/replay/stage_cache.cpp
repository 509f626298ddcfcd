#include "eval/replay/stage.hpp"

#include <algorithm>

namespace keel {
namespace {

constexpr int64_t most_slots = int64_t{1} << 22;
constexpr int64_t most_elements = int64_t{1} << 25; // limit for the elements of an arena

std::vector<std::byte> as_bytes(const std::vector<int32_t> &values) {
    const auto *begin = reinterpret_cast<const std::byte *>(values.data());
    return {begin, begin + values.size() * sizeof(int32_t)};
}

std::vector<std::byte> zeros(keel_dtype dtype, int64_t n) {
    return std::vector<std::byte>(keel_dtype_row_bytes(dtype, static_cast<uint64_t>(n)));
}

} // namespace

// Makes a cache in which each head has its own blocks, in order. The rows have the saved values.
// Rows that the op writes have zeros.
const keel_kv_view *OpStage::cache(keel_kv_view &view, Rows rows) {
    const SavedTensor &lengths = saved_.need("in", "kv.lengths");
    if (lengths.dtype != KEEL_DTYPE_I32 || lengths.shape.size() != 1)
        misfit(saved_, "kv.lengths: expected i32 [kv_heads]");
    const std::vector<int32_t> held = lengths.ints();
    const auto heads = static_cast<int64_t>(held.size());
    if (heads != static_cast<int64_t>(saved_.scalar("kv_heads", 1, 4096)))
        misfit(saved_, "kv.lengths and the scalar 'kv_heads' have different numbers of heads");
    int64_t longest = 0;
    for (const int32_t length : held) {
        if (length < 0 || length > most_slots)
            misfit(saved_,
                   fmt::format("kv.lengths: found {}, expected 0 to {}", length, most_slots));
        longest = std::max<int64_t>(longest, length);
    }
    const int64_t slots = device_->info().kv_block_slots;
    const int64_t blocks = std::max<int64_t>((longest + slots - 1) / slots, 1);
    const auto head_dim = static_cast<int64_t>(saved_.scalar("head_dim", 1, 65536));
    const auto value_dim = static_cast<int64_t>(saved_.scalar("v_head_dim", 1, 65536));
    if (heads * blocks * slots * std::max(head_dim, value_dim) > most_elements)
        misfit(saved_, "the cache is larger than the limit for saved caches");
    const keel_dtype key = saved_dtype(saved_, "key_dtype");
    const keel_dtype value = saved_dtype(saved_, "value_dtype");
    if (head_dim % keel_dtype_block(key) != 0 || value_dim % keel_dtype_block(value) != 0)
        misfit(saved_, "the head size is not a multiple of the block size of the cache's dtype");
    std::vector<int32_t> table(static_cast<size_t>(heads * blocks));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    const auto place = [&](Tensor t) {
        tensors_.push_back(std::move(t));
        return tensors_.back().c();
    };
    view.k = place(make(key, {heads * blocks, slots, head_dim},
                        zeros(key, heads * blocks * slots * head_dim)));
    view.v = place(make(value, {heads * blocks, slots, value_dim},
                        zeros(value, heads * blocks * slots * value_dim)));
    view.block_table = place(make(KEEL_DTYPE_I32, {heads, blocks}, as_bytes(table)));
    view.lengths = place(make(KEEL_DTYPE_I32, {heads}, as_bytes(held)));
    view.positions = place(make(KEEL_DTYPE_I32, {heads, blocks * slots},
                                zeros(KEEL_DTYPE_I32, heads * blocks * slots)));
    view.block_slots = static_cast<uint32_t>(slots);
    view.kv_heads = static_cast<uint32_t>(heads);
    view.max_length = longest;
    if (rows == Rows::saved) fill_cache(view, held);
    return &view;
}

void OpStage::fill_cache(const keel_kv_view &view, const std::vector<int32_t> &lengths) {
    int64_t total = 0;
    std::vector<std::pair<int64_t, int64_t>> rows;
    for (size_t head = 0; head < lengths.size(); ++head) {
        total += lengths[head];
        for (int64_t slot = 0; slot < lengths[head]; ++slot) rows.emplace_back(head, slot);
    }
    for (const bool keys : {true, false}) {
        const SavedTensor &t = saved_.need("in", keys ? "kv.k" : "kv.v");
        const int64_t inner = (keys ? view.k : view.v)->shape[2];
        if (t.dtype != KEEL_DTYPE_F32 || t.shape != std::vector<int64_t>{total, inner})
            misfit(saved_, fmt::format("expected f32 [{}, {}] for '{}'", total, inner, t.name));
        TensorValues values;
        values.shape = t.shape;
        values.rows = rows;
        values.values = t.floats();
        write_kv(*device_, view, keys, values);
    }
    const SavedTensor *positions = saved_.find("in", "kv.positions");
    if (positions == nullptr || !positions->present) return;
    if (positions->dtype != KEEL_DTYPE_I32 || positions->elements() != total)
        misfit(saved_, fmt::format("kv.positions: expected i32 [{}]", total));
    const std::vector<int32_t> given = positions->ints();
    std::vector<int32_t> placed(
        static_cast<size_t>(view.positions->shape[0] * view.positions->shape[1]));
    for (size_t i = 0; i < rows.size(); ++i)
        placed[static_cast<size_t>(rows[i].first * view.positions->shape[1] + rows[i].second)] =
            given[i];
    for (const Tensor &t : tensors_) {
        if (t.c() == view.positions) t.write(placed.data());
    }
}

} // namespace keel
