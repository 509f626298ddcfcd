#include "eval/ab/records/merge.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/records/machine_kind.hpp"
#include "eval/ab/records/table.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;

struct ShardFile {
    fs::path file;
    Header header;
};

uint64_t hash_of(std::string_view text, uint64_t hash = 0xcbf29ce484222325) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash ^ (hash >> 29);
}

std::string path_text(const fs::path &path) { return printable(path.string(), 200); }

std::string items_text(const Header &header) {
    return header.items == 0 ? "all documents" : fmt::format("--items {}", header.items);
}

std::string build_of(const Header &h) {
    return printable(h.commit.empty() ? h.version : h.version + " " + h.commit, 100);
}

// The command that runs shard `index` alone.
std::string command_of(const Header &h, uint32_t index) {
    return fmt::format("{} --shard {}/{}",
                       h.command.empty() ? std::string("keel ab run FILE") : h.command, index,
                       h.shards);
}

// Checks whether the shards ran on one machine. Speeds of two machines cannot be compared. Numbers
// that are not speeds can be compared, but two machines can round these numbers differently.
class MachineCheck {
  public:
    // Throws Error(input) if this record and an earlier record are speeds of different machines.
    void see(const ShardFile &shard, const Record &record) {
        const auto *item = std::get_if<Item>(&record);
        if (item == nullptr || metric_named(item->metric).kind != Metric::Kind::speed) return;
        if (speeds_ == nullptr) speeds_ = &shard;
        if (speeds_ == &shard || machine_kind(speeds_->header) == machine_kind(shard.header))
            return;
        throw_error(ErrorKind::input,
                    "{} and {} hold speeds of different machines ({} and {}): measure the speeds "
                    "on one machine",
                    path_text(speeds_->file), path_text(shard.file),
                    printable(machine_kind(speeds_->header), 200),
                    printable(machine_kind(shard.header), 200));
    }

    // Returns a warning if the shards ran on different machines. Otherwise returns an empty text.
    static std::string text(const std::vector<ShardFile> &shards) {
        std::set<std::string> kinds;
        for (const ShardFile &shard : shards) kinds.insert(machine_kind(shard.header));
        if (kinds.size() < 2) return {};
        std::string out = "the shards ran on different machines, whose numbers may be rounded "
                          "differently: ";
        for (const std::string &kind : kinds)
            out += (kind == *kinds.begin() ? "" : " | ") + printable(kind, 200);
        return out;
    }

  private:
    const ShardFile *speeds_ = nullptr; // the first shard with speeds
};

std::vector<ShardFile> open_shards(const std::vector<fs::path> &paths) {
    std::vector<ShardFile> shards;
    for (const fs::path &path : paths) {
        ShardFile shard;
        shard.file = results_file(path);
        shard.header = read_header(shard.file);
        shards.push_back(std::move(shard));
    }
    std::stable_sort(shards.begin(), shards.end(), [](const ShardFile &a, const ShardFile &b) {
        return a.header.shard < b.header.shard;
    });
    for (size_t i = 1; i < shards.size(); ++i) {
        const Header &a = shards[0].header, &b = shards[i].header, &before = shards[i - 1].header;
        const std::string library = other_library(a, b);
        if (build_of(a) != build_of(b))
            throw_error(ErrorKind::input,
                        "{} was made by Keel {}, {} by Keel {}: run all shards with one build",
                        path_text(shards[0].file), build_of(a), path_text(shards[i].file),
                        build_of(b));
        if (a.config_hash != b.config_hash)
            throw_error(
                ErrorKind::input,
                "{} and {} belong to different experiments: their config hashes are {} and {}{}; "
                "run the shards with the same file, model, options and plugins",
                path_text(shards[0].file), path_text(shards[i].file), printable(a.config_hash, 40),
                printable(b.config_hash, 40),
                library.empty() ? "" : ", and they ran with different builds of " + library);
        if (plan_name(a) != plan_name(b) ||
            (a.plan && b.plan && a.plan->changes != b.plan->changes))
            throw_error(ErrorKind::input,
                        "{} was run with {}, {} with {}: run the shards of one experiment with the "
                        "same --plan",
                        path_text(shards[0].file), plan_name(a), path_text(shards[i].file),
                        plan_name(b));
        if (a.items != b.items)
            throw_error(
                ErrorKind::input,
                "{} ran with {}, but {} ran with {}; run all shards of an experiment with the "
                "same --items",
                path_text(shards[0].file), items_text(a), path_text(shards[i].file), items_text(b));
        if (a.shards != b.shards)
            throw_error(
                ErrorKind::input,
                "{} is one of {} shards, but {} is one of {}; merge shards of one experiment",
                path_text(shards[0].file), a.shards, path_text(shards[i].file), b.shards);
        if (before.shard == b.shard)
            throw_error(ErrorKind::input, "{} and {} are both shard {} of {}; name each shard once",
                        path_text(shards[i - 1].file), path_text(shards[i].file), b.shard,
                        b.shards);
    }
    return shards;
}

// Identifies a record among the records of all shards. Two records with the same `key` must have
// the same `value`.
struct Identity {
    uint64_t key = 0, value = 0;
};

std::string place_key(const Place &p) {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n", p.arm, p.budget, p.protocol, p.task, p.seed);
}

std::optional<Identity> identity(const Record &record) {
    const auto of = [](const Place &place, const std::string &rest, const Record &whole) {
        return Identity{
            hash_of(rest, hash_of(place_key(place), 0xcbf29ce484222325 + whole.index())),
            hash_of(record_line(whole))};
    };
    if (const auto *i = std::get_if<Item>(&record)) {
        // The times of evictions differ from run to run, so the times are not compared. The
        // measured value must be equal.
        return Identity{
            hash_of(i->metric + "\n" + i->item, hash_of(place_key(*i))),
            hash_of(fmt::format("{} {} {} {}", i->value, i->length, i->depth, i->document))};
    }
    if (const auto *m = std::get_if<KeepMap>(&record)) return of(*m, m->item, record);
    if (const auto *t = std::get_if<Timeline>(&record)) return of(*t, t->item, record);
    if (const auto *p = std::get_if<Prompt>(&record)) return of(*p, p->item, record);
    if (const auto *c = std::get_if<Curve>(&record))
        return of(*c, c->metric + "\n" + c->item, record);
    return std::nullopt;
}

std::string list_of(const std::vector<uint32_t> &numbers) {
    constexpr size_t most = 20;
    std::string out;
    for (size_t i = 0; i < std::min(numbers.size(), most); ++i)
        out += fmt::format("{}{}", i == 0 ? "" : ", ", numbers[i]);
    return numbers.size() > most ? out + fmt::format(" and {} more", numbers.size() - most) : out;
}

Header merged_header(const std::vector<ShardFile> &shards, const std::vector<uint32_t> &missing) {
    Header header = shards[0].header;
    header.shard = header.shards = 1;
    header.missing_shards = static_cast<uint32_t>(missing.size());
    std::set<std::string> machines, commits;
    for (const ShardFile &shard : shards) {
        machines.insert(shard.header.machine);
        commits.insert(shard.header.commit);
    }
    const auto joined = [](const std::set<std::string> &all) {
        std::string out;
        for (const std::string &one : all)
            out += fmt::format("{}{}", out.empty() ? "" : "; ", one.empty() ? "unknown" : one);
        return out;
    };
    if (machines.size() > 1) header.machine = joined(machines);
    if (commits.size() > 1) {
        header.commit = "several";
        header.facts.emplace_back("commits", joined(commits));
    }
    header.facts.emplace_back(
        "shards", missing.empty() ? fmt::format("merged from {}", shards.size())
                                  : fmt::format("merged from {} of {}; missing: {}", shards.size(),
                                                shards[0].header.shards, list_of(missing)));
    return header;
}

} // namespace

MergeResult merge_shards(const std::vector<fs::path> &paths, const fs::path &folder, bool replace) {
    if (paths.empty())
        throw_error(ErrorKind::usage, "expected the folders of the shards, found none");
    const std::vector<ShardFile> shards = open_shards(paths);
    MergeResult result;
    constexpr size_t most_missing = 1000;
    std::set<uint32_t> there;
    for (const ShardFile &shard : shards) there.insert(shard.header.shard);
    for (uint32_t i = 1; i <= shards[0].header.shards && result.missing.size() < most_missing; ++i)
        if (!there.contains(i)) result.missing.push_back(i);
    result.header = merged_header(shards, result.missing);

    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw_error(ErrorKind::runtime, "{}: {}", path_text(folder), error.message());
    const fs::path target = folder / "results.jsonl", half = folder / "results.jsonl.part";
    if (fs::exists(target, error)) {
        if (!replace)
            throw_error(ErrorKind::input, "{}: the file exists already; merge into another folder",
                        path_text(target));
        require_same_experiment(target, read_header(target), result.header);
    }
    fs::remove(half, error);
    try {
        Writer writer(half, result.header, Writer::Mode::create);
        std::unordered_map<uint64_t, uint64_t> known; // maps Identity::key to Identity::value
        if (!result.missing.empty()) {
            Warning warning;
            warning.text = fmt::format(
                "of {} shards {} missing: {}; their items are not in these results. This runs "
                "one: {}",
                shards[0].header.shards,
                result.missing.size() == 1 ? std::string("one is")
                                           : fmt::format("{} are", result.missing.size()),
                list_of(result.missing), command_of(shards[0].header, result.missing.front()));
            writer.write(warning);
            ++result.records;
            constexpr size_t most_commands = 20;
            for (size_t i = 0; i < std::min(result.missing.size(), most_commands); ++i)
                result.commands.push_back(command_of(shards[0].header, result.missing[i]));
        }
        if (const std::string text = MachineCheck::text(shards); !text.empty()) {
            Warning warning;
            warning.text = text;
            result.notes.push_back(text);
            writer.write(warning);
            ++result.records;
        }
        MachineCheck machines;
        for (const ShardFile &shard : shards) {
            const ReadResult read = read_records(shard.file, [&](Record &&record, uint64_t line) {
                if (const auto id = identity(record)) {
                    const auto [at, is_new] = known.try_emplace(id->key, id->value);
                    if (!is_new && at->second != id->value)
                        throw_error(ErrorKind::input,
                                    "{}:{}: two shards have different values for this item; run "
                                    "all shards with the "
                                    "same program, on machines that compute equally",
                                    path_text(shard.file), line);
                    if (!is_new) {
                        ++result.duplicates;
                        return;
                    }
                }
                machines.see(shard, record);
                writer.write(record);
                ++result.records;
            });
            if (read.dropped_tail) {
                Warning warning;
                warning.text = fmt::format(
                    "shard {} of {} ends with an incomplete line, so its run was stopped; some of "
                    "its items may be missing",
                    shard.header.shard, shard.header.shards);
                result.notes.push_back(warning.text);
                writer.write(warning);
                ++result.records;
            }
        }
    } catch (...) {
        fs::remove(half, error);
        throw;
    }
    fs::rename(half, target, error);
    if (error) throw_error(ErrorKind::runtime, "{}: {}", path_text(target), error.message());
    return result;
}

} // namespace keel::ab
