#pragma once

#include "kv/evict/policy_setup.hpp"
#include "kv/store/held_bytes.hpp"

#include <vector>

namespace keel {

// Undoes the rotation of cached keys, for ops that need the keys as they were before RoPE. The
// graph's tables have only the newest positions, and a cache can have much older keys. So this
// class computes its own tables, in float64, for exactly the positions that a layer has.
class KeyUnrotation {
  public:
    KeyUnrotation(PolicySetup &setup, keel_buffer_kind placement)
        : setup_(setup), placement_(placement) {}

    // Returns the layer's view; its `positions` are row numbers of tables(). The view and the
    // tables are valid until the next call.
    const keel_kv_view *prepare(const KvCache &cache, uint32_t layer);
    uint64_t bytes() const {
        return held_bytes(cos_) + held_bytes(sin_) + held_bytes(rows_) + held_bytes(distinct_) +
               held_bytes(wanted_);
    }
    const keel_rope_tables *tables() const { return &tables_; }

  private:
    void write_tables(const std::vector<double> &frequencies, double factor);

    PolicySetup &setup_;
    keel_buffer_kind placement_;
    Tensor cos_, sin_; // f32 [positions, rot / 2]
    Tensor rows_;      // i32 [kv_heads, slots]
    keel_rope_tables tables_ = {KEEL_HEADER(keel_rope_tables)};
    keel_kv_view view_ = {KEEL_HEADER(keel_kv_view)};
    std::vector<int32_t> distinct_, wanted_; // positions in the tables, rising
    const std::vector<double> *frequencies_ = nullptr;
};

} // namespace keel
