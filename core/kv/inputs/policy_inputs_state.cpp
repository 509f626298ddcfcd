// What a sequence collected for its policy, when it is cut, copied, saved and read.
#include "kv/inputs/key_unrotation.hpp"
#include "kv/inputs/policy_inputs.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>

namespace keel {

PolicyInputs::~PolicyInputs() = default;

bool PolicyInputs::can_truncate(int64_t n, int64_t seen) const {
    if (n == 0 || n == seen) return true;
    if (running_ || chunks_) return false;
    return !stats_ || n <= stats_->revocable(seen);
}

void PolicyInputs::truncate(const KvCache &cache, int64_t n, int64_t seen) {
    if (n == seen) return reset();
    if (ring_) ring_->drop(n);
    if (stats_) stats_->drop(n, seen);
    compacted(cache);
}

void PolicyInputs::reset() {
    if (ring_) ring_->clear();
    if (running_) running_->clear();
    if (chunks_) chunks_->clear();
    if (stats_) stats_->clear();
}

void PolicyInputs::copy_from(PolicyInputs &other, const KvCache &cache) {
    if (ring_ && other.ring_) ring_->copy_from(*other.ring_);
    if (running_ && other.running_) running_->copy_from(*other.running_, cache);
    if (chunks_ && other.chunks_) chunks_->copy_from(*other.chunks_, cache);
    if (stats_ && other.stats_) stats_->copy_from(*other.stats_);
}

void PolicyInputs::take_over(PolicyInputs &other, const KvCache &cache) {
    if (ring_ && other.ring_) ring_->take_over(*other.ring_);
    if (running_ && other.running_) running_->copy_from(*other.running_, cache);
    if (chunks_ && other.chunks_) chunks_->copy_from(*other.chunks_, cache);
    if (stats_ && other.stats_) stats_->copy_from(*other.stats_);
}

void PolicyInputs::save(StateWriter &out, const KvCache &cache) {
    if (ring_) {
        out.put(ring_->held());
        const std::vector<std::byte> rows = ring_->read();
        out.write(rows.data(), rows.size());
    }
    if (running_) running_->save(out, cache);
    if (chunks_) chunks_->save(out, cache);
    if (stats_) stats_->save(out);
}

void PolicyInputs::load(StateReader &in, const KvCache &cache, int64_t seen) {
    if (ring_) {
        const int64_t held = in.get_count("last queries", 0, std::min(seen, ring_->capacity()));
        const auto rows =
            in.take(setup_.shape().layers * static_cast<uint64_t>(held) * ring_->row_bytes(),
                    "last queries");
        ring_->write({rows.begin(), rows.end()}, held);
    }
    if (running_) running_->load(in, cache);
    if (chunks_) chunks_->load(in, cache);
    if (stats_) stats_->load(in, seen);
}

} // namespace keel
