#pragma once

#include "eval/stats/draws.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Which part of an experiment's documents this process takes: of each `count` in a row one, not
// always at the same place of them, since a task's lengths and depths change with the number in a
// regular way.
struct AbShard {
    uint32_t index = 1, count = 1; // index from 1

    bool takes(uint64_t document) const {
        const uint64_t turn = AbDraws(document / count).below(count);
        return (document % count + turn) % count == index - 1;
    }
    std::string file_name() const; // "results.jsonl", or "shard-2-of-4.jsonl"
    bool operator==(const AbShard &) const = default;
};

// "2/4". Throws Error(usage).
AbShard parse_ab_shard(std::string_view text);

// What mpirun (or srun) says about this process in the environment: OMPI_COMM_WORLD_RANK and _SIZE,
// PMI_RANK and PMI_SIZE. Nothing where there is no such, or only one process. Throws Error(usage)
// for numbers that make no sense. `get` is getenv.
std::optional<AbShard>
ab_shard_from_environment(const std::function<const char *(const char *)> &get);

// A lock on a file, which is made, as long as this lives; the system lets go of it however the
// process ends. Not `wait`: Error(usage) where somebody else has it. Throws Error(runtime) where
// the system refuses.
class AbFileLock {
  public:
    AbFileLock(const std::filesystem::path &path, bool wait);
    ~AbFileLock();
    AbFileLock(const AbFileLock &) = delete;
    AbFileLock &operator=(const AbFileLock &) = delete;

  private:
    int fd_;
};

// Takes back that a shard is complete: it runs again, maybe with other documents. Throws
// Error(runtime) where the system refuses.
void reopen_ab_shard(const std::filesystem::path &folder, const AbShard &shard);

// Notes that a shard is complete, of the run that `key` tells from others (its config hash, and how
// many documents it was to take). True for the one that finds all of them complete: it is to call
// `merge`, which runs under a lock on the folder. Throws Error(runtime) where the system refuses.
bool finish_ab_shard(
    const std::filesystem::path &folder, const AbShard &shard, const std::string &key,
    const std::function<void(const std::vector<std::filesystem::path> &shards)> &merge);

} // namespace keel
