#include "kv/evict/rerotation.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

Rerotation::Rerotation(PolicySetup &setup, keel_buffer_kind placement, int64_t prefix)
    : setup_(setup), placement_(placement), protected_(prefix),
      prefix_(setup.keeps_pristine() ? 0 : prefix), captured_(setup.shape().layers, 0) {
    const size_t rows = size_t{setup.shape().layers} * setup.shape().kv_heads;
    origin_.assign(rows * static_cast<size_t>(prefix_), 0);
}

void Rerotation::make_buffers() {
    if (!cos_.empty()) return;
    const KvShape &s = setup_.shape();
    Device &device = setup_.executor().device();
    const auto half = static_cast<int64_t>(setup_.config().rope_frequencies.size());
    const int64_t slots = s.blocks_per_head() * s.block_slots;
    cos_ = Tensor::allocate(device, KEEL_DTYPE_F32, {RerotationOps::table_rows, half}, placement_);
    sin_ = Tensor::allocate(device, KEEL_DTYPE_F32, {RerotationOps::table_rows, half}, placement_);
    row_ = Tensor::allocate(device, KEEL_DTYPE_I32, {s.kv_heads, slots}, placement_);
    new_positions_ = Tensor::allocate(device, KEEL_DTYPE_I32, {s.kv_heads, slots}, placement_);
    if (prefix_ > 0) {
        pristine_ =
            Tensor::allocate(device, KEEL_DTYPE_F32,
                             {int64_t{s.layers} * s.kv_heads, prefix_, s.head_dim}, placement_);
    }
    host_cos_.resize(static_cast<size_t>(RerotationOps::table_rows * half));
    host_sin_.resize(host_cos_.size());
}

// Copies the keys of the protected prefix. Protected slots are never compacted. So the cache holds
// the original keys until they are rotated for the first time.
void Rerotation::capture(KvCache &cache, uint32_t layer) {
    const KvShape &s = setup_.shape();
    int64_t length = prefix_;
    for (uint32_t h = 0; h < s.kv_heads; ++h) length = std::min(length, cache.length(layer, h));
    int64_t &captured = captured_[layer];
    if (captured >= length) return;
    const Tensor out = pristine_.rows(int64_t{layer} * s.kv_heads, s.kv_heads);
    keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
    args.kv = cache.view(layer);
    args.out = out.c();
    args.begin = captured;
    args.end = length;
    setup_.executor().run(*setup_.rerotation().capture, args);
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        const size_t at = (size_t{layer} * s.kv_heads + h) * static_cast<size_t>(prefix_);
        for (int64_t j = captured; j < length; ++j)
            origin_[at + static_cast<size_t>(j)] =
                cache.positions(layer, h)[static_cast<size_t>(j)];
    }
    captured = length;
}

bool Rerotation::is_due(const KvCache &cache, uint32_t layer, int64_t seen, int64_t coming) const {
    const CacheConfig &config = setup_.config();
    if (config.positions == KvPositions::rerotated) return true;
    if (config.trained_context <= 0) return false;
    int64_t oldest = seen;
    for (uint32_t h = 0; h < setup_.shape().kv_heads; ++h) {
        const auto positions = cache.positions(layer, h);
        if (!positions.empty()) oldest = std::min<int64_t>(oldest, positions.front());
    }
    return seen + coming - oldest > config.trained_context;
}

int64_t Rerotation::close(KvCache &cache, uint32_t layer) {
    const KvShape &s = setup_.shape();
    int64_t moved_end = 0; // end of the slots that must move
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        const auto positions = cache.positions(layer, h);
        const int64_t length = std::ssize(positions);
        for (int64_t j = length - 1; j >= moved_end; --j) {
            if (positions[static_cast<size_t>(j)] == positions.back() - (length - 1 - j)) continue;
            moved_end = j + 1;
            break;
        }
    }
    if (moved_end == 0) return 0;
    if (setup_.keeps_pristine()) return close_quantized(cache, layer, moved_end);
    make_buffers();
    int64_t moved = 0;
    if (prefix_ > 0) {
        capture(cache, layer);
        const Tensor whole = pristine_.rows(int64_t{layer} * s.kv_heads, s.kv_heads);
        const size_t first = size_t{layer} * s.kv_heads * static_cast<size_t>(prefix_);
        const Source source = {*whole.c(), [this, first](uint32_t head, int64_t slot) {
                                   return origin_[first + head * static_cast<size_t>(prefix_) +
                                                  static_cast<size_t>(slot)];
                               }};
        moved += move(cache, layer, 0, std::min(prefix_, moved_end), &source);
    }
    if (moved_end > prefix_) moved += move(cache, layer, prefix_, moved_end, nullptr);
    return moved;
}

int64_t Rerotation::close_quantized(KvCache &cache, uint32_t layer, int64_t end) {
    make_buffers();
    if (!copies_) copies_ = std::make_unique<PristineKeys>(setup_, cache, placement_);
    std::vector<int64_t> ends; // for each head, end of the slots that must move
    for (uint32_t h = 0; h < setup_.shape().kv_heads; ++h) {
        const auto positions = cache.positions(layer, h);
        const int64_t length = std::ssize(positions);
        int64_t j = std::min(length, end);
        while (j > 0 && positions[static_cast<size_t>(j - 1)] == positions.back() - (length - j))
            --j;
        ends.push_back(j);
    }
    const Source source = {
        *copies_->take(cache, layer, ends).c(),
        [this, layer](uint32_t head, int64_t slot) { return copies_->origin(layer, head, slot); }};
    return move(cache, layer, 0, end, &source);
}

void Rerotation::record_compact(uint32_t layer, const KeepLists &keep) {
    if (copies_) copies_->record_compact(layer, keep);
}

uint64_t Rerotation::work_bytes() const {
    return held_bytes(pristine_) + held_bytes(origin_) + held_bytes(cos_) + held_bytes(sin_) +
           held_bytes(row_) + held_bytes(new_positions_) + held_bytes(host_row_) +
           held_bytes(host_positions_) + held_bytes(host_cos_) + held_bytes(host_sin_) +
           (copies_ ? copies_->work_bytes() : 0);
}

uint64_t Rerotation::work_bytes(const PolicySetup &setup, int64_t context, int64_t held) {
    const KvShape &s = setup.shape();
    if (!setup.may_move_keys()) return 0;
    const auto blocks = static_cast<uint64_t>((context + s.block_slots - 1) / s.block_slots);
    const uint64_t slots = blocks * s.block_slots, f32 = sizeof(float);
    const uint64_t tables = static_cast<uint64_t>(RerotationOps::table_rows) *
                            setup.config().rope_frequencies.size() * f32;
    const uint64_t work = 4 * (s.kv_heads * slots * sizeof(int32_t) + tables);
    if (setup.keeps_pristine())
        return work + s.kv_heads * static_cast<uint64_t>(held) * s.head_dim * f32;
    const auto prefix = static_cast<uint64_t>(setup.config().protect_prefix);
    return work + uint64_t{s.layers} * s.kv_heads * prefix * (s.head_dim * f32 + sizeof(int32_t));
}

bool Rerotation::can_hold(const KvCache &cache, std::span<const KeepLists> keep,
                          std::string *why) const {
    return !setup_.keeps_pristine() || PristineKeys::fits(setup_, cache, keep, why);
}

// Rotates the keys of slots begin..end-1 to their new positions. One call of the op can rotate keys
// by at most `rerotate_rows` different shifts.
int64_t Rerotation::move(KvCache &cache, uint32_t layer, int64_t begin, int64_t end,
                         const Source *source) {
    const KvShape &s = setup_.shape();
    const auto width = static_cast<size_t>(end);
    const size_t cells = s.kv_heads * width;
    host_row_.assign(cells, -1);
    host_positions_.assign(cells, 0);
    shifts_.clear();
    int64_t moved = 0;
    size_t last = 0;
    const auto row_of = [&](int64_t shift) {
        // Neighbouring slots usually have the same shift.
        if (last < shifts_.size() && shifts_[last] == shift) return static_cast<int32_t>(last);
        auto found = std::find(shifts_.begin(), shifts_.end(), shift);
        if (found == shifts_.end() && std::ssize(shifts_) == RerotationOps::table_rows) {
            run_move(cache, layer, begin, end, source);
            std::fill(host_row_.begin(), host_row_.end(), -1);
            shifts_.clear();
            found = shifts_.end();
        }
        if (found == shifts_.end()) found = shifts_.insert(found, shift);
        last = static_cast<size_t>(found - shifts_.begin());
        return static_cast<int32_t>(last);
    };
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        const int64_t length = cache.length(layer, h);
        for (int64_t j = begin; j < std::min(end, length); ++j) {
            const auto slot = static_cast<size_t>(j);
            const auto positions = cache.positions(layer, h);
            const auto target = static_cast<int32_t>(positions.back() - (length - 1 - j));
            const int32_t now = positions[slot];
            if (target == now) continue;
            host_row_[h * width + slot] =
                row_of(int64_t{target} - (source != nullptr ? source->origin(h, j) : now));
            host_positions_[h * width + slot] = target;
            cache.set_positions(layer, h, j, {&target, 1});
            ++moved;
        }
    }
    if (!shifts_.empty()) run_move(cache, layer, begin, end, source);
    return moved;
}

void Rerotation::run_move(KvCache &cache, uint32_t layer, int64_t begin, int64_t end,
                          const Source *source) {
    const KvShape &s = setup_.shape();
    write_tables(layer);
    const Tensor row(row_.buffer(), 0, KEEL_DTYPE_I32, {s.kv_heads, end});
    const Tensor positions(new_positions_.buffer(), 0, KEEL_DTYPE_I32, {s.kv_heads, end});
    row.write(host_row_.data());
    positions.write(host_positions_.data());
    keel_rope_tables tables = {KEEL_HEADER(keel_rope_tables)};
    tables.cos = cos_.c();
    tables.sin = sin_.c();
    tables.mode = setup_.config().rope_mode;
    tables.rot = static_cast<uint32_t>(2 * setup_.config().rope_frequencies.size());
    keel_kv_rerotate_args args = {KEEL_HEADER(keel_kv_rerotate_args)};
    args.kv = cache.view(layer);
    args.tables = &tables;
    args.row = row.c();
    args.new_positions = positions.c();
    args.begin = begin;
    args.end = end;
    if (source == nullptr) {
        setup_.executor().run(*setup_.rerotation().rerotate, args);
        return;
    }
    // The source of the op must have exactly the slots of the range, but the copy can have more
    // slots.
    keel_tensor part = source->keys;
    part.shape[1] = end;
    args.features = KEEL_REROTATE_SOURCE;
    args.source = &part;
    setup_.executor().run(*setup_.rerotation().restore, args);
}

void Rerotation::write_tables(uint32_t layer) {
    const auto &frequencies = setup_.config().rope_frequencies_of(layer);
    const size_t half = frequencies.size();
    for (size_t r = 0; r < shifts_.size(); ++r) {
        for (size_t f = 0; f < half; ++f) {
            const double angle = static_cast<double>(shifts_[r]) * frequencies[f];
            host_cos_[r * half + f] = static_cast<float>(std::cos(angle));
            host_sin_[r * half + f] = static_cast<float>(std::sin(angle));
        }
    }
    const auto rows = static_cast<int64_t>(shifts_.size());
    cos_.rows(0, rows).write(host_cos_.data());
    sin_.rows(0, rows).write(host_sin_.data());
}

void Rerotation::truncate(const KvCache &cache) {
    const KvShape &s = setup_.shape();
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h)
            captured_[l] = std::min(captured_[l], cache.length(l, h));
    }
    if (copies_) copies_->truncate(cache);
}

std::unique_ptr<Rerotation> Rerotation::fork(PolicySetup &setup, KvCache &cache) const {
    return copy_to(setup, cache, placement_);
}

std::unique_ptr<Rerotation> Rerotation::take_over(PolicySetup &setup, KvCache &cache,
                                                  keel_buffer_kind placement) const {
    if (setup.shape().key_dtype == setup_.shape().key_dtype)
        return copy_to(setup, cache, placement);
    return std::make_unique<Rerotation>(setup, placement, protected_);
}

std::unique_ptr<Rerotation> Rerotation::copy_to(PolicySetup &setup, KvCache &cache,
                                                keel_buffer_kind placement) const {
    auto copy = std::make_unique<Rerotation>(setup, placement, protected_);
    copy->captured_ = captured_;
    copy->origin_ = origin_;
    if (!pristine_.empty()) {
        copy->make_buffers();
        copy->pristine_.write(pristine_.read<float>().data());
    }
    if (copies_) {
        copy->copies_ = std::make_unique<PristineKeys>(setup, cache, placement);
        copy->copies_->copy_from(*copies_);
    }
    return copy;
}

void Rerotation::save(StateWriter &out) const {
    if (setup_.keeps_pristine()) {
        out.put(uint8_t{copies_ != nullptr});
        if (copies_) copies_->save(out);
        return;
    }
    const KvShape &s = setup_.shape();
    const std::vector<float> rows =
        pristine_.empty() ? std::vector<float>{} : pristine_.read<float>();
    for (uint32_t l = 0; l < s.layers; ++l) {
        const auto captured = static_cast<size_t>(captured_[l]);
        out.put(captured_[l]);
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            const size_t at = (size_t{l} * s.kv_heads + h) * static_cast<size_t>(prefix_);
            out.put_all<int32_t>(std::span(origin_).subspan(at, captured));
            if (captured > 0)
                out.put_all<float>(std::span(rows).subspan(at * s.head_dim, captured * s.head_dim));
        }
    }
}

void Rerotation::load(StateReader &in, KvCache &cache) {
    if (setup_.keeps_pristine()) {
        copies_.reset();
        if (in.get<uint8_t>("keys that were rotated") == 0) return;
        copies_ = std::make_unique<PristineKeys>(setup_, cache, placement_);
        copies_->load(in, cache);
        return;
    }
    const KvShape &s = setup_.shape();
    std::vector<float> rows, read;
    std::vector<int32_t> origins;
    std::fill(captured_.begin(), captured_.end(), 0);
    for (uint32_t l = 0; l < s.layers; ++l) {
        int64_t most = prefix_;
        for (uint32_t h = 0; h < s.kv_heads; ++h) most = std::min(most, cache.length(l, h));
        const auto captured =
            static_cast<size_t>(in.get_count("protected keys of a layer", 0, most));
        for (uint32_t h = 0; h < s.kv_heads && captured > 0; ++h) {
            make_buffers();
            rows.resize(origin_.size() * s.head_dim);
            const size_t at = (size_t{l} * s.kv_heads + h) * static_cast<size_t>(prefix_);
            in.get_all<int32_t>(origins, captured, "positions of protected keys");
            in.get_all<float>(read, uint64_t{captured} * s.head_dim, "protected keys");
            std::copy(origins.begin(), origins.end(),
                      origin_.begin() + static_cast<std::ptrdiff_t>(at));
            std::copy(read.begin(), read.end(),
                      rows.begin() + static_cast<std::ptrdiff_t>(at * s.head_dim));
        }
        captured_[l] = static_cast<int64_t>(captured);
    }
    if (!rows.empty()) pristine_.write(rows.data());
}

} // namespace keel
