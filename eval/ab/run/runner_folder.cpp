// The folder of the results: what is in it already, and what is written.
#include "eval/ab/run/runner_parts.hpp"

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

// Does the folder have files, but none of an experiment? Then it is a user's own folder.
bool is_foreign(const fs::path &folder) {
    bool has_files = false;
    std::error_code error;
    for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
        const std::string name = i->path().filename().string();
        has_files = true;
        for (const std::string_view ours :
             {"results.jsonl", "resolved.yaml", "shard-", "evictions-", "merge.lock",
              ".results.jsonl", ".shard-", ".evictions-"}) {
            if (name.starts_with(ours)) return false;
        }
    }
    return has_files;
}

} // namespace

fs::path Runner::results() const { return experiment_.config.output / options_.shard.file_name(); }

void Runner::make_folder() const {
    const fs::path &folder = experiment_.config.output;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error || !fs::is_directory(folder, error))
        throw_error(ErrorKind::usage, "{}: cannot be made a folder: {}",
                    printable(folder.string(), 300),
                    error ? error.message() : "there is something else of that name");
    if (is_foreign(folder))
        throw_error(ErrorKind::usage,
                    "{}: holds files, but no experiment's results; choose a new or empty folder "
                    "with --output",
                    printable(folder.string(), 300));
}

// Locks the folder's results. Two processes that write the same items would not see each other's
// results, and would delete each other's logs.
void Runner::lock_folder() {
    if (lock_) return;
    make_folder();
    lock_ = std::make_unique<FileLock>(
        experiment_.config.output / ("." + options_.shard.file_name() + ".lock"), false);
}

void Runner::fill_header() {
    Header &h = options_.header;
    h.config_hash = experiment_.hash;
    h.libraries = experiment_.libraries;
    h.experiment_hash = experiment_.experiment_hash;
    const Run &reference = experiment_.reference();
    h.model = fmt::format("{} ({})", reference.config.model.path->filename().string(),
                          experiment_.model_hash);
    h.title = experiment_.config.title;
    h.reference = experiment_.config.reference;
    for (size_t i = 0; i < experiment_.config.arms.size(); ++i)
        h.arms.push_back({experiment_.config.arms[i].name, experiment_.differences[i]});
    h.contrasts = experiment_.config.contrasts;
    for (const ArmEntry &arm : experiment_.config.arms) {
        if (arm.budgets.size() > 1) h.sweeps.push_back(arm.name);
    }
    for (size_t r = 0; r < experiment_.runs.size(); ++r) {
        const Run &run = experiment_.runs[r];
        if (!run.is_rerun && !arms_->shares(r)) h.own_prefills.emplace_back(run.arm, run.budget);
    }
    h.items = options_.items > 0 ? static_cast<uint64_t>(options_.items) : 0;
    h.batch = experiment_.config.batch;
    h.statistics = experiment_.config.statistics;
    h.shard = options_.shard.index;
    h.shards = options_.shard.count;
    Pipeline &p = arms_->pipeline(0);
    const KvShape &shape = p.kv_shape();
    h.facts = {
        {"backend", fmt::format("{} on {}", p.device().plugin(), p.device().device_info().name)},
        {"kernels", p.device().info().description},
        {"weights", p.weights().dtype_name()},
        {"KV cache", fmt::format("keys {}, values {}", keel_dtype_name(shape.key_dtype),
                                 keel_dtype_name(shape.value_dtype))},
        {"tokenizer", p.tokenizer()->info().kind},
        {"context", fmt::format("{}", p.context())},
        {"decoding", "greedy"}};
    if (const std::string split = p.engine().split.text(); !split.empty())
        h.facts.emplace_back(
            "layers", fmt::format("{}. Keep maps number only the policy's layers ({}), from 0",
                                  split, fmt::join(p.engine().split.numbers(), ", ")));
    const bool asks = std::any_of(tasks_.begin(), tasks_.end(), [](const PlannedTask &t) {
        return t.items && t.items->has_question();
    });
    if (asks) h.facts.emplace_back("prompts", experiment_.form.description());
    for (const PlannedTask &t : tasks_) {
        if (t.items && !t.items->has_question())
            h.facts.emplace_back(t.task->name, t.one_by_one ? "scored token by token"
                                                            : "scored many tokens at a time");
    }
    if (h.batch > 1) h.facts.emplace_back("documents at once", fmt::format("{}", h.batch));
}

// Returns the most documents of each task in the run that wrote the existing results; 0 if it took
// all, or if there are none. Throws Error(usage) if this run would compute only a part of a batch
// whose results may exist already.
uint64_t Runner::check_items() const {
    std::error_code error;
    if (!options_.resume || experiment_.config.batch == 1 || !fs::exists(results(), error))
        return 0;
    uint64_t before = 0;
    try {
        before = read_header(results()).items;
    } catch (const Error &) {
        return 0; // Writer reports the error, if it is one
    }
    const auto now = static_cast<uint64_t>(options_.items);
    for (const PlannedTask &t : tasks_) {
        const bool is_cut =
            t.at_once > 1 && now > 0 && now < t.items->documents() && now % t.at_once != 0;
        if (is_cut && (before == 0 || before > now))
            throw_error(
                ErrorKind::usage,
                "--items {}: {} holds results of more documents, and a part of a batch may round "
                "otherwise than the whole; expected a multiple of {}, or another output",
                now, printable(results().string(), 300), t.at_once);
    }
    return before;
}

// Items of a last batch that was measured with fewer documents, because `--items` cut it short.
// With more documents in the batch now, the numbers may be rounded differently.
std::set<std::string> Runner::cut_short(uint64_t items_before) const {
    std::set<std::string> names; // "TASK\nITEM"
    for (const PlannedTask &t : tasks_) {
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

// The finished items in the existing results. Items with missing numbers, and items of a batch that
// was cut short, are removed from the file and computed again.
std::set<std::string> Runner::finished_items(uint64_t items_before) {
    const std::set<std::string> cut = cut_short(items_before);
    std::set<std::string> all, whole;
    const auto each = [&](const auto &take) {
        read_records(results(), [&](Record &&record, uint64_t) {
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
        const auto task = std::find_if(tasks_.begin(), tasks_.end(), [&](const PlannedTask &t) {
            return t.task->name == item->task;
        });
        if (task != tasks_.end() && task->last_metric == item->metric) whole.insert(key);
    });
    if (whole.size() == all.size()) return whole;
    std::string text = header_line(read_header(results())) + "\n";
    each([&](const Record &record, const std::string &key) {
        if (key.empty() || whole.contains(key)) text += record_line(record) + "\n";
    });
    write_whole_file(results(), text);
    return whole;
}

void Runner::open_results() {
    fill_header();
    std::error_code error;
    if (options_.shard.count > 1) {
        // The last shard writes the merged results there. So the existing file is checked now.
        const fs::path whole = experiment_.config.output / Shard{}.file_name();
        if (fs::exists(whole, error))
            require_same_experiment(whole, read_header(whole), options_.header);
        reopen_shard(experiment_.config.output, options_.shard);
    }
    const bool exists = fs::exists(results(), error);
    const uint64_t items_before = check_items(); // before the writer replaces the header
    if (exists && !options_.resume) {
        read_header(results()); // throws if it is no results file, so no other file is deleted
        fs::remove(results(), error);
    }
    // The old number of items stays in the header until the items of a batch that was cut short are
    // removed. So a run after a crash finds and removes them too.
    Header header = options_.header;
    if (experiment_.config.batch > 1 && exists && options_.resume) header.items = items_before;
    writer_ = std::make_unique<Writer>(results(), header, Writer::Mode::resume);
    if (exists && options_.resume) {
        finished_ = finished_items(items_before);
        if (options_.say && !finished_.empty())
            options_.say(fmt::format("going on in {}: {} items were measured before",
                                     printable(experiment_.config.output.string(), 200),
                                     finished_.size()));
        // finished_items() may have replaced the file. Now the header becomes that of this run.
        writer_ = std::make_unique<Writer>(results(), options_.header, Writer::Mode::resume);
    }
    if (options_.shard.index == 1)
        write_whole_file(experiment_.config.output / "resolved.yaml", experiment_.resolved);
    arms_->begin_logs();
}

bool Runner::is_finished(const Place &place, const std::string &item) const {
    return finished_.contains(item_key(place, item));
}

// The first documents show whether the reference repeats itself exactly. If it does not, it runs
// again on all documents, to measure the differences.
bool Runner::reruns(const Place &place, size_t document) const {
    return document < first_reruns || differing_.contains(task_key(place));
}

// Compares the number of the reference's second run with that of the first.
void Runner::note_value(const Item &item) {
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

void Runner::write_item(const Item &item) {
    write(item);
    ++written_;
    note_value(item);
}

void Runner::write_once(const Warning &warning) {
    if (warnings_.insert(record_line(warning)).second) write(warning);
}

} // namespace keel::ab
