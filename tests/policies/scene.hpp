#pragma once

#include <keel/ops_attention.h>
#include <keel/policy.h>

#include <cstdint>
#include <vector>

namespace keel::test {

// Returns a number in [-1, 1) that f32 can hold exactly. It depends only on seed and index.
// tests/golden/make_policies_golden.py computes the same numbers.
double scene_noise(uint64_t seed, uint64_t index);

// One layer after a prompt: generated queries, keys and values, and all inputs that the core would
// compute from them for a policy. They are computed in float64 from the definitions in policy.h.
class Scene {
  public:
    Scene(uint64_t seed, uint32_t heads, uint32_t kv_heads, uint32_t head_dim, int64_t length,
          bool interleaved, std::vector<double> frequencies);

    // Returns the inputs that `needs` requests and no others. They are valid until the next call.
    // Slots at or after `length` contain NaN.
    keel_policy_input input(const keel_policy_needs &needs, int32_t budget);
    int64_t stride() const { return stride_; }

  private:
    using Row = std::vector<double>;

    double &probability(uint32_t head, int64_t query, int64_t key);
    Row rotated(const Row &x, int64_t position) const;
    void attend();
    std::vector<float> reduced(uint32_t window, uint32_t queries, uint32_t group);
    std::vector<float> chunks(uint32_t chunk);
    const Row &key(uint32_t kv_head, int64_t slot) const {
        return rotated_keys_[kv_head * static_cast<size_t>(length_) + slot];
    }

    uint64_t seed_;
    uint32_t heads_, kv_heads_, head_dim_;
    int64_t length_, stride_;
    bool interleaved_;
    double scale_;
    std::vector<double> frequencies_;
    std::vector<Row> queries_, rotated_queries_;    // [heads][length]
    std::vector<Row> keys_, rotated_keys_, values_; // [kv_heads][length]
    std::vector<double> probabilities_;             // [heads][query][key], causal

    std::vector<int32_t> lengths_, budgets_, positions_;
    std::vector<uint8_t> mask_;
    std::vector<float> key_norms_, value_norms_, scores_, key_sum_, key_anchor_, key_project_,
        query_sum_, query_second_, all_keys_, chunk_scores_;
};

} // namespace keel::test
