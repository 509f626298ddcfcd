#include "eval/ab/runner.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/runner_parts.hpp"
#include "platform/new_file.hpp"

#include <algorithm>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr size_t first_reruns = 8; // documents of each task that the reference is run on again in any case

std::string item_key(const AbPlace &place, const std::string &item) {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", place.arm, place.budget, place.protocol, place.task,
                       place.seed, item);
}

std::string task_key(const AbPlace &place) {
    return place.task + "\n" + place.protocol;
}

// A folder with files, none of which is an experiment's: somebody's own.
bool is_foreign(const fs::path &folder) {
    bool has_files = false;
    std::error_code error;
    for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
        const std::string name = i->path().filename().string();
        has_files = true;
        for (const std::string_view ours : {"results.jsonl", "resolved.yaml", "shard-", "evictions-",
                                            "merge.lock", ".results.jsonl", ".shard-", ".evictions-"}) {
            if (name.starts_with(ours)) return false;
        }
    }
    return has_files;
}

} // namespace

AbRunner::AbRunner(const AbExperiment &experiment, const AbRunOptions &options)
    : experiment_(experiment), options_(options) {
    const AbConfig &c = experiment.config;
    const bool logs = c.eviction_logs && !options.cost_only;
    if (logs) lock_folder(); // before plans look whether their logs can be written
    AbArms::Options of_arms;
    of_arms.host = options.host;
    of_arms.progress = options.loading;
    if (logs) of_arms.log_folder = c.output;
    const AbShard &shard = options.shard;
    if (shard.count > 1) of_arms.log_suffix = fmt::format("-shard-{}-of-{}", shard.index, shard.count);
    of_arms.resume = options.resume;
    of_arms.share_prefill = options.share_prefill;
    arms_ = std::make_unique<AbArms>(experiment, std::move(of_arms));
    plan();
}

AbRunner::~AbRunner() = default;

void AbRunner::plan() {
    const AbConfig &c = experiment_.config;
    const bool one_by_one = std::any_of(experiment_.runs.begin(), experiment_.runs.end(),
                                        [](const AbRun &run) { return run.acts_in_decode; });
    for (const AbTask &task : c.tasks) {
        Task t;
        t.task = &task;
        if (task.kind != AbTaskKind::speed) {
            t.items = make_task_items(task, arms_->tokenizer(), *experiment_.reference().config.model.path);
            t.documents = t.items->documents();
            t.last_metric = t.items->has_question() ? t.items->score_name() : "top1";
        } else {
            t.documents = task.at.size() * static_cast<size_t>(task.repeats);
            t.last_metric = "decode_ms_p99";
        }
        if (options_.items > 0) t.documents = std::min(t.documents, static_cast<size_t>(options_.items));
        t.one_by_one = one_by_one;
        if (t.items) {
            t.longest = t.items->longest(t.documents);
            const int64_t context = arms_->pipeline(0).context();
            const std::string &at = t.longest.whole_at;
            if (t.longest.whole > context)
                throw_error(ErrorKind::input,
                            "{}: task '{}': {}prompts with their answers have up to {} tokens, the full "
                            "cache holds {} (model.context); ask for shorter ones",
                            to_string(task.where), task.name, at.empty() ? at : at + ": ", t.longest.whole,
                            context);
        }
        tasks_.push_back(std::move(t));
    }
}

// ---- the folder ----------------------------------------------------------------------------------------------------

fs::path AbRunner::results() const {
    return experiment_.config.output / options_.shard.file_name();
}

void AbRunner::make_folder() const {
    const fs::path &folder = experiment_.config.output;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error || !fs::is_directory(folder, error))
        throw_error(ErrorKind::usage, "{}: cannot be made a folder: {}", printable(folder.string(), 300),
                    error ? error.message() : "there is something else of that name");
    if (is_foreign(folder))
        throw_error(
            ErrorKind::usage,
            "{}: holds files, but no experiment's results; choose a new or empty folder with --output",
            printable(folder.string(), 300));
}

// Two that write the same items would each find those of the other missing, and one's logs are not the other's to remove.
void AbRunner::lock_folder() {
    if (lock_) return;
    make_folder();
    lock_ = std::make_unique<AbFileLock>(
        experiment_.config.output / ("." + options_.shard.file_name() + ".lock"), false);
}

void AbRunner::fill_header() {
    AbHeader &h = options_.header;
    h.config_hash = experiment_.hash;
    h.libraries = experiment_.libraries;
    h.experiment_hash = experiment_.experiment_hash;
    const AbRun &reference = experiment_.reference();
    h.model =
        fmt::format("{} ({})", reference.config.model.path->filename().string(), experiment_.model_hash);
    h.title = experiment_.config.title;
    h.reference = experiment_.config.reference;
    for (size_t i = 0; i < experiment_.config.arms.size(); ++i)
        h.arms.push_back({experiment_.config.arms[i].name, experiment_.differences[i]});
    h.contrasts = experiment_.config.contrasts;
    for (const AbArmEntry &arm : experiment_.config.arms) {
        if (arm.budgets.size() > 1) h.sweeps.push_back(arm.name);
    }
    h.items = options_.items > 0 ? static_cast<uint64_t>(options_.items) : 0;
    h.statistics = experiment_.config.statistics;
    h.shard = options_.shard.index;
    h.shards = options_.shard.count;
    Pipeline &p = arms_->pipeline(0);
    const KvShape &shape = p.kv_shape();
    h.facts = {{"backend", fmt::format("{} on {}", p.device().plugin(), p.device().device_info().name)},
               {"kernels", p.device().info().description},
               {"weights", p.weights().dtype_name()},
               {"KV cache", fmt::format("keys {}, values {}", keel_dtype_name(shape.key_dtype),
                                        keel_dtype_name(shape.value_dtype))},
               {"tokenizer", p.tokenizer()->info().kind},
               {"context", fmt::format("{}", p.context())},
               {"decoding", "greedy"}};
    for (const Task &t : tasks_) {
        if (t.items && !t.items->has_question())
            h.facts.emplace_back(t.task->name,
                                 t.one_by_one ? "scored token by token" : "scored many tokens at a time");
    }
}

// What stands there, less items whose numbers were not all written: they are computed again.
std::set<std::string> AbRunner::finished_items() {
    std::set<std::string> all, whole;
    const auto each = [&](const auto &take) {
        read_ab_records(results(), [&](AbRecord &&record, uint64_t) {
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
    each([&](const AbRecord &record, const std::string &key) {
        if (!key.empty()) all.insert(key);
        if (std::holds_alternative<AbWarning>(record)) warnings_.insert(ab_record_line(record));
        const auto *item = std::get_if<AbItem>(&record);
        if (item == nullptr) return;
        note_value(*item);
        const auto task = std::find_if(tasks_.begin(), tasks_.end(),
                                       [&](const Task &t) { return t.task->name == item->task; });
        if (task != tasks_.end() && task->last_metric == item->metric) whole.insert(key);
    });
    if (whole.size() == all.size()) return whole;
    std::string text = ab_header_line(read_ab_header(results())) + "\n";
    each([&](const AbRecord &record, const std::string &key) {
        if (key.empty() || whole.contains(key)) text += ab_record_line(record) + "\n";
    });
    write_whole_file(results(), text);
    return whole;
}

void AbRunner::open_results() {
    fill_header();
    std::error_code error;
    if (options_.shard.count > 1) {
        // The last shard puts the merged results there: it is known now whether it may.
        const fs::path whole = experiment_.config.output / AbShard{}.file_name();
        if (fs::exists(whole, error)) require_same_experiment(whole, read_ab_header(whole), options_.header);
        reopen_ab_shard(experiment_.config.output, options_.shard);
    }
    const bool exists = fs::exists(results(), error);
    if (exists && !options_.resume) {
        read_ab_header(results()); // what is no results file is not replaced
        fs::remove(results(), error);
    }
    writer_ = std::make_unique<AbWriter>(results(), options_.header, AbWriter::Mode::resume);
    if (exists && options_.resume) {
        finished_ = finished_items();
        if (options_.say && !finished_.empty())
            options_.say(fmt::format("going on in {}: {} items were measured before",
                                     printable(experiment_.config.output.string(), 200), finished_.size()));
        // finished_items() may have replaced the file.
        writer_ = std::make_unique<AbWriter>(results(), options_.header, AbWriter::Mode::resume);
    }
    if (options_.shard.index == 1)
        write_whole_file(experiment_.config.output / "resolved.yaml", experiment_.resolved);
    arms_->begin_logs();
}

bool AbRunner::is_finished(const AbPlace &place, const std::string &item) const {
    return finished_.contains(item_key(place, item));
}

// A few documents tell whether the reference repeats itself; where it does not, all of them tell by how much.
bool AbRunner::reruns(const AbPlace &place, size_t document) const {
    return document < first_reruns || differing_.contains(task_key(place));
}

// Compares what the reference gives the second time with what it gave.
void AbRunner::note_value(const AbItem &item) {
    const bool again = item.arm == experiment_.config.reference + std::string(ab_rerun_suffix);
    if (!again && item.arm != experiment_.config.reference) return;
    const std::string key = fmt::format("{}\n{}\n{}", task_key(item), item.item, item.metric);
    if (!again) {
        reference_values_[key] = item.value;
        return;
    }
    const auto first = reference_values_.find(key);
    if (first != reference_values_.end() && first->second != item.value) differing_.insert(task_key(item));
}

void AbRunner::write_item(const AbItem &item) {
    writer_->write(item);
    ++written_;
    note_value(item);
}

void AbRunner::write_once(const AbWarning &warning) {
    if (warnings_.insert(ab_record_line(warning)).second) writer_->write(warning);
}

// `runs` of a unit's are done.
void AbRunner::step(uint64_t runs) {
    if (options_.host->cancelled()) throw_error(ErrorKind::runtime, "cancelled");
    const uint64_t of_document = (unit_share_.unit * per_document_ + runs) / unit_share_.units;
    if (!options_.steps) return;
    const uint64_t done = std::min(unit_share_.before + of_document, total_);
    options_.steps(done, total_, std::min(done, static_cast<uint64_t>(found_)));
}

// ---- the loop ------------------------------------------------------------------------------------------------------

// That a prompt is too long for an arm is known before the first item. What keeps all has to hold the answer, too.
void AbRunner::check_lengths() {
    for (const Task &task : tasks_) {
        const int64_t at = task.items ? 0 : *std::max_element(task.task->at.begin(), task.task->at.end());
        const int64_t longest = task.items ? task.longest.prompt : std::max<int64_t>(at, 1),
                      whole = task.items ? task.longest.whole : longest + task.task->decode;
        for (size_t r = 0; r < experiment_.runs.size(); ++r)
            at_task(*task.task, [&] {
                const bool keeps_all = experiment_.runs[r].keeps_all;
                const std::string &place = keeps_all ? task.longest.whole_at : task.longest.prompt_at;
                try {
                    arms_->check_prompt(r, keeps_all ? whole : longest, keeps_all);
                } catch (const Error &e) {
                    if (place.empty()) throw;
                    throw Error(e.kind(), fmt::format("{}: {}", place, e.what()));
                }
            });
    }
}

void AbRunner::run() {
    lock_folder();
    check_lengths();
    open_results();
    for (const AbRun &run : experiment_.runs)
        per_document_ += run.seeds.size();
    for (const Task &task : tasks_) {
        const uint64_t protocols =
            task.items && task.items->has_question() ? experiment_.config.protocols.size() : 1;
        if (task.items) {
            total_ += protocols * task.documents * per_document_ / options_.shard.count;
        } else if (options_.shard.index == 1) {
            total_ += task.documents * per_document_;
        }
    }
    for (const Task &task : tasks_) {
        if (task.items) {
            run_task(task);
        } else if (options_.shard.index ==
                   1) { // arms take turns on one machine, or times could not be compared
            run_speed(task);
        }
    }
}

void AbRunner::run_task(const Task &task) {
    const bool asks = task.items->has_question();
    const std::vector<AbProtocol> one = {AbProtocol::question_blind};
    for (const AbProtocol protocol : asks ? experiment_.config.protocols : one) {
        if (asks && protocol == AbProtocol::query_aware && options_.shard.takes(0))
            warn_of_short_answers(task);
        for (size_t d = 0; d < task.documents; ++d) {
            if (options_.shard.takes(d)) run_document(task, protocol, d);
        }
        if (options_.say)
            options_.say(fmt::format("{}{}: {} documents", task.task->name,
                                     asks ? fmt::format(" ({})", ab_protocol_name(protocol)) : "",
                                     task.documents));
    }
}

void AbRunner::run_document(const Task &task, AbProtocol protocol, size_t document) {
    const std::string name = task.items->has_question() ? ab_protocol_name(protocol) : "";
    const uint64_t before = done_;
    const std::vector<AbUnit> units = task.items->units(document, protocol);
    for (size_t u = 0; u < units.size(); ++u) {
        unit_share_ = {before, u, units.size()};
        run_unit(task, name, document, units[u]);
    }
    done_ = before + per_document_;
}

void AbRunner::run_unit(const Task &task, const std::string &protocol, size_t document, const AbUnit &unit) {
    if (unit.split_changes_tokens && document == 0)
        write_once(
            AbWarning{"", "", protocol, task.task->name,
                      "context and question have other tokens apart than together; they are taken apart"});
    reference_logits_.clear();
    uint64_t done = 0;
    for (size_t r = 0; r < experiment_.runs.size(); ++r) {
        const AbRun &run = experiment_.runs[r];
        for (const uint64_t seed : run.seeds) {
            const AbPlace place = {run.arm, run.budget, protocol, task.task->name, seed};
            if (run.is_rerun && !reruns(place, document)) continue;
            const uint64_t written = written_;
            const bool with_maps = static_cast<int64_t>(document) < experiment_.config.maps &&
                                   seed == run.seeds.front() && !run.is_rerun;
            if (!unit.questions.empty()) {
                ask_questions(task, place, r, document, unit, with_maps);
            } else {
                score_continuation(task, place, r, document, unit, with_maps);
            }
            if (written_ == written) found_ += 1 / static_cast<double>(unit_share_.units);
            step(++done);
        }
    }
}

// Under query_aware an answer of one token was read before anything was evicted.
void AbRunner::warn_of_short_answers(const Task &task) {
    constexpr size_t sampled = 8;
    const Tokenizer &tokenizer = arms_->tokenizer();
    const EncodeOptions plain{.add_special = false, .parse_special = false, .continues = true};
    const auto is_short = [&](const AbQuestion &q) {
        return q.max_tokens == 1 ||
               std::any_of(q.expected.begin(), q.expected.end(), [&](const std::string &e) {
                   return tokenizer.encode(" " + e, plain).size() <= 1;
               });
    };
    for (size_t d = 0; d < std::min(task.documents, sampled); ++d) {
        for (const AbUnit &unit : task.items->units(d, AbProtocol::query_aware)) {
            if (std::none_of(unit.questions.begin(), unit.questions.end(), is_short)) continue;
            write_once(
                AbWarning{"", "", ab_protocol_name(AbProtocol::query_aware), task.task->name,
                          "there are expected answers of one token: under query_aware the first token was "
                          "read before anything was evicted, so these say nothing about a policy; ask them "
                          "under question_blind"});
            return;
        }
    }
}

// ---- what it will cost ---------------------------------------------------------------------------------------------

AbCost AbRunner::cost() {
    constexpr size_t sampled = 8;
    AbCost cost;
    fill_header();
    if (std::error_code error; options_.resume && fs::exists(results(), error)) // what a run would refuse
        require_same_experiment(results(), read_ab_header(results()), options_.header);
    const uint64_t prefills = arms_->prefills();
    uint64_t per_document = 0, capped = 0;
    for (const AbRun &run : experiment_.runs) {
        per_document += run.is_rerun ? 0 : run.seeds.size();
        capped += run.is_rerun || !run.config.kv.max_bytes() ? 0 : run.seeds.size();
    }
    for (const Task &task : tasks_) {
        const bool asks = task.items && task.items->has_question();
        const std::vector<AbProtocol> one = {AbProtocol::question_blind};
        for (const AbProtocol protocol : asks ? experiment_.config.protocols : one) {
            AbCost::Row row;
            row.task = task.task->name;
            row.protocol = asks ? ab_protocol_name(protocol) : "";
            row.documents = task.documents;
            row.runs = per_document;
            if (!task.items) {
                for (size_t d = 0; d < task.documents; ++d) {
                    row.prefill_tokens +=
                        static_cast<uint64_t>(task.task->at[d % task.task->at.size()]) * (per_document + 1);
                    row.decode_tokens += static_cast<uint64_t>(task.task->decode) * (per_document + 1);
                }
            } else {
                const size_t n = std::min(task.documents, sampled);
                cost.counted_by_sample = cost.counted_by_sample || n < task.documents;
                const double scale =
                    static_cast<double>(task.documents) / static_cast<double>(std::max<size_t>(n, 1));
                double prefill = 0, decode = 0, questions = 0;
                for (size_t d = 0; d < n; ++d) {
                    const bool again = d < first_reruns;
                    const double runs = static_cast<double>(per_document + (again ? 1 : 0));
                    for (const AbUnit &unit : task.items->units(d, protocol)) {
                        // Under a cap on the cache's bytes each further question reads the prompt again.
                        const uint64_t further = unit.questions.size() > 1 ? unit.questions.size() - 1 : 0;
                        prefill += static_cast<double>(unit.prompt.size()) *
                                   static_cast<double>(prefills + capped * further + (again ? 1 : 0));
                        decode += static_cast<double>(unit.continuation.size()) * runs;
                        for (const AbQuestion &q : unit.questions)
                            decode += static_cast<double>(std::ssize(q.ask) + q.max_tokens) * runs;
                        questions += static_cast<double>(unit.questions.size());
                    }
                }
                row.prefill_tokens = static_cast<uint64_t>(prefill * scale);
                row.decode_tokens = static_cast<uint64_t>(decode * scale);
                row.questions = static_cast<uint64_t>(questions * scale);
            }
            cost.prefill_tokens += row.prefill_tokens;
            cost.decode_tokens += row.decode_tokens;
            cost.rows.push_back(row);
        }
    }
    Pipeline &p = arms_->pipeline(0);
    const int64_t tokens = std::min<int64_t>(256, std::max<int64_t>(1, p.context() / 2));
    const std::vector<int32_t> ids(static_cast<size_t>(tokens), 1);
    const int64_t steps = std::min<int64_t>(16, p.context() - tokens);
    for (int round = 0; round < 2; ++round) { // the first warms up
        Session session(p);
        session.prefill(ids);
        for (int64_t i = 0; i < steps; ++i) {
            session.decode(1);
            session.greedy();
        }
        cost.prefill_rate = session.stats().prefill_rate();
        cost.decode_rate = session.stats().decode_rate();
    }
    if (cost.prefill_rate > 0) cost.seconds += static_cast<double>(cost.prefill_tokens) / cost.prefill_rate;
    if (cost.decode_rate > 0) cost.seconds += static_cast<double>(cost.decode_tokens) / cost.decode_rate;
    cost.seconds /= options_.shard.count;
    return cost;
}

} // namespace keel
