#include "run/session_batch.hpp"

#include "base/error.hpp"
#include "device/trace.hpp"

#include <algorithm>
#include <chrono>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<KvArena> make_arena(Pipeline &pipeline, CachePlan &plan) {
    if (pipeline.batch() < 2) {
        throw_error(ErrorKind::usage, "the pipeline was made for one sequence at a time; "
                                      "PipelineOptions::batch says how many take steps together");
    }
    const uint32_t seats = pipeline.graph().attends_together() ? plan.shape().sequences : 0;
    return std::make_shared<KvArena>(plan.executor(), plan.shape(), pipeline.placement(), seats);
}

} // namespace

SessionBatch::SessionBatch(Pipeline &pipeline, CachePlan &plan)
    : pipeline_(pipeline), plan_(plan), arena_(make_arena(pipeline, plan)),
      view_(*arena_, pipeline.batch()) {
    outcomes_.reserve(pipeline.batch());
    members_.reserve(pipeline.batch());
    next_.resize(pipeline.batch());
    segments_.reserve(pipeline.batch());
    caches_.reserve(pipeline.batch());
}

std::unique_ptr<Session> SessionBatch::make_session(CachePlan &plan) {
    return std::make_unique<Session>(pipeline_, plan, arena_);
}

void SessionBatch::check(std::span<Session *const> sessions, std::span<const int32_t> ids) const {
    const size_t n = sessions.size();
    if (n == 0 || n > pipeline_.batch() || ids.size() != n) {
        throw_error(ErrorKind::usage,
                    "a step of {} sequences and {} tokens; the pipeline was made for 1 to {}", n,
                    ids.size(), pipeline_.batch());
    }
    for (size_t i = 0; i < n; ++i) {
        const Session &session = *sessions[i];
        if (&session.pipeline_ != &pipeline_ || session.is_broken_ || session.history_.empty()) {
            throw_error(ErrorKind::usage, "sequence {} of a step {}", i,
                        session.is_broken_         ? "is broken"
                        : session.history_.empty() ? "has no prompt yet"
                                                   : "is of another pipeline");
        }
        if (std::find(sessions.begin(), sessions.begin() + static_cast<std::ptrdiff_t>(i),
                      sessions[i]) != sessions.begin() + static_cast<std::ptrdiff_t>(i))
            throw_error(ErrorKind::usage, "sequence {} stands twice in a step", i);
    }
}

Error SessionBatch::Outcome::error() const {
    return {kind == Kind::full ? ErrorKind::resource : ErrorKind::runtime, detail};
}

std::span<const SessionBatch::Outcome>
SessionBatch::decode(std::span<Session *const> sessions, std::span<const int32_t> ids, Read read) {
    check(sessions, ids);
    const TraceSpan span(plan_.executor().stream().trace(), "batched decode", "step");
    const auto start = Clock::now();
    const Stream::Counters before = pipeline_.counters();
    outcomes_.assign(sessions.size(), {});
    members_.clear();
    try {
        take_in(sessions, ids);
        if (!members_.empty()) {
            forward();
            read_results(read);
            settle();
        }
    } catch (...) { // the step is of all of them; what was full took no part
        for (size_t i = 0; i < sessions.size(); ++i)
            if (outcomes_[i].kind != Outcome::Kind::full) sessions[i]->is_broken_ = true;
        throw;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const Member &member : members_) {
        member.session->stats_.decode_seconds += seconds;
        ++member.session->stats_.decode_tokens;
    }
    if (!members_.empty()) ++stats_.steps;
    stats_.tokens += members_.size();
    stats_.seconds += seconds;
    stats_.stream += pipeline_.counters() - before;
    return outcomes_;
}

// Room for each: only those that have it take part. Nothing was queued for the others but
// evictions.
void SessionBatch::take_in(std::span<Session *const> sessions, std::span<const int32_t> ids) {
    for (size_t i = 0; i < sessions.size(); ++i) {
        bool is_settled = false;
        try {
            sessions[i]->settle();
            is_settled = true;
            sessions[i]->take_in(ids.subspan(i, 1), StepKind::decode, 1);
        } catch (const Error &error) {
            if (pipeline_.engine().is_lost()) throw;
            const bool is_full = is_settled && error.kind() == ErrorKind::resource;
            outcomes_[i] = {is_full ? Outcome::Kind::full : Outcome::Kind::failed, error.what()};
            sessions[i]->is_broken_ = !is_full; // an eviction may have been left half done
            continue;
        }
        members_.push_back({sessions[i], i});
    }
}

void SessionBatch::forward() {
    segments_.clear();
    caches_.clear();
    uint32_t row = 0;
    for (const Member &member : members_) {
        Session &session = *member.session;
        CacheManager &cache = session.cache();
        cache.cache().refresh(); // another's growth may have exchanged the arena
        session.first_row_ = row++;
        caches_.push_back(&cache.cache());
        segments_.push_back({.positions = session.step_positions_,
                             .kv = cache.cache().views(),
                             .ids = session.step_ids_,
                             .logit_rows = 1,
                             .tap = session.taps_.front(),
                             .tap_ops = &pipeline_.taps(cache.plan())});
    }
    pipeline_.graph().forward(segments_, view_.of(caches_));
}

void SessionBatch::read_results(Read read) {
    NextToken &results = pipeline_.graph().next();
    const auto n = static_cast<uint32_t>(members_.size());
    const auto vocabulary = static_cast<size_t>(pipeline_.model().vocab_size);
    if (read == Read::greedy) {
        results.queue_argmax(n);
        results.ids(n).read(next_.data());
    } else {
        logits_.resize(n * vocabulary);
        results.read_logits(n, logits_.data());
    }
    // All of them are here before any is looked into: what looks for a number that is not finite
    // runs steps of its own.
    for (size_t i = 0; i < n; ++i) {
        Session &session = *members_[i].session;
        if (read == Read::greedy) {
            session.said_ = next_[i];
        } else {
            session.logits_.assign(logits_.begin() + static_cast<std::ptrdiff_t>(i * vocabulary),
                                   logits_.begin() +
                                       static_cast<std::ptrdiff_t>((i + 1) * vocabulary));
        }
    }
    for (const Member &member : members_) {
        Session &session = *member.session;
        try {
            if (read == Read::logits) session.check_finite(session.logits_);
            if (read == Read::greedy && *session.said_ < 0) session.find_non_finite();
            session.logits_read_ = read == Read::logits;
        } catch (const Error &error) {
            if (pipeline_.engine().is_lost()) throw;
            outcomes_[member.index] = {Outcome::Kind::failed, error.what()};
            session.is_broken_ = true;
        }
    }
}

void SessionBatch::settle() {
    for (const Member &member : members_) {
        if (member.session->is_broken_) continue;
        try {
            member.session->settle();
        } catch (const Error &error) {
            if (pipeline_.engine().is_lost()) throw;
            outcomes_[member.index] = {Outcome::Kind::failed, error.what()};
            member.session->is_broken_ = true;
        }
    }
}

} // namespace keel
