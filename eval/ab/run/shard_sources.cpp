#include "eval/ab/run/shard_sources.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <vector>

namespace keel::ab {
namespace {

constexpr uint32_t most_launched = 10'000;
constexpr const char *shards_variable = "KEEL_SHARDS", *slurm_id = "SLURM_ARRAY_TASK_ID",
                     *kubernetes_index = "JOB_COMPLETION_INDEX";

class Sources {
  public:
    Sources(const ShardOptions &options, const std::function<const char *(const char *)> &get)
        : options_(options), get_(get) {}

    Shard choose() {
        if (options_.shards == 1 ||
            (!options_.shard.empty() && parse_shard(options_.shard) == Shard{}))
            return {};
        read_count();
        if (!options_.shard.empty()) add("--shard " + options_.shard, parse_shard(options_.shard));
        if (const auto found = shard_from_environment(get_)) {
            const bool is_mpi = get_("OMPI_COMM_WORLD_RANK") != nullptr;
            add(is_mpi ? "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE" : "PMI_RANK and PMI_SIZE",
                *found);
        }
        read_slurm();
        read_kubernetes();
        if (!found_.empty()) return found_.front().shard;
        if (count_ > 1)
            throw_error(ErrorKind::usage,
                        "{}: the number of shards is given, but not the shard of this process; "
                        "give --shard I/{}, or start the process from a Slurm array ({}) or a "
                        "Kubernetes indexed job ({})",
                        count_name_, count_, slurm_id, kubernetes_index);
        return {};
    }

  private:
    struct Source {
        std::string name;
        Shard shard;
    };

    std::optional<uint32_t> number(const char *name, uint32_t low, uint32_t high) const {
        const char *text = get_(name);
        if (text == nullptr) return std::nullopt;
        const std::string_view digits = text;
        uint32_t value = 0;
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error != std::errc{} || end != digits.data() + digits.size() || digits.empty() ||
            value < low || value > high)
            throw_error(ErrorKind::usage,
                        "{}={} in the environment: expected an integer from {} to {}", name,
                        printable(digits, 40), low, high);
        return value;
    }

    void read_count() {
        const auto given = number(shards_variable, 1, most_launched);
        if (given && options_.shards > 0 && *given != options_.shards)
            throw_error(ErrorKind::usage,
                        "--shards {} and {}={} contradict each other; remove one of them",
                        options_.shards, shards_variable, *given);
        count_ = options_.shards > 0 ? options_.shards : given.value_or(0);
        count_name_ = options_.shards > 0 ? fmt::format("--shards {}", count_)
                                          : fmt::format("{}={}", shards_variable, count_);
    }

    void add(const std::string &name, const Shard &shard) {
        if (count_ > 0 && shard.count != count_)
            throw_error(ErrorKind::usage,
                        "{} and {} contradict each other: the second has {} shards; remove one of "
                        "them",
                        count_name_, name, shard.count);
        if (!found_.empty() && !(found_.front().shard == shard))
            throw_error(ErrorKind::usage,
                        "{} ({}/{}) and {} ({}/{}) name different shards; remove one of them",
                        found_.front().name, found_.front().shard.index, found_.front().shard.count,
                        name, shard.index, shard.count);
        found_.push_back({name, shard});
    }

    void read_slurm() {
        constexpr uint32_t most_id = 4'000'000; // Slurm's own limit
        const auto id = number(slurm_id, 0, most_id);
        if (!id) return;
        const std::string name = fmt::format("{}={}", slurm_id, *id);
        if (count_ > 0) {
            if (*id < 1 || *id > count_)
                throw_error(ErrorKind::usage,
                            "{} with {}: expected an id from 1 to {}; number the array's tasks "
                            "from 1 (sbatch --array=1-{})",
                            name, count_name_, count_, count_);
            return add(name, {*id, count_});
        }
        const auto count = number("SLURM_ARRAY_TASK_COUNT", 1, most_launched),
                   least = number("SLURM_ARRAY_TASK_MIN", 0, most_id),
                   most = number("SLURM_ARRAY_TASK_MAX", 0, most_id);
        const uint32_t step = number("SLURM_ARRAY_TASK_STEP", 1, most_id).value_or(1);
        if (!count || !least || !most)
            throw_error(ErrorKind::usage,
                        "{}: the variables SLURM_ARRAY_TASK_COUNT, _MIN and _MAX are needed too; "
                        "give --shards N",
                        name);
        if (*count == 1)
            throw_error(
                ErrorKind::usage,
                "{} with SLURM_ARRAY_TASK_COUNT=1: one task may be the whole experiment, or "
                "one shard that runs again; give --shards N",
                name);
        // A list such as --array=1,5,6 has gaps, so the place of an id in the list is not known.
        if (*id < *least || *id > *most || (*id - *least) % step != 0 ||
            (*most - *least) / step + 1 != *count)
            throw_error(
                ErrorKind::usage,
                "{} with SLURM_ARRAY_TASK_MIN={}, _MAX={}, _STEP={}, _COUNT={}: expected "
                "an array without gaps (sbatch --array=1-{}); for a part of the shards give "
                "--shards N",
                name, *least, *most, step, *count, *count);
        add(name, {(*id - *least) / step + 1, *count});
    }

    void read_kubernetes() {
        const auto index = number(kubernetes_index, 0, most_launched - 1);
        if (!index) return;
        const std::string name = fmt::format("{}={}", kubernetes_index, *index);
        uint32_t count = count_;
        // Another source can give the number of shards.
        if (count == 0 && !found_.empty()) count = found_.front().shard.count;
        if (count == 0)
            throw_error(ErrorKind::usage,
                        "{}: Kubernetes does not give the number of completions; set {} in the "
                        "job, or give --shards N",
                        name, shards_variable);
        if (*index >= count)
            throw_error(ErrorKind::usage, "{} with {} shards: expected an index from 0 to {}", name,
                        count, count - 1);
        add(name, {*index + 1, count});
    }

    const ShardOptions &options_;
    const std::function<const char *(const char *)> &get_;
    uint32_t count_ = 0; // 0: not given
    std::string count_name_;
    std::vector<Source> found_;
};

} // namespace

Shard choose_shard(const ShardOptions &options,
                   const std::function<const char *(const char *)> &get) {
    return Sources(options, get).choose();
}

} // namespace keel::ab
