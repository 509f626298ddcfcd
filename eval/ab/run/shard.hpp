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

// The part of an experiment's documents that this process takes: one of each `count` consecutive
// documents. Its place among them varies, because a task's lengths and depths change regularly with
// the document's number.
struct Shard {
    uint32_t index = 1, count = 1; // index from 1

    bool takes(uint64_t document) const {
        const uint64_t turn = SplitMix64(document / count).below(count);
        return (document % count + turn) % count == index - 1;
    }
    std::string file_name() const; // "results.jsonl", or "shard-2-of-4.jsonl"
    bool operator==(const Shard &) const = default;
};

// "2/4". Throws Error(usage).
Shard parse_shard(std::string_view text);

// The shard that mpirun (or srun) gives to this process in the environment: OMPI_COMM_WORLD_RANK
// and _SIZE, PMI_RANK and PMI_SIZE. Empty if these are not set, or if there is only one process.
// Throws Error(usage) for invalid numbers. `get` is getenv.
std::optional<Shard> shard_from_environment(const std::function<const char *(const char *)> &get);

// Locks a file while this object exists. Creates the file if needed. The system releases the lock
// when the process ends, for any reason. Without `wait`, throws Error(usage) if another process has
// the lock. Throws Error(runtime) if the system refuses.
class FileLock {
  public:
    FileLock(const std::filesystem::path &path, bool wait);
    ~FileLock();
    FileLock(const FileLock &) = delete;
    FileLock &operator=(const FileLock &) = delete;

  private:
    int fd_;
};

// Marks a shard as not complete, because it runs again, maybe with other documents. Throws
// Error(runtime) if the system refuses.
void reopen_shard(const std::filesystem::path &folder, const Shard &shard);

// Marks a shard as complete. `key` identifies the run: its config hash and its number of documents.
// If all shards are complete now, calls `merge` under a lock on the folder and returns true. Throws
// Error(runtime) if the system refuses.
bool finish_shard(
    const std::filesystem::path &folder, const Shard &shard, const std::string &key,
    const std::function<void(const std::vector<std::filesystem::path> &shards)> &merge);

} // namespace keel::ab
