#pragma once

#include "eval/ab/records/record.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// Merges the shards of an experiment that ran separately.
namespace keel::ab {

struct MergeResult {
    Header header; // the header of the merged file; shard 1 of 1 if no shard is missing
    uint64_t records = 0;
    uint64_t duplicates = 0;        // equal records in several shards; each is written once
    std::vector<uint32_t> missing;  // numbers of the shards that were not given
    std::vector<std::string> notes; // cut-off lines, different machines and other remarks
    // The commands that run the missing shards, one command for each shard; at most 20 commands.
    std::vector<std::string> commands;
};

// Reads the results of `shards` (folders or files, in any order) and writes `folder`/results.jsonl.
// Creates the folder if it does not exist. Records are in the order of the shards' numbers. Without
// `replace`, results.jsonl must not exist. With `replace`, an existing results.jsonl must belong to
// the same experiment. After the merge is complete, the merged file replaces the old results.jsonl.
// A missing shard is not an error. The merged results get a warning about the missing shard. Throws
// Error(input) in four cases: the shards belong to different experiments, builds or plans; a shard
// is given twice; two shards have different values for an item; speeds were measured on different
// machines. If results without speeds come from different machines, the merged results get a
// warning. Throws Error(runtime) for errors of the system.
MergeResult merge_shards(const std::vector<std::filesystem::path> &shards,
                         const std::filesystem::path &folder, bool replace = false);

} // namespace keel::ab
