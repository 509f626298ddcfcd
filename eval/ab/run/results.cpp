#include "eval/ab/run/results.hpp"

#include "base/display.hpp"
#include "platform/new_file.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <system_error>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;

std::string item_key(const Place &place, const std::string &item) {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", place.arm, place.budget, place.protocol,
                       place.task, place.seed, item);
}

std::string task_key(const Place &place) { return place.task + "\n" + place.protocol; }

// True if the folder has files, but no files of an experiment. Such a folder is not a results
// folder.
bool is_foreign(const fs::path &folder) {
    bool has_files = false;
    std::error_code error;
    for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
        const std::string name = i->path().filename().string();
        has_files = true;
        for (const std::string_view ours :
             {"results.jsonl", "resolved.yaml", "shard-", "evictions-", "merge.lock", "looks.jsonl",
              ".results.jsonl", ".shard-", ".evictions-"}) {
            if (name.starts_with(ours)) return false;
        }
    }
    return has_files;
}

} // namespace

fs::path Results::file() const { return experiment_.config.output / options_.shard.file_name(); }

void Results::make_folder() const {
    const fs::path &folder = experiment_.config.output;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error || !fs::is_directory(folder, error))
        throw_error(ErrorKind::usage, "{}: cannot create this folder: {}",
                    printable(folder.string(), 300),
                    error ? error.message() : "a file with this name exists");
    if (is_foreign(folder))
        throw_error(ErrorKind::usage,
                    "{}: the folder has files, but no results of an experiment; choose a new or "
                    "empty folder "
                    "with --output",
                    printable(folder.string(), 300));
}

void Results::lock() {
    if (lock_) return;
    make_folder();
    lock_ = std::make_unique<FileLock>(
        experiment_.config.output / ("." + options_.shard.file_name() + ".lock"), false);
}

// Returns the --items of the run that wrote the existing results. Returns 0 if that run had no
// --items, or if there are no results. Throws Error(usage) if this run would compute only a part of
// a batch, and if the results of this batch can exist already.
uint64_t Results::check_items(std::span<const PlannedTask> tasks) const {
    std::error_code error;
    if (!options_.resume || experiment_.config.batch == 1 || !fs::exists(file(), error)) return 0;
    uint64_t before = 0;
    try {
        before = read_header(file()).items;
    } catch (const Error &) {
        return 0; // Writer reports the error if the file must not be overwritten.
    }
    const auto now = static_cast<uint64_t>(options_.items);
    for (const PlannedTask &t : tasks) {
        const bool is_cut =
            t.at_once > 1 && now > 0 && now < t.items->documents() && now % t.at_once != 0;
        if (is_cut && (before == 0 || before > now))
            throw_error(ErrorKind::usage,
                        "--items {}: {} has results of more documents, and the numbers of a part "
                        "of a batch may "
                        "be rounded differently; expected a multiple of {}, or another --output",
                        now, printable(file().string(), 300), t.at_once);
    }
    return before;
}

// Returns the items of the last batch, if `--items` shortened this batch when the batch was
// measured. If the batch has more documents now, the batch's numbers can be rounded differently.
std::set<std::string> Results::cut_short(std::span<const PlannedTask> tasks,
                                         uint64_t items_before) const {
    std::set<std::string> names; // each name is "TASK\nITEM"
    for (const PlannedTask &t : tasks) {
        const size_t first = t.at_once * (items_before / t.at_once), end = first + t.at_once;
        if (t.at_once == 1 || first == items_before || std::min(end, t.documents) == items_before ||
            items_before >= t.items->documents())
            continue;
        for (const Protocol protocol : experiment_.config.protocols) {
            for (size_t d = first; d < std::min<size_t>(end, t.items->documents()); ++d) {
                for (const Unit &unit : t.items->units(d, protocol)) {
                    if (unit.questions.empty()) names.insert(t.task->name + "\n" + unit.document);
                    for (const Question &question : unit.questions)
                        names.insert(t.task->name + "\n" + question.item);
                }
            }
        }
    }
    return names;
}

// Returns the finished items in the existing results. Removes items with missing numbers and items
// of a shortened batch from the file, so that they are computed again.
std::set<std::string> Results::finished_items(std::span<const PlannedTask> tasks,
                                              uint64_t items_before) {
    const std::set<std::string> cut = cut_short(tasks, items_before);
    std::set<std::string> all, whole;
    const auto each = [&](const auto &take) {
        read_records(file(), [&](Record &&record, uint64_t) {
            std::visit(
                [&](const auto &r) {
                    if constexpr (requires { r.item; }) {
                        take(record, item_key(r, r.item));
                    } else {
                        take(record, std::string{});
                    }
                },
                record);
        });
    };
    each([&](const Record &record, const std::string &key) {
        if (!key.empty()) all.insert(key);
        if (std::holds_alternative<Warning>(record)) warnings_.insert(record_line(record));
        const auto *item = std::get_if<Item>(&record);
        if (item == nullptr || cut.contains(item->task + "\n" + item->item)) return;
        note_value(*item);
        const auto task = std::find_if(tasks.begin(), tasks.end(), [&](const PlannedTask &t) {
            return t.task->name == item->task;
        });
        if (task != tasks.end() && task->last_metric == item->metric) whole.insert(key);
    });
    if (whole.size() == all.size()) return whole;
    std::string text = header_line(read_header(file())) + "\n";
    each([&](const Record &record, const std::string &key) {
        if (key.empty() || whole.contains(key)) text += record_line(record) + "\n";
    });
    write_whole_file(file(), text);
    return whole;
}

void Results::check(std::span<const PlannedTask> tasks, const Header &header) const {
    if (std::error_code error; options_.resume && fs::exists(file(), error))
        require_same_experiment(file(), read_header(file()), header);
    check_items(tasks);
}

void Results::open(std::span<const PlannedTask> tasks, const Header &of_run) {
    std::error_code error;
    if (options_.shard.count > 1) {
        // The last shard writes the merged results to `whole`. So the existing file is checked now.
        const fs::path whole = experiment_.config.output / Shard{}.file_name();
        if (fs::exists(whole, error)) require_same_experiment(whole, read_header(whole), of_run);
        reopen_shard(experiment_.config.output, options_.shard);
    }
    const bool exists = fs::exists(file(), error);
    const uint64_t items_before = check_items(tasks); // this check must come before the writer
                                                      // replaces the header
    if (exists && !options_.resume) {
        read_header(file()); // throws if the file has no results; so Keel never deletes a file
                             // without results
        fs::remove(file(), error);
    }
    // The header keeps the old number of items until the items of a shortened batch are removed
    // from the file. So if this process crashes before the items are removed, the next run finds
    // and removes these items too.
    Header header = of_run;
    if (experiment_.config.batch > 1 && exists && options_.resume) header.items = items_before;
    writer_ = std::make_unique<Writer>(file(), header, Writer::Mode::resume);
    if (exists && options_.resume) {
        finished_ = finished_items(tasks, items_before);
        if (options_.say && !finished_.empty())
            options_.say(fmt::format("continuing {}: {} items are already measured",
                                     printable(experiment_.config.output.string(), 200),
                                     finished_.size()));
        // finished_items() can have replaced the file. So the header of this run is written to the
        // file afterwards.
        writer_ = std::make_unique<Writer>(file(), of_run, Writer::Mode::resume);
    }
    if (options_.shard.index == 1)
        write_whole_file(experiment_.config.output / "resolved.yaml", experiment_.resolved);
}

bool Results::is_finished(const Place &place, const std::string &item) const {
    return finished_.contains(item_key(place, item));
}

bool Results::reruns(const Place &place, size_t document) const {
    return document < first_reruns || differing_.contains(task_key(place));
}

// Compares the value of the reference's second run with the value of its first run.
void Results::note_value(const Item &item) {
    const bool again = item.arm == experiment_.config.reference + std::string(rerun_suffix);
    if (!again && item.arm != experiment_.config.reference) return;
    const std::string key = fmt::format("{}\n{}\n{}", task_key(item), item.item, item.metric);
    if (!again) {
        reference_values_[key] = item.value;
        return;
    }
    const auto first = reference_values_.find(key);
    if (first != reference_values_.end() && first->second != item.value)
        differing_.insert(task_key(item));
}

void Results::write_item(const Item &item) {
    write(item);
    ++written_;
    note_value(item);
}

void Results::write_once(const Warning &warning) {
    if (warnings_.insert(record_line(warning)).second) write(warning);
}

} // namespace keel::ab
