#pragma once

#include "kv/evict/cache_config.hpp"
#include "kv/store/kv_shape.hpp"

#include <vector>

namespace keel {

// The ops that rotate keys again after an eviction. Ops that are not needed are NULL.
struct RerotationOps {
    // `pristine`: keys are quantized, so copies of them are kept (PristineKeys). Throws what
    // Executor::plan throws.
    static RerotationOps plan(Executor &executor, const KvShape &shape, const CacheConfig &config,
                              bool pristine);
    std::vector<const PlannedOp *> list() const;

    OpHandle capture;        // key_project: keys as they are, to f32
    OpHandle rerotate;       // in place
    OpHandle restore;        // from captured keys
    OpHandle read_pristine;  // rows of a copy, by number
    OpHandle write_pristine; // f32 to the K dtype

    static constexpr int64_t table_rows = 256; // distinct rotations of a call
};

} // namespace keel
