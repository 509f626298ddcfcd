#pragma once

#include "conformance/suite.hpp"

namespace keel::conformance {

// The indices of RoPE tables in a scene, and their shape.
struct TableSpec {
    int cos = none, sin = none;
    keel_rope_mode mode = KEEL_ROPE_HALF_SPLIT;
    uint32_t rot = 0;
};
TableSpec add_tables(Scene &scene, int64_t rows, int64_t rot, keel_rope_mode mode);
keel_rope_tables place(const TableSpec &tables, Stage &stage);
// Adds positions [m] or [m, kv_heads]. Each position is below `limit`. Returns the index of the
// tensor.
int add_positions(Scene &scene, Rng &rng, int64_t m, int64_t kv_heads, bool per_head,
                  int32_t limit);

} // namespace keel::conformance
