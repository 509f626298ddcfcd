#pragma once

#include "eval/ab/records/record.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// Merges the shards of an experiment that ran separately.
namespace keel::ab {

struct MergeResult {
    Header header; // as written; shard 1 of 1 if no shard is missing
    uint64_t records = 0;
    uint64_t duplicates = 0;       // records that several shards hold equally; each is written once
    std::vector<uint32_t> missing; // numbers of the shards that were not given
    std::vector<std::string> notes; // cut-off lines and other remarks
};

// Reads the results of `shards` (folders or files, in any order) and writes `folder`/results.jsonl.
// Creates the folder if needed. results.jsonl must not exist. With `replace` it may exist if it is
// of the same experiment; it is replaced when the merged file is complete. The records are in the
// order of the shards' numbers. A missing shard is a warning in the merged results, not an error.
// Throws Error(input) for shards of different experiments, for a shard that is given twice, and for
// an item that has different values in two shards. Throws Error(runtime) if the system refuses to
// write.
MergeResult merge_shards(const std::vector<std::filesystem::path> &shards,
                         const std::filesystem::path &folder, bool replace = false);

} // namespace keel::ab
