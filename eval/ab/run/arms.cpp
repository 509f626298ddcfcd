#include "eval/ab/run/arms.hpp"

#include "base/error.hpp"
#include "eval/stats/draws.hpp"

#include <algorithm>
#include <system_error>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;
using pipeline::PipelineConfig;

constexpr uint64_t largest_seed = uint64_t{1} << 53; // the largest seed that a config accepts

// The arm's pipeline configuration without its policy. If the configuration is equal for two arms,
// the arms have the same weights, ops and cache form. Two arms with equal configurations can use
// one pipeline.
PipelineConfig base_config(const PipelineConfig &arm) {
    PipelineConfig config = arm;
    config.policy = {};
    // the policy's section keeps its place in the file, for messages
    config.policy.plugin = arm.policy.plugin;
    config.policy.plugin.value = "none";
    config.sampling = {};
    config.generation = {};
    return config;
}

} // namespace

Arms::Arms(const Experiment &experiment, Options options)
    : experiment_(experiment), options_(std::move(options)),
      group_of_(experiment.runs.size(), alone) {
    std::vector<PipelineConfig> configs;
    for (const Run &run : experiment.runs) {
        const PipelineConfig config = base_config(run.config);
        const auto same = std::find(configs.begin(), configs.end(), config);
        base_of_.push_back(static_cast<size_t>(same - configs.begin()));
        if (same == configs.end()) configs.push_back(config);
    }
    bases_.resize(configs.size());
}

Arms::~Arms() {
    bases_.clear();
    std::error_code error; // errors are ignored, so a log that Keel cannot delete stays
    for (const fs::path &log : further_logs_) {
        if (fs::file_size(log, error) == 0 && !error) fs::remove(log, error);
    }
    for (const auto &[log, stem] : new_logs_) fs::remove(log, error);
}

// ---- pipelines and plans -----------------------------------------------------------------------

Arms::Base &Arms::base(size_t run) {
    std::unique_ptr<Base> &made = bases_[base_of_[run]];
    if (!made) {
        made = make_base(base_config(experiment_.runs[run].config));
        group_runs(base_of_[run], *made);
    }
    return *made;
}

std::unique_ptr<Arms::Base> Arms::make_base(const PipelineConfig &config) {
    auto base = std::make_unique<Base>();
    PipelineOptions options;
    options.host = options_.host;
    options.progress = options_.progress;
    options.max_logit_rows = logit_rows;
    options.batch = experiment_.config.batch;
    // The plan has room for the parents, for an equal number of measured sessions, and for one
    // session that is copied for further questions.
    options.sequences = 2 * options.batch + 1;
    options.several_policies = true;
    options.quiet_fallbacks =
        std::any_of(bases_.begin(), bases_.end(), [](const auto &b) { return b != nullptr; });
    base->pipeline = std::make_unique<Pipeline>(config, options);
    return base;
}

bool Arms::may_share(size_t run) const {
    const Run &r = experiment_.runs[run];
    // An arm with kv.max_mib does not share a prefill, because all copies of a session count
    // against one limit. An arm with an eviction log does not share a prefill either. If a copy
    // evicts a slot, the parent of the copy still holds the slot. So the logged eviction would free
    // no memory.
    const bool is_logged = !options_.log_folder.empty() && !r.keeps_all;
    return options_.share_prefill && !r.is_rerun && !r.acts_in_prefill &&
           !r.config.kv.max_bytes() && !is_logged;
}

// Divides the runs of a base into as few groups as possible. The runs of a group share a prefill,
// so the data that their policies collect must have the same form.
void Arms::group_runs(size_t number, Base &base) {
    for (size_t r = 0; r < experiment_.runs.size(); ++r) {
        if (base_of_[r] != number || !may_share(r)) continue;
        PolicySetup &mine = plan(r, experiment_.runs[r].seeds.front());
        for (size_t g = 0; group_of_[r] == alone; ++g) {
            if (g == base.groups.size()) base.groups.emplace_back();
            Collected together = base.groups[g].gathered;
            if (together.merge(mine.collected()) != nullptr) continue;
            base.groups[g].gathered = together;
            base.groups[g].members.push_back(&mine);
            group_of_[r] = g;
        }
    }
    for (Group &group : base.groups)
        group.plan = &base.pipeline->policies().add_shared_prefill(group.members);
}

PolicySetup &Arms::plan(size_t run, uint64_t seed) {
    const Run &r = experiment_.runs[run];
    Pipeline &p = *bases_[base_of_[run]]->pipeline;
    if (r.keeps_all) return p.policy_setup();
    PolicySetup *&made = plans_[{run, r.is_seeded ? seed : 0}];
    if (made != nullptr) return *made;
    pipeline::PolicySection section = r.config.policy;
    if (r.is_seeded) section.seed.value = static_cast<int64_t>(seed);
    if (!options_.log_folder.empty()) {
        section.log.value = log_path(r, seed);
        section.log_positions.value = true; // `keel eval log` needs positions for its drawings
    }
    made = &p.policies().add(section);
    return *made;
}

// Mixes the number of the document into the policy's seed. Without the number, a policy that draws
// slots at random would draw the same slots in every document.
void Arms::draw_anew(Session &session, size_t run, uint64_t seed, uint64_t document) const {
    const Run &r = experiment_.runs[run];
    if (r.is_seeded && r.draws_slots)
        session.cache().reseed(mixed_seed(seed, document) % largest_seed);
}

// Returns the path of a run's log. Opening a log empties it, and numbers its sequences from 0. So
// the log of an earlier process is left unchanged, and this process writes the next part of the
// log.
fs::path Arms::log_path(const Run &run, uint64_t seed) {
    std::string stem =
        fmt::format("evictions-{}-{}-{}{}", run.arm, run.budget, seed, options_.log_suffix);
    std::replace(stem.begin(), stem.end(), ':', '-');
    if (!options_.resume) {
        if (!has_begun_)
            return new_logs_.emplace_back(options_.log_folder / ("." + stem + ".new"), stem).first;
        remove_log(stem);
        return log_part(stem, 1);
    }
    std::error_code error;
    const auto has_some = [&](int number) {
        const uint64_t size = fs::file_size(log_part(stem, number), error);
        return !error && size > 0;
    };
    int number = 1;
    while (has_some(number)) ++number;
    if (number > 1) further_logs_.push_back(log_part(stem, number));
    return log_part(stem, number);
}

fs::path Arms::log_part(const std::string &stem, int number) const {
    return options_.log_folder /
           (stem + (number == 1 ? "" : fmt::format("-part-{}", number)) + ".jsonl");
}

void Arms::remove_log(const std::string &stem) const {
    std::error_code error;
    for (int number = 1; fs::exists(log_part(stem, number), error); ++number)
        fs::remove(log_part(stem, number), error);
}

void Arms::begin_logs() {
    has_begun_ = true;
    for (const auto &[log, stem] : new_logs_) {
        remove_log(stem);
        // An open log can be renamed, because the writer of the log does not use the name.
        std::error_code error;
        fs::rename(log, log_part(stem, 1), error);
        if (error)
            throw_error(ErrorKind::runtime, "{}: cannot be renamed: {}", log.string(),
                        error.message());
    }
    new_logs_.clear();
}

void Arms::keep_prompts(size_t count) {
    kept_prompts_ = std::clamp<size_t>(count, 1, experiment_.config.batch);
}

SessionBatch *Arms::batch(size_t run) {
    if (experiment_.config.batch == 1) return nullptr;
    Base &b = base(run);
    const size_t group = group_of_[run];
    std::unique_ptr<SessionBatch> &made = group == alone ? b.batch : b.groups[group].batch;
    if (!made) {
        made = group == alone ? std::make_unique<SessionBatch>(*b.pipeline)
                              : std::make_unique<SessionBatch>(*b.pipeline, *b.groups[group].plan);
    }
    return made.get();
}

uint64_t Arms::full_bytes(size_t run, int64_t tokens) {
    const KvShape &s = pipeline(run).policy_setup().shape(),
                  &w = pipeline(run).engine().windowed.shape;
    return s.bytes_of(s.held_slots(tokens)) + w.bytes_of(w.held_slots(tokens));
}

bool Arms::shares(size_t run) {
    base(run);
    return group_of_[run] != alone;
}

uint64_t Arms::prefills() {
    uint64_t count = 0;
    for (size_t r = 0; r < experiment_.runs.size(); ++r)
        count += shares(r) || experiment_.runs[r].is_rerun ? 0 : experiment_.runs[r].seeds.size();
    for (const auto &base : bases_) count += base->groups.size();
    return count;
}

void Arms::check_prompt(size_t run, int64_t tokens, bool with_answer) {
    const uint64_t seed = experiment_.runs[run].seeds.front();
    Base &b = base(run);
    std::string why;
    if (!Session(*b.pipeline, plan(run, seed)).cache().can_take(tokens, true, &why))
        blame(run, static_cast<size_t>(tokens), Error(ErrorKind::input, why), with_answer);
}

// ---- sessions ----------------------------------------------------------------------------------

void Arms::blame(size_t run, size_t tokens, const Error &error, bool with_answer) const {
    const Run &r = experiment_.runs[run];
    throw Error(error.kind(),
                fmt::format("arm '{}' at budget {}, prompt {}of {} tokens: {}", r.arm, r.budget,
                            with_answer ? "with its answer " : "", tokens, error.what()));
}

Arms::Parent &Arms::parent(Group &group, Pipeline &pipeline, std::span<const int32_t> prompt) {
    for (Parent &one : group.parents) {
        if (std::equal(prompt.begin(), prompt.end(), one.prompt.begin(), one.prompt.end()))
            return one;
    }
    while (group.parents.size() >= kept_prompts_) group.parents.pop_front();
    Parent read;
    read.session = group.batch ? group.batch->make_session()
                               : std::make_unique<Session>(pipeline, *group.plan);
    const auto note = [&](const char *, uint64_t tokens, uint64_t) {
        read.notes.push_back({tokens, read.session->kv_bytes(), 0});
    };
    if (!read.session->prefill(prompt, false, 1, note))
        throw_error(ErrorKind::runtime, "cancelled");
    read.next = read.session->greedy();
    read.prompt.assign(prompt.begin(), prompt.end());
    return group.parents.emplace_back(std::move(read));
}

Arms::Opened Arms::open(size_t run, uint64_t seed, uint64_t document,
                        std::span<const int32_t> prompt) {
    batch(run); // the batch must exist before its sessions
    if (!shares(run)) return open_by_itself(run, seed, document, prompt, true);
    Base &b = base(run);
    Group &group = b.groups[group_of_[run]];
    Opened opened;
    try {
        Parent &behind = parent(group, *b.pipeline, prompt);
        opened.session = behind.session->fork(plan(run, seed));
        draw_anew(*opened.session, run, seed, document);
        opened.notes = behind.notes;
        opened.next = behind.next;
        // The parent collects data for the policies of all arms, but each arm counts only the data
        // of the arm's own policy.
        for (Note &note : opened.notes) note.kv_bytes += opened.session->policy_bytes();
        opened.peak_bytes = opened.session->held_peak_bytes();
        opened.session->end_prompt();
    } catch (const Error &e) {
        blame(run, prompt.size(), e);
    }
    Session &s = *opened.session;
    opened.notes.push_back(
        {static_cast<uint64_t>(s.tokens()), held_bytes_of(s), s.cache().evicted_slots()});
    opened.policy_bytes = s.policy_bytes();
    opened.peak_bytes = std::max(opened.peak_bytes, s.held_peak_bytes());
    return opened;
}

Arms::Opened Arms::open_by_itself(size_t run, uint64_t seed, uint64_t document,
                                  std::span<const int32_t> prompt, bool in_batch) {
    Base &b = base(run);
    PolicySetup &its = plan(run, seed);
    SessionBatch *together = in_batch ? batch(run) : nullptr;
    Opened opened;
    opened.session = together != nullptr ? together->make_session(its)
                                         : std::make_unique<Session>(*b.pipeline, its);
    Session &s = *opened.session;
    draw_anew(s, run, seed, document);
    uint64_t evicted = 0;
    const auto note = [&](const char *, uint64_t tokens, uint64_t) {
        const uint64_t gone = s.cache().evicted_slots();
        opened.notes.push_back({tokens, held_bytes_of(s), gone - evicted});
        evicted = gone;
    };
    try {
        if (!s.prefill(prompt, true, 1, note)) throw_error(ErrorKind::runtime, "cancelled");
    } catch (const Error &e) {
        blame(run, prompt.size(), e);
    }
    opened.next = s.greedy();
    opened.policy_bytes = s.policy_bytes();
    opened.peak_bytes = s.held_peak_bytes();
    return opened;
}

} // namespace keel::ab
