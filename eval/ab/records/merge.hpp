#pragma once

#include "eval/ab/records/record.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// The shards of an experiment, run apart, put together.
namespace keel {

struct AbMergeResult {
    AbHeader header; // as written: shard 1 of 1 where all shards are there
    uint64_t records = 0;
    uint64_t duplicates = 0;        // equal records that several shards hold: written once
    std::vector<uint32_t> missing;  // shards that nobody named
    std::vector<std::string> notes; // cut-off lines and what else is to be known
};

// Reads the results of `shards` (folders or files, in any order) and writes `folder`/results.jsonl,
// which must not be there; the folder is made. `replace`: results of the same experiment may be
// there, and go once the merged ones are whole. Records stand in the order of the shards, whatever
// the order of the arguments. A missing shard is a warning in the merged results, not an error.
// Throws Error(input) for shards of different experiments, a shard that is named twice, and an item
// that two shards have with different values; Error(runtime) where the system refuses to write.
AbMergeResult merge_ab_shards(const std::vector<std::filesystem::path> &shards,
                              const std::filesystem::path &folder, bool replace = false);

} // namespace keel
