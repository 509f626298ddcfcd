#pragma once

#include "eval/ab/run/shard.hpp"

#include <cstdint>
#include <functional>
#include <string>

// Determines which shard this process takes. Options can name the shard, and environment variables
// that launchers set can name the shard.
namespace keel::ab {

struct ShardOptions {
    std::string shard;   // value of --shard, for example "2/4"; empty: not given
    uint32_t shards = 0; // value of --shards; 0: not given
};

// Chooses the shard from these sources. All sources that are present must name the same shard.
// - --shard I/N
// - mpirun and srun: see shard_from_environment().
// - A Slurm array: SLURM_ARRAY_TASK_ID with _COUNT, _MIN, _MAX and _STEP. If --shards N or
//   KEEL_SHARDS gives the number of shards, the id itself is the shard, from 1 to N.
// - A Kubernetes indexed job: JOB_COMPLETION_INDEX, from 0. Kubernetes does not give the number of
//   completions, so --shards N or KEEL_SHARDS must give it.
// --shard 1/1 and --shards 1 mean the whole experiment, whatever the launcher sets. A job array of
// different experiments needs one of these two options. If no source is present, the process takes
// the whole experiment. Throws Error(usage) for invalid numbers, for sources that name different
// shards, and for a number of shards without a source for the index. `get` is getenv.
Shard choose_shard(const ShardOptions &options,
                   const std::function<const char *(const char *)> &get);

} // namespace keel::ab
