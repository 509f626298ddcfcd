#include "run/session_batch.hpp"

#include "base/error.hpp"
#include "device/trace.hpp"
#include "run/non_finite.hpp"

#include <algorithm>
#include <chrono>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

KvArenas make_arenas(Pipeline &pipeline, PolicySetup &plan) {
    if (pipeline.batch() < 2) {
        throw_error(ErrorKind::usage,
                    "the pipeline was made for one sequence at a time; set PipelineOptions::batch "
                    "to the number of sequences that run at once");
    }
    const uint32_t seats = pipeline.graph().attends_together() ? plan.shape().sequences : 0;
    const auto make = [&](const KvShape &shape) {
        return std::make_shared<KvArena>(plan.executor(), shape, pipeline.placement(), seats);
    };
    const KvShape &windowed = plan.layout().windowed.shape;
    return {make(plan.layout().shape), windowed.layers > 0 ? make(windowed) : nullptr};
}

} // namespace

SessionBatch::SessionBatch(Pipeline &pipeline, PolicySetup &plan)
    : pipeline_(pipeline), plan_(plan), arenas_(make_arenas(pipeline, plan)),
      view_(arenas_, plan.layout(), pipeline.batch()) {
    outcomes_.reserve(pipeline.batch());
    sequences_.reserve(pipeline.batch());
    numbers_.reserve(pipeline.batch());
    rows_.reserve(pipeline.batch());
    next_.resize(pipeline.batch());
}

std::unique_ptr<Session> SessionBatch::make_session(PolicySetup &plan) {
    return std::make_unique<Session>(pipeline_, plan, &arenas_);
}

void SessionBatch::check(std::span<Session *const> sessions, std::span<const int32_t> ids) const {
    const size_t n = sessions.size();
    if (n == 0 || n > pipeline_.batch() || ids.size() != n) {
        throw_error(ErrorKind::usage,
                    "a step has {} sequences and {} tokens; expected one token for each sequence, "
                    "and 1 to {} sequences",
                    n, ids.size(), pipeline_.batch());
    }
    for (size_t i = 0; i < n; ++i) {
        const Sequence &sequence = sessions[i]->sequence();
        const bool is_empty = sequence.text.size() == 0;
        if (&sequence.pipeline != &pipeline_ || sequence.is_broken || is_empty) {
            throw_error(ErrorKind::usage, "sequence {} of a step {}", i,
                        sequence.is_broken ? "is broken"
                        : is_empty         ? "has no prompt yet"
                                           : "belongs to another pipeline");
        }
        if (std::ranges::count(sessions.first(i), sessions[i]) > 0)
            throw_error(ErrorKind::usage, "sequence {} occurs twice in a step", i);
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
    const Stream::Counters before = pipeline_.engines().counters();
    outcomes_.assign(sessions.size(), {});
    sequences_.clear();
    numbers_.clear();
    try {
        take_in(sessions, ids);
        if (!sequences_.empty()) {
            queue_step();
            read_results(read);
            finish_step();
        }
    } catch (...) { // the error concerns all sequences of the step, but not the sequences that had
                    // no room for a token
        for (size_t i = 0; i < sessions.size(); ++i)
            if (outcomes_[i].kind != Outcome::Kind::full) sessions[i]->sequence().is_broken = true;
        throw;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (Sequence *sequence : sequences_) sequence->meter.count_decode(seconds);
    if (!sequences_.empty()) ++stats_.steps;
    stats_.tokens += sequences_.size();
    stats_.seconds += seconds;
    stats_.stream += pipeline_.engines().counters() - before;
    return outcomes_;
}

// Makes room for one token of each sequence. Sequences that have room take part in the step. For
// the other sequences, only evictions were queued.
void SessionBatch::take_in(std::span<Session *const> sessions, std::span<const int32_t> ids) {
    for (size_t i = 0; i < sessions.size(); ++i) {
        Sequence &sequence = sessions[i]->sequence();
        bool is_finished = false; // false: the previous step is not finished
        try {
            sessions[i]->drop_ahead();
            sequence.cache.finish_step();
            is_finished = true;
            sequence.take_in(ids.subspan(i, 1), StepKind::decode, 1);
        } catch (const Error &error) {
            if (pipeline_.engine().is_lost()) throw;
            const bool is_full = is_finished && error.kind() == ErrorKind::resource;
            outcomes_[i] = {is_full ? Outcome::Kind::full : Outcome::Kind::failed, error.what()};
            sequence.is_broken = !is_full; // an eviction may be incomplete
            continue;
        }
        sequences_.push_back(&sequence);
        numbers_.push_back(i);
    }
}

template <typename Action> void SessionBatch::for_each(const Action &action) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
        Sequence &sequence = *sequences_[i];
        if (sequence.is_broken) continue;
        try {
            action(sequence);
        } catch (const Error &error) {
            if (pipeline_.engine().is_lost()) throw;
            outcomes_[numbers_[i]] = {Outcome::Kind::failed, error.what()};
            sequence.is_broken = true;
        }
    }
}

void SessionBatch::queue_step() {
    rows_.clear();
    for (Sequence *sequence : sequences_) {
        sequence->results.set_first_row(static_cast<uint32_t>(rows_.size()));
        rows_.push_back(&sequence->step);
    }
    runner_.run(rows_, &view_);
}

void SessionBatch::read_results(Read read) {
    NextToken &results = pipeline_.graph().next();
    const auto n = static_cast<uint32_t>(sequences_.size());
    const auto vocabulary = static_cast<size_t>(pipeline_.model().vocab_size);
    if (read == Read::greedy) {
        results.queue_argmax(n);
        results.ids(n).read(next_.data());
    } else {
        logits_.resize(n * vocabulary);
        results.read_logits(n, logits_.data());
    }
    // Reads all results before it checks one, because report_non_finite runs more steps.
    for (size_t i = 0; i < n; ++i) {
        StepResults &own = sequences_[i]->results;
        if (read == Read::greedy)
            own.put_token(next_[i]);
        else
            own.put_logits(std::span(logits_).subspan(i * vocabulary, vocabulary));
    }
    for_each([&](Sequence &sequence) {
        StepResults &own = sequence.results;
        if (read == Read::greedy ? *own.next_token() >= 0 : all_finite(own.logits())) return;
        own.reject_logits();
        report_non_finite(sequence, runner_);
    });
}

void SessionBatch::finish_step() {
    for_each([](Sequence &sequence) { sequence.cache.finish_step(); });
}

} // namespace keel
