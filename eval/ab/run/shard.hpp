#pragma once

#include "eval/stats/draws.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel::ab {

// The part of an experiment's documents that this process takes. Of each `count` consecutive
// documents, the process takes one. The place of this document among the `count` documents varies
// at random. The reason is that the lengths and depths of a task change regularly with the
// document's number.
struct Shard {
    uint32_t index = 1, count = 1; // index is from 1 to count

    bool takes(uint64_t document) const {
        const uint64_t turn = SplitMix64(document / count).below(count);
        return (document % count + turn) % count == index - 1;
    }
    std::string file_name() const; // "results.jsonl", or for example "shard-2-of-4.jsonl"
    bool operator==(const Shard &) const = default;
};

// Parses a text such as "2/4". Throws Error(usage) if the text is invalid.
Shard parse_shard(std::string_view text);

// Reads the shard of this process from the environment that mpirun or srun sets:
// OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, or PMI_RANK and PMI_SIZE. Returns nullopt if these
// variables are not set, or if there is only one process. Throws Error(usage) for invalid numbers.
// `get` has the meaning of getenv().
std::optional<Shard> shard_from_environment(const std::function<const char *(const char *)> &get);

// Locks a file while this object exists. Creates the file if it does not exist. The system releases
// the lock when the process ends for any reason. If another process has the lock and `wait` is
// true, waits for the lock. If `wait` is false, throws Error(usage). Throws Error(runtime) for
// errors of the system.
class FileLock {
  public:
    FileLock(const std::filesystem::path &path, bool wait);
    ~FileLock();
    FileLock(const FileLock &) = delete;
    FileLock &operator=(const FileLock &) = delete;

  private:
    int fd_;
};

// Marks a shard as not complete, because the shard runs again, possibly with different documents.
// Throws Error(runtime) for errors of the system.
void reopen_shard(const std::filesystem::path &folder, const Shard &shard);

// Marks a shard as complete. `key` identifies the run: its config hash and its number of documents.
// If all shards are complete now, calls `merge` under a lock on the folder and returns true. Throws
// Error(runtime) for errors of the system.
bool finish_shard(
    const std::filesystem::path &folder, const Shard &shard, const std::string &key,
    const std::function<void(const std::vector<std::filesystem::path> &shards)> &merge);

} // namespace keel::ab
