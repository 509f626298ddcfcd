#include "eval/ab/run/runner.hpp"

#include "base/error.hpp"
#include "eval/ab/run/runner_parts.hpp"

#include <algorithm>

namespace keel::ab {

Runner::Runner(const Experiment &experiment, const RunOptions &options)
    : experiment_(experiment), options_(options), paces_(experiment.runs.size()) {
    const Config &c = experiment.config;
    const bool logs = c.eviction_logs && !options.cost_only;
    if (logs) lock_folder(); // before the arms check whether their logs can be written
    Arms::Options of_arms;
    of_arms.host = options.host;
    of_arms.progress = options.loading;
    if (logs) of_arms.log_folder = c.output;
    const Shard &shard = options.shard;
    if (shard.count > 1)
        of_arms.log_suffix = fmt::format("-shard-{}-of-{}", shard.index, shard.count);
    of_arms.resume = options.resume;
    of_arms.share_prefill = options.share_prefill;
    arms_ = std::make_unique<Arms>(experiment, std::move(of_arms));
    plan();
}

Runner::~Runner() = default;

void Runner::plan() {
    const Config &c = experiment_.config;
    const bool one_by_one = std::any_of(experiment_.runs.begin(), experiment_.runs.end(),
                                        [](const Run &run) { return run.acts_in_decode; });
    for (const Task &task : c.tasks) {
        PlannedTask t;
        t.task = &task;
        if (task.kind != TaskKind::speed) {
            t.items = make_task_items(task, arms_->tokenizer(),
                                      *experiment_.reference().config.model.path, experiment_.form);
            t.documents = t.items->documents();
            t.last_metric = t.items->has_question() ? t.items->score_name() : "top1";
        } else {
            t.documents = task.at.size() * static_cast<size_t>(task.repeats);
            t.last_metric = "decode_ms_p99";
        }
        if (options_.items > 0)
            t.documents = std::min(t.documents, static_cast<size_t>(options_.items));
        t.one_by_one = one_by_one;
        if (t.items && (t.items->has_question() || one_by_one)) t.at_once = c.batch;
        if (t.items) {
            t.longest = t.items->longest(t.documents);
            const int64_t context = arms_->pipeline(0).context();
            const std::string &at = t.longest.whole_at;
            if (t.longest.whole > context)
                throw_at(task.where, ErrorKind::input,
                         "task '{}': {}prompts with their answers have up to {} tokens, the full "
                         "cache holds {} (model.context); ask for shorter ones",
                         task.name, at.empty() ? at : at + ": ", t.longest.whole, context);
        }
        tasks_.push_back(std::move(t));
    }
    plan_batch();
}

// A batch is for tokens that are taken in one by one. Throws if no task has such tokens. Names the
// tasks that do not have them.
void Runner::plan_batch() {
    const Config &c = experiment_.config;
    if (c.batch == 1) return;
    std::vector<std::string> others;
    for (const PlannedTask &t : tasks_) {
        if (t.at_once > 1) continue;
        others.push_back(
            t.items ? fmt::format("'{}' takes in many tokens at a time, which reads the weights "
                                  "once for all of them already",
                                  t.task->name)
                    : fmt::format("'{}' measures one sequence", t.task->name));
    }
    if (others.size() == tasks_.size())
        throw_error(
            ErrorKind::input,
            "{}batch: {} documents at once are for tasks that take in tokens one by one (answers; "
            "continuations where an arm evicts while text is written), and there is none: {}; "
            "leave "
            "it out",
            c.file.empty() ? "" : c.file.string() + ": ", c.batch, fmt::join(others, "; "));
    if (!options_.say) return;
    for (const std::string &other : others)
        options_.say(fmt::format("batch: {}: it takes one document at a time", other));
}

// Reports progress: `runs` runs of the current part are done.
void Runner::step(uint64_t runs) {
    if (options_.host->cancelled()) throw_error(ErrorKind::runtime, "cancelled");
    const uint64_t here = share_.documents * (share_.part * per_document_ + runs) / share_.parts;
    if (!options_.steps || !writer_) return;
    const uint64_t done = std::min(share_.before + here, total_);
    options_.steps(done, total_, std::min(done, static_cast<uint64_t>(found_)));
}

// Finds before the first item prompts that are too long for an arm. An arm that keeps all must also
// hold the answer.
void Runner::check_lengths() {
    for (const PlannedTask &task : tasks_) {
        if (task.items && !task.items->has_question())
            at_task(*task.task, [&] { check_logits(task); });
        const int64_t at =
            task.items ? 0 : *std::max_element(task.task->at.begin(), task.task->at.end());
        const int64_t longest = task.items ? task.longest.prompt : std::max<int64_t>(at, 1),
                      whole = task.items ? task.longest.whole : longest + task.task->decode;
        for (size_t r = 0; r < experiment_.runs.size(); ++r)
            at_task(*task.task, [&] {
                const bool keeps_all = experiment_.runs[r].keeps_all;
                const std::string &place =
                    keeps_all ? task.longest.whole_at : task.longest.prompt_at;
                try {
                    arms_->check_prompt(r, keeps_all ? whole : longest, keeps_all);
                } catch (const Error &e) {
                    if (place.empty()) throw;
                    throw Error(e.kind(), fmt::format("{}: {}", place, e.what()));
                }
            });
    }
}

void Runner::run() {
    lock_folder();
    check_lengths();
    open_results();
    for (const Run &run : experiment_.runs) per_document_ += run.seeds.size();
    for (const PlannedTask &task : tasks_) {
        const uint64_t protocols =
            task.items && task.items->has_question() ? experiment_.config.protocols.size() : 1;
        if (task.items) {
            for (size_t d = 0; d < task.documents; ++d)
                total_ += options_.shard.takes(d / task.at_once) ? protocols * per_document_ : 0;
        } else if (options_.shard.index == 1) {
            total_ += task.documents * per_document_;
        }
    }
    for (const PlannedTask &task : tasks_) {
        if (task.items) {
            run_task(task);
            // Arms take turns on one machine. Times of two machines could not be compared.
        } else if (options_.shard.index == 1) {
            run_speed(task);
        }
    }
}

void Runner::run_task(const PlannedTask &task) {
    const bool asks = task.items->has_question();
    arms_->keep_prompts(task.at_once);
    const std::vector<Protocol> one = {Protocol::question_blind};
    for (const Protocol protocol : asks ? experiment_.config.protocols : one) {
        if (asks && protocol == Protocol::whole_prompt && options_.shard.takes(0))
            warn_of_short_answers(task);
        for (size_t first = 0; first < task.documents; first += task.at_once) {
            if (options_.shard.takes(first / task.at_once))
                run_documents(task, protocol, first,
                              std::min(task.at_once, task.documents - first));
        }
        if (options_.say)
            options_.say(fmt::format("{}{}: {} documents", task.task->name,
                                     asks ? fmt::format(" ({})", protocol_name(protocol)) : "",
                                     task.documents));
    }
}

// Runs `count` documents from `first` on. Each step takes at most task.at_once of their units.
void Runner::run_documents(const PlannedTask &task, Protocol protocol, size_t first, size_t count) {
    const std::string name = task.items->has_question() ? protocol_name(protocol) : "";
    const uint64_t before = done_;
    std::vector<Member> members;
    for (size_t d = first; d < first + count; ++d) {
        for (Unit &unit : task.items->units(d, protocol))
            members.push_back({members.size() % task.at_once, d, first, std::move(unit)});
    }
    const size_t parts = (members.size() + task.at_once - 1) / task.at_once;
    for (size_t p = 0; p < parts; ++p) {
        share_ = {before, p, parts, count};
        const size_t begin = p * task.at_once;
        run_members(
            task, name,
            std::span(members).subspan(begin, std::min(task.at_once, members.size() - begin)));
    }
    done_ = before + count * per_document_;
}

void Runner::run_members(const PlannedTask &task, const std::string &protocol,
                         std::span<const Member> members) {
    for (const Member &member : members) {
        if (member.unit.split_changes_tokens && member.document == 0)
            write_once(
                Warning{"", "", protocol, task.task->name,
                        "context and question have other tokens apart than together; they are "
                        "taken apart"});
    }
    reference_logits_.clear();
    uint64_t done = 0;
    for (size_t r = 0; r < experiment_.runs.size(); ++r) {
        const Run &run = experiment_.runs[r];
        for (const uint64_t seed : run.seeds) {
            if (!writer_ && seed != run.seeds.front()) continue; // all seeds take the same time
            const Place place = {run.arm, run.budget, protocol, task.task->name, seed};
            if (run.is_rerun && !reruns(place, members.front().first)) continue;
            const uint64_t written = written_;
            const double begin = steady_seconds();
            if (task.items->has_question()) {
                ask_questions(task, place, r, members);
            } else {
                score_continuations(task, place, r, members);
            }
            paces_[r].all += steady_seconds() - begin;
            if (written_ == written)
                found_ += static_cast<double>(share_.documents) / static_cast<double>(share_.parts);
            step(++done);
        }
    }
}

Arms::Opened Runner::open(size_t run, uint64_t seed, const Member &member) {
    const double begin = steady_seconds();
    Arms::Opened opened = arms_->open(run, seed, member.document, member.unit.prompt);
    paces_[run].reading += steady_seconds() - begin;
    return opened;
}

// Under whole_prompt, the only token of a one-token answer is computed before the eviction.
void Runner::warn_of_short_answers(const PlannedTask &task) {
    constexpr size_t sampled = 8;
    const Tokenizer &tokenizer = arms_->tokenizer();
    const EncodeOptions plain{.add_special = false, .parse_special = false, .continues = true};
    const auto is_short = [&](const Question &q) {
        return q.max_tokens == 1 ||
               std::any_of(q.expected.begin(), q.expected.end(), [&](const std::string &e) {
                   return tokenizer.encode(" " + e, plain).size() <= 1;
               });
    };
    for (size_t d = 0; d < std::min(task.documents, sampled); ++d) {
        for (const Unit &unit : task.items->units(d, Protocol::whole_prompt)) {
            if (std::none_of(unit.questions.begin(), unit.questions.end(), is_short)) continue;
            write_once(Warning{
                "", "", protocol_name(Protocol::whole_prompt), task.task->name,
                "there are expected answers of one token: under whole_prompt the first token was "
                "read before anything was evicted, so these say nothing about a policy; ask them "
                "under question_blind or query_aware"});
            return;
        }
    }
}

} // namespace keel::ab
