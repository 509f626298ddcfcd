#include "kv/inputs/key_unrotation.hpp"

#include "device/device.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

const keel_kv_view *KeyUnrotation::prepare(const KvCache &cache, uint32_t layer) {
    const KvShape &s = setup_.shape();
    const std::vector<double> &frequencies = setup_.config().rope_frequencies_of(layer);
    Device &device = setup_.executor().device();
    wanted_.clear();
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        const auto positions = cache.positions(layer, h);
        wanted_.insert(wanted_.end(), positions.begin(), positions.end());
    }
    std::sort(wanted_.begin(), wanted_.end());
    wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
    const auto half = static_cast<int64_t>(frequencies.size());
    if (wanted_ != distinct_ ||
        frequencies_ != &frequencies) { // usually all layers hold the same positions
        distinct_ = wanted_;
        frequencies_ = &frequencies;
        const auto n = std::max<int64_t>(1, std::ssize(distinct_));
        if (cos_.empty() || cos_.dim(0) < n) {
            cos_ = sin_ = {};
            cos_ = Tensor::allocate(device, KEEL_DTYPE_F32, {n, half}, placement_);
            sin_ = Tensor::allocate(device, KEEL_DTYPE_F32, {n, half}, placement_);
        }
        write_tables(frequencies, setup_.config().rope_factor_of(layer));
        tables_.cos = cos_.c();
        tables_.sin = sin_.c();
        tables_.mode = setup_.config().rope_mode;
        tables_.rot = static_cast<uint32_t>(2 * half);
    }
    const int64_t slots = cache.max_length();
    if (rows_.empty() || rows_.dim(1) != slots)
        rows_ = Tensor::allocate(device, KEEL_DTYPE_I32, {s.kv_heads, slots}, placement_);
    std::vector<int32_t> rows(s.kv_heads * static_cast<size_t>(slots), 0);
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        auto at = distinct_.begin(); // positions of a head ascend
        auto out = rows.begin() + static_cast<std::ptrdiff_t>(h * static_cast<size_t>(slots));
        for (const int32_t position : cache.positions(layer, h)) {
            at = std::lower_bound(at, distinct_.end(), position);
            *out++ = static_cast<int32_t>(at - distinct_.begin());
        }
    }
    rows_.write(rows.data());
    view_ = *cache.view(layer);
    view_.positions = rows_.c();
    return &view_;
}

// Writes the tables in parts, because they have as many rows as the cache has slots. The op negates
// the sines, so the tables need the inverse of the factor.
void KeyUnrotation::write_tables(const std::vector<double> &frequencies, double factor) {
    constexpr int64_t at_a_time = 256;
    std::vector<float> cos, sin;
    for (int64_t first = 0; first < std::ssize(distinct_); first += at_a_time) {
        const int64_t n = std::min(at_a_time, std::ssize(distinct_) - first);
        cos.clear();
        sin.clear();
        for (int64_t i = first; i < first + n; ++i) {
            for (const double frequency : frequencies) {
                const double angle = distinct_[static_cast<size_t>(i)] * frequency;
                cos.push_back(static_cast<float>(std::cos(angle) / factor));
                sin.push_back(static_cast<float>(std::sin(angle) / factor));
            }
        }
        cos_.rows(first, n).write(cos.data());
        sin_.rows(first, n).write(sin.data());
    }
}

} // namespace keel
