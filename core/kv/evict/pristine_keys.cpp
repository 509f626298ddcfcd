#include "kv/evict/pristine_keys.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>
#include <numeric>

namespace keel {

PristineKeys::PristineKeys(PolicySetup &setup, KvCache &cache, keel_buffer_kind placement)
    : setup_(setup), arena_(cache.arena()), placement_(placement), layers_(setup.shape().layers),
      origins_(size_t{setup.shape().layers} * setup.shape().kv_heads), sources_(origins_.size()) {}

PristineKeys::~PristineKeys() {
    for (Layer &layer : layers_) resize(layer, 0);
}

bool PristineKeys::fits(const PolicySetup &setup, const KvCache &cache,
                        std::span<const KeepLists> keep, std::string *why) {
    const KvShape &s = setup.shape();
    if (s.max_bytes == 0) return true;
    const KvArena &arena = cache.arena();
    uint64_t wanted = arena.bytes_in_use() + arena.bytes_set_aside() - cache.bytes_in_use();
    for (const KeepLists &layer : keep) {
        size_t longest = 0;
        for (const auto &list : layer) {
            longest = std::max(longest, list.size());
            wanted += (list.size() + s.block_slots - 1) / s.block_slots * s.block_bytes();
        }
        wanted += s.kv_heads * longest * keel_dtype_row_bytes(s.key_dtype, s.head_dim);
    }
    if (wanted <= s.max_bytes) return true;
    if (why != nullptr) {
        *why =
            fmt::format("to rotate {} keys again (policy.positions), Keel needs a copy of the "
                        "keys; the cache and this copy need {:.6g} MiB, but the limit is {}; raise "
                        "kv.max_mib, lower policy.budget, or use policy.positions: absolute",
                        keel_dtype_name(s.key_dtype), static_cast<double>(wanted) / bytes_per_mib,
                        s.cap_text());
    }
    return false;
}

void PristineKeys::resize(Layer &layer, int64_t slots) {
    const auto bytes = [&](int64_t n) {
        return setup_.shape().kv_heads * static_cast<uint64_t>(n) * row_bytes();
    };
    arena_.count_extra(bytes(slots), bytes(layer.slots));
    layer.slots = slots;
    if (slots == 0) layer.codes = {};
}

void PristineKeys::record_compact(uint32_t layer, const KeepLists &keep) {
    for (uint32_t h = 0; h < keep.size(); ++h) {
        auto &origins = origins_[row(layer, h)], &sources = sources_[row(layer, h)];
        const int64_t before = std::ssize(origins);
        size_t n = 0;
        for (const int32_t slot : keep[h]) {
            if (slot >= before) break;
            origins[n] = origins[static_cast<size_t>(slot)];
            sources[n++] = sources[static_cast<size_t>(slot)];
        }
        origins.resize(n);
        sources.resize(n);
    }
}

// Collects the original keys of a head as f32, in the order of its slots.
void PristineKeys::gather(uint32_t layer, uint32_t head, int64_t slots) {
    const auto &sources = sources_[row(layer, head)];
    const auto n = std::ssize(sources);
    if (n == 0) return;
    const KvShape &s = setup_.shape();
    const Tensor ids = ids_.rows(0, n);
    ids.write(sources.data());
    const Layer &from = layers_[layer];
    const Tensor codes = from.codes.reshape({s.kv_heads * from.slots, s.head_dim})
                             .rows(head * from.slots, from.slots);
    const Tensor out = rows_.reshape({s.kv_heads * slots, s.head_dim}).rows(head * slots, n);
    keel_embed_args args = {KEEL_HEADER(keel_embed_args)};
    args.ids = ids.c();
    args.w = codes.c();
    args.out = out.c();
    args.scale = 1;
    setup_.executor().run(*setup_.rerotation().read_pristine, args);
}

const Tensor &PristineKeys::take(const KvCache &cache, uint32_t layer,
                                 std::span<const int64_t> ends) {
    const KvShape &s = setup_.shape();
    Executor &executor = setup_.executor();
    int64_t slots = 0, fresh = s.max_slots;
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        slots = std::max({slots, ends[h], held(layer, h)});
        if (ends[h] > held(layer, h)) fresh = std::min(fresh, held(layer, h));
    }
    const auto elements = static_cast<uint64_t>(s.kv_heads * slots * s.head_dim);
    if (room_.empty() || room_.buffer()->size() < elements * sizeof(float)) {
        room_ = {};
        room_ = Tensor::allocate(executor.device(), KEEL_DTYPE_F32,
                                 {static_cast<int64_t>(elements)}, placement_);
    }
    if (ids_.empty())
        ids_ = Tensor::allocate(executor.device(), KEEL_DTYPE_I32, {s.max_slots}, placement_);
    rows_ = Tensor(room_.buffer(), 0, KEEL_DTYPE_F32, {s.kv_heads, slots, s.head_dim});
    // Until a key moves for the first time, the cache holds its original. So the op reads keys from
    // the cache. It writes a row for every key. The code below overwrites the rows of keys that
    // moved earlier.
    if (fresh < slots) {
        keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
        args.kv = cache.view(layer);
        args.out = rows_.c();
        args.begin = fresh;
        args.end = slots;
        executor.run(*setup_.rerotation().capture, args);
    }
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        gather(layer, h, slots);
        auto &origins = origins_[row(layer, h)], &sources = sources_[row(layer, h)];
        const auto positions = cache.positions(layer, h);
        for (int64_t j = std::ssize(origins); j < ends[h]; ++j)
            origins.push_back(positions[static_cast<size_t>(j)]);
        sources.resize(origins.size());
        std::iota(sources.begin(), sources.end(), 0);
    }
    Layer &to = layers_[layer];
    resize(to, slots);
    const uint64_t bytes = s.kv_heads * static_cast<uint64_t>(slots) * row_bytes();
    if (to.codes.empty() || to.codes.buffer()->size() < bytes ||
        to.codes.buffer()->size() > 2 * bytes) {
        to.codes = {};
        to.codes = Tensor::allocate(executor.device(), s.key_dtype, {s.kv_heads, slots, s.head_dim},
                                    placement_);
    } else {
        to.codes = Tensor(to.codes.buffer(), 0, s.key_dtype, {s.kv_heads, slots, s.head_dim});
    }
    keel_move_args args = {KEEL_HEADER(keel_move_args)};
    args.x = rows_.c();
    args.out = to.codes.c();
    executor.run(*setup_.rerotation().write_pristine, args);
    return rows_;
}

uint64_t PristineKeys::bytes() const {
    uint64_t slots = 0;
    for (const Layer &layer : layers_) slots += static_cast<uint64_t>(layer.slots);
    return slots * setup_.shape().kv_heads * row_bytes();
}

void PristineKeys::truncate(const KvCache &cache) {
    for (uint32_t l = 0; l < setup_.shape().layers; ++l) {
        for (uint32_t h = 0; h < setup_.shape().kv_heads; ++h) {
            const auto n = static_cast<size_t>(std::min(held(l, h), cache.length(l, h)));
            origins_[row(l, h)].resize(n);
            sources_[row(l, h)].resize(n);
        }
    }
}

void PristineKeys::copy_from(const PristineKeys &other) {
    const KvShape &s = setup_.shape();
    origins_ = other.origins_;
    sources_ = other.sources_;
    for (size_t l = 0; l < layers_.size(); ++l) {
        const Layer &from = other.layers_[l];
        resize(layers_[l], from.slots);
        if (from.slots == 0) continue;
        layers_[l].codes = Tensor::allocate(setup_.executor().device(), s.key_dtype,
                                            {s.kv_heads, from.slots, s.head_dim}, placement_);
        layers_[l].codes.write(from.codes.read<std::byte>().data());
    }
}

void PristineKeys::save(StateWriter &out) const {
    const KvShape &s = setup_.shape();
    for (uint32_t l = 0; l < s.layers; ++l) {
        const Layer &from = layers_[l];
        const auto codes =
            from.slots == 0 ? std::vector<std::byte>{} : from.codes.read<std::byte>();
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            out.put(held(l, h));
            out.put_all<int32_t>(origins_[row(l, h)]);
            for (const int32_t source : sources_[row(l, h)]) {
                const auto at =
                    (h * static_cast<uint64_t>(from.slots) + static_cast<uint64_t>(source)) *
                    row_bytes();
                out.write(codes.data() + at, static_cast<size_t>(row_bytes()));
            }
        }
    }
}

void PristineKeys::load(StateReader &in, const KvCache &cache) {
    const KvShape &s = setup_.shape();
    for (uint32_t l = 0; l < s.layers; ++l) {
        std::vector<std::span<const std::byte>> rows;
        int64_t slots = 0;
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            auto &origins = origins_[row(l, h)];
            const int64_t n = in.get_count("keys that were rotated", 0, cache.length(l, h));
            in.get_all<int32_t>(origins, static_cast<uint64_t>(n),
                                "positions of keys that were rotated");
            rows.push_back(
                in.take(static_cast<uint64_t>(n) * row_bytes(), "keys before they were rotated"));
            sources_[row(l, h)].resize(origins.size());
            std::iota(sources_[row(l, h)].begin(), sources_[row(l, h)].end(), 0);
            slots = std::max(slots, n);
        }
        const uint64_t bytes = s.kv_heads * static_cast<uint64_t>(slots) * row_bytes();
        if (s.max_bytes != 0 &&
            arena_.bytes_in_use() + arena_.bytes_set_aside() + bytes > s.max_bytes)
            in.fail("the KV cache of the session and the copies of keys before rotation are "
                    "together larger than kv.max_mib; raise kv.max_mib");
        resize(layers_[l], slots);
        if (slots == 0) continue;
        std::vector<std::byte> codes(static_cast<size_t>(bytes));
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            std::copy(rows[h].begin(), rows[h].end(),
                      codes.begin() + static_cast<std::ptrdiff_t>(h * static_cast<uint64_t>(slots) *
                                                                  row_bytes()));
        }
        layers_[l].codes = Tensor::allocate(setup_.executor().device(), s.key_dtype,
                                            {s.kv_heads, slots, s.head_dim}, placement_);
        layers_[l].codes.write(codes.data());
    }
}

} // namespace keel
