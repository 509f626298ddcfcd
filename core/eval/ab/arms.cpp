#include "eval/ab/arms.hpp"

#include "base/error.hpp"
#include "eval/ab/draws.hpp"

#include <algorithm>
#include <chrono>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;
using pipeline::PipelineConfig;

constexpr uint64_t largest_seed = uint64_t{1} << 53; // what a config may say

// The pipeline that an arm's policy lives in: another with the same has the same weights, ops and cache.
PipelineConfig base_config(const PipelineConfig &arm) {
    PipelineConfig config = arm;
    config.policy = {};
    config.policy.plugin = {"none", arm.policy.plugin.where};
    config.sampling = {};
    config.generation = {};
    return config;
}

uint64_t bytes_of(Session &session) {
    return session.cache().bytes_in_use();
}

} // namespace

AbArms::AbArms(const AbExperiment &experiment, Options options)
    : experiment_(experiment), options_(std::move(options)), group_of_(experiment.runs.size(), alone) {
    std::vector<PipelineConfig> configs;
    for (const AbRun &run : experiment.runs) {
        const PipelineConfig config = base_config(run.config);
        const auto same = std::find(configs.begin(), configs.end(), config);
        base_of_.push_back(static_cast<size_t>(same - configs.begin()));
        if (same == configs.end()) configs.push_back(config);
    }
    bases_.resize(configs.size());
}

AbArms::~AbArms() = default;

// ---- pipelines and plans -------------------------------------------------------------------------------------------

AbArms::Base &AbArms::base(size_t run) {
    std::unique_ptr<Base> &made = bases_[base_of_[run]];
    if (!made) {
        made = make_base(base_config(experiment_.runs[run].config));
        group_runs(base_of_[run], *made);
    }
    return *made;
}

std::unique_ptr<AbArms::Base> AbArms::make_base(const PipelineConfig &config) {
    auto base = std::make_unique<Base>();
    PipelineOptions options;
    options.host = options_.host;
    options.progress = options_.progress;
    options.max_logit_rows = logit_rows;
    options.sequences = sequences;
    options.quiet_fallbacks =
        std::any_of(bases_.begin(), bases_.end(), [](const auto &b) { return b != nullptr; });
    base->pipeline = std::make_unique<Pipeline>(config, options);
    return base;
}

bool AbArms::may_share(size_t run) const {
    const AbRun &r = experiment_.runs[run];
    // Under a cap on the cache's bytes, copies would take from each other what each has for itself alone.
    return options_.share_prefill && !r.is_rerun && !r.acts_in_prefill && !r.config.kv.max_bytes();
}

// Puts the runs of a base into as few groups as can share a prefill each: what one prefill collects it collects in one form.
void AbArms::group_runs(size_t number, Base &base) {
    for (size_t r = 0; r < experiment_.runs.size(); ++r) {
        if (base_of_[r] != number || !may_share(r)) continue;
        CachePlan &mine = plan(r, experiment_.runs[r].seeds.front(), 0);
        for (size_t g = 0; group_of_[r] == alone; ++g) {
            if (g == base.groups.size()) base.groups.emplace_back();
            Gathered together = base.groups[g].gathered;
            if (together.merge(mine.gathered()) != nullptr) continue;
            base.groups[g].gathered = together;
            base.groups[g].members.push_back(&mine);
            group_of_[r] = g;
        }
    }
    for (Group &group : base.groups)
        group.plan = &base.pipeline->add_shared_prefill(group.members);
}

CachePlan &AbArms::plan(size_t run, uint64_t seed, uint64_t document) {
    const AbRun &r = experiment_.runs[run];
    Pipeline &p = *bases_[base_of_[run]]->pipeline;
    if (r.keeps_all) return p.cache_plan();
    const bool draws_anew = r.is_seeded && r.draws_slots;
    const uint64_t own_seed = draws_anew ? ab_mix(seed, document) % largest_seed : r.is_seeded ? seed : 0;
    CachePlan *&made = plans_[{run, own_seed}];
    if (made != nullptr) return *made;
    pipeline::PolicySection section = r.config.policy;
    if (r.is_seeded) section.seed.value = static_cast<int64_t>(own_seed);
    // Plans that are made anew for each document would empty each other's log: the first one has it.
    if (!options_.log_folder.empty() && (!draws_anew || document == 0)) {
        std::string name = fmt::format("evictions-{}-{}-{}.jsonl", r.arm, r.budget, seed);
        std::replace(name.begin(), name.end(), ':', '-');
        section.log.value = options_.log_folder / name;
    }
    made = &p.add_policy(section);
    return *made;
}

uint64_t AbArms::full_bytes(int64_t tokens) {
    const KvShape &s = pipeline(0).kv_shape();
    const auto blocks = static_cast<uint64_t>((tokens + s.block_slots - 1) / s.block_slots);
    return blocks * s.block_bytes() * s.layers * s.kv_heads;
}

bool AbArms::shares(size_t run) {
    base(run);
    return group_of_[run] != alone;
}

uint64_t AbArms::prefills() {
    uint64_t count = 0;
    for (size_t r = 0; r < experiment_.runs.size(); ++r)
        count += shares(r) || experiment_.runs[r].is_rerun ? 0 : experiment_.runs[r].seeds.size();
    for (const auto &base : bases_)
        count += base->groups.size();
    return count;
}

void AbArms::check_prompt(size_t run, int64_t tokens) {
    const uint64_t seed = experiment_.runs[run].seeds.front();
    Base &b = base(run);
    std::string why;
    if (!Session(*b.pipeline, plan(run, seed, 0)).can_take(tokens, &why))
        blame(run, static_cast<size_t>(tokens), Error(ErrorKind::input, why));
}

// ---- sessions ------------------------------------------------------------------------------------------------------

void AbArms::blame(size_t run, size_t tokens, const Error &error) const {
    const AbRun &r = experiment_.runs[run];
    throw Error(error.kind(), fmt::format("arm '{}' at {}, a prompt of {} tokens: {}", r.arm, r.budget,
                                          tokens, error.what()));
}

Session &AbArms::parent(Group &group, Pipeline &pipeline, std::span<const int32_t> prompt) {
    if (group.parent && std::equal(prompt.begin(), prompt.end(), group.prompt.begin(), group.prompt.end()))
        return *group.parent;
    group.parent.reset();
    group.notes.clear();
    auto session = std::make_unique<Session>(pipeline, *group.plan);
    const auto note = [&](const char *, uint64_t tokens, uint64_t) {
        group.notes.push_back({tokens, bytes_of(*session), 0});
    };
    if (!session->prefill(prompt, false, 1, note)) throw_error(ErrorKind::runtime, "cancelled");
    group.next = session->greedy();
    group.prompt.assign(prompt.begin(), prompt.end());
    group.parent = std::move(session);
    return *group.parent;
}

AbArms::Opened AbArms::open(size_t run, uint64_t seed, uint64_t document, std::span<const int32_t> prompt) {
    if (!shares(run)) return open_alone(run, seed, document, prompt);
    Base &b = base(run);
    Group &group = b.groups[group_of_[run]];
    Opened opened;
    try {
        Session &behind = parent(group, *b.pipeline, prompt);
        opened.session = behind.fork(plan(run, seed, document));
        opened.notes = group.notes;
        opened.next = group.next;
        opened.peak_bytes = bytes_of(*opened.session);
        const auto start = Clock::now();
        opened.session->end_prompt();
        opened.eviction_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    } catch (const Error &e) {
        blame(run, prompt.size(), e);
    }
    Session &s = *opened.session;
    opened.notes.push_back({static_cast<uint64_t>(s.tokens()), bytes_of(s), s.cache().evicted_slots()});
    return opened;
}

AbArms::Opened AbArms::open_alone(size_t run, uint64_t seed, uint64_t document,
                                  std::span<const int32_t> prompt) {
    Base &b = base(run);
    Opened opened;
    opened.session = std::make_unique<Session>(*b.pipeline, plan(run, seed, document));
    Session &s = *opened.session;
    uint64_t evicted = 0;
    const auto note = [&](const char *, uint64_t tokens, uint64_t) {
        const uint64_t gone = s.cache().evicted_slots();
        opened.notes.push_back({tokens, bytes_of(s), gone - evicted});
        evicted = gone;
    };
    try {
        if (!s.prefill(prompt, true, 1, note)) throw_error(ErrorKind::runtime, "cancelled");
    } catch (const Error &e) {
        blame(run, prompt.size(), e);
    }
    opened.next = s.greedy();
    opened.peak_bytes = s.stats().kv_peak_bytes;
    return opened;
}

} // namespace keel
