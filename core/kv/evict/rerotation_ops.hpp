#pragma once

#include "kv/evict/cache_config.hpp"
#include "kv/store/kv_shape.hpp"

#include <vector>

namespace keel {

// The ops that rotate keys to new positions after an eviction. An op that is not needed is NULL.
struct RerotationOps {
    // `pristine`: true if keys are quantized, so copies of them are kept (PristineKeys). Throws the
    // errors of Executor::plan.
    static RerotationOps plan(Executor &executor, const KvShape &shape, const CacheConfig &config,
                              bool pristine);
    std::vector<const PlannedOp *> list() const;

    OpHandle capture;        // key_project: copies keys to f32 without a change
    OpHandle rerotate;       // kv_rerotate: rotates keys in place
    OpHandle restore;        // kv_rerotate: rotates captured keys
    OpHandle read_pristine;  // reads rows of a copy by number
    OpHandle write_pristine; // converts f32 to the K dtype

    static constexpr int64_t table_rows = 256; // number of different rotations in one call
};

} // namespace keel
