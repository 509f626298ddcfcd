#include "run/session_batch.hpp"

#include "base/error.hpp"
#include "device/trace.hpp"
#include "run/non_finite.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

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
    decoded_.reserve(pipeline.batch());
    members_.reserve(pipeline.batch());
    readers_.reserve(pipeline.batch());
    rows_.reserve(pipeline.batch());
    next_.resize(pipeline.batch());
}

std::unique_ptr<Session> SessionBatch::make_session(PolicySetup &plan) {
    return std::make_unique<Session>(pipeline_, plan, &arenas_);
}

void SessionBatch::check(const Part &part, size_t number) const {
    const Sequence &sequence = part.session->sequence();
    const bool decodes = part.kind == StepKind::decode;
    const bool is_empty = decodes && sequence.text.size() == 0;
    if (&sequence.pipeline != &pipeline_ || sequence.is_broken || is_empty) {
        throw_error(ErrorKind::usage, "sequence {} of a step {}", number,
                    sequence.is_broken ? "is broken by an earlier error"
                    : is_empty         ? "has not read a prompt yet"
                                       : "belongs to another pipeline");
    }
    const int64_t n = std::ssize(part.ids), most = decodes ? 1 : part.session->next_chunk(n);
    if (n < 1 || n > most || part.kind == StepKind::prefill_pause)
        throw_error(ErrorKind::usage, "sequence {} of a step takes {} tokens; expected 1 to {}",
                    number, n, most);
}

void SessionBatch::check(std::span<const Part> parts) const {
    const size_t n = parts.size();
    if (n == 0 || n > pipeline_.batch()) {
        throw_error(ErrorKind::usage, "a step of {} sequences; the pipeline was made for 1 to {}",
                    n, pipeline_.batch());
    }
    size_t tokens = 0;
    for (size_t i = 0; i < n; ++i) {
        check(parts[i], i);
        tokens += parts[i].ids.size();
        const auto is_same = [&](const Part &other) { return other.session == parts[i].session; };
        if (std::any_of(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i), is_same))
            throw_error(ErrorKind::usage, "sequence {} occurs twice in a step", i);
    }
    if (const uint32_t most = pipeline_.graph().max_step_tokens(); tokens > most)
        throw_error(ErrorKind::usage, "a step of {} tokens; the pipeline was made for {}", tokens,
                    most);
}

Error SessionBatch::Outcome::error() const {
    return {kind == Kind::full ? ErrorKind::resource : ErrorKind::runtime, detail};
}

std::span<const SessionBatch::Outcome>
SessionBatch::decode(std::span<Session *const> sessions, std::span<const int32_t> ids, Read read) {
    if (ids.size() != sessions.size())
        throw_error(ErrorKind::usage, "a step of {} sequences and {} tokens", sessions.size(),
                    ids.size());
    decoded_.clear();
    for (size_t i = 0; i < ids.size(); ++i)
        decoded_.push_back({sessions[i], ids.subspan(i, 1), StepKind::decode});
    return step(decoded_, read);
}

std::span<const SessionBatch::Outcome> SessionBatch::step(std::span<const Part> parts, Read read) {
    check(parts);
    const TraceSpan span(plan_.executor().stream().trace(), "batched step", "step");
    const auto start = Clock::now();
    const Stream::Counters before = pipeline_.engines().counters();
    outcomes_.assign(parts.size(), {});
    members_.clear();
    try {
        take_in(parts);
        if (!members_.empty()) {
            queue_step();
            read_results(read);
            const std::vector<const Sequence *> not_finite = read_rows(parts);
            check_results(read);
            for_each([&](Sequence &sequence) {
                if (std::ranges::find(not_finite, &sequence) != not_finite.end())
                    report_non_finite(sequence, runner_);
            });
            finish_step();
        }
    } catch (...) {
        // the error concerns all sequences that take part in the step; sequences without room for
        // their tokens do not take part
        for (size_t i = 0; i < parts.size(); ++i)
            if (outcomes_[i].kind != Outcome::Kind::full)
                parts[i].session->sequence().is_broken = true;
        throw;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    uint64_t decoded = 0;
    for (const Member &member : members_) {
        const SequenceRows &rows = member.sequence->step;
        StepMeter &meter = member.sequence->meter;
        if (rows.kind == StepKind::decode) {
            meter.count_decode(seconds);
            ++decoded;
        } else {
            meter.count_prefill(rows.ids.size(), seconds);
        }
    }
    if (decoded > 0) {
        ++stats_.steps;
        stats_.tokens += decoded;
        stats_.seconds += seconds;
    }
    stats_.stream += pipeline_.engines().counters() - before;
    return outcomes_;
}

// Makes room for the tokens of each part. Sequences that have room take part in the step. For other
// sequences, this function has only queued evictions.
void SessionBatch::take_in(std::span<const Part> parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
        const Part &part = parts[i];
        Sequence &sequence = part.session->sequence();
        bool is_finished = false; // false: the previous step is not finished
        try {
            part.session->drop_ahead();
            sequence.cache.finish_step();
            is_finished = true;
            sequence.take_in(part.ids, part.kind, part.kind == StepKind::prefill_chunk ? 0 : 1);
            if (part.kind != StepKind::decode) part.session->begin_prompt();
        } catch (const Error &error) {
            if (pipeline_.engine().is_lost()) throw;
            const bool is_full = is_finished && error.kind() == ErrorKind::resource;
            outcomes_[i] = {is_full ? Outcome::Kind::full : Outcome::Kind::failed, error.what()};
            sequence.is_broken = !is_full; // if the eviction failed, it can be incomplete
            continue;
        }
        members_.push_back({&sequence, i});
    }
    // The sequences that the backend can serve together come first, see StepRunner::run.
    std::stable_partition(members_.begin(), members_.end(), [](const Member &member) {
        const SequenceRows &rows = member.sequence->step;
        return rows.ids.size() == 1 && rows.stages.front().tap == nullptr;
    });
}

template <typename Action> void SessionBatch::for_each(const Action &action) {
    for (const Member &member : members_) {
        Sequence &sequence = *member.sequence;
        if (sequence.is_broken) continue;
        try {
            action(sequence);
        } catch (const Error &error) {
            if (pipeline_.engine().is_lost()) throw;
            outcomes_[member.number] = {Outcome::Kind::failed, error.what()};
            sequence.is_broken = true;
        }
    }
}

void SessionBatch::queue_step() {
    rows_.clear();
    readers_.clear();
    for (const Member &member : members_) {
        Sequence &sequence = *member.sequence;
        rows_.push_back(&sequence.step);
        if (sequence.step.logit_rows == 0) continue;
        sequence.results.set_first_row(static_cast<uint32_t>(readers_.size()));
        readers_.push_back(&sequence);
    }
    runner_.run(rows_, &view_);
}

void SessionBatch::read_results(Read read) {
    NextToken &results = pipeline_.graph().next();
    const auto n = static_cast<uint32_t>(readers_.size());
    if (n == 0) return;
    const auto vocabulary = static_cast<size_t>(pipeline_.model().vocab_size);
    if (read == Read::greedy) {
        results.queue_argmax(n);
        results.ids(n).read(next_.data());
    } else {
        logits_.resize(n * vocabulary);
        results.read_logits(n, logits_.data());
    }
    for (size_t i = 0; i < n; ++i) {
        StepResults &own = readers_[i]->results;
        if (read == Read::greedy)
            own.put_token(next_[i]);
        else
            own.put_logits(std::span(logits_).subspan(i * vocabulary, vocabulary));
    }
}

// Call it after all results are read, because report_non_finite runs more steps.
void SessionBatch::check_results(Read read) {
    for_each([&](Sequence &sequence) {
        StepResults &own = sequence.results;
        if (sequence.step.logit_rows == 0) return;
        if (read == Read::greedy ? *own.next_token() >= 0 : all_finite(own.logits())) return;
        own.reject_logits();
        report_non_finite(sequence, runner_);
    });
}

// Computes the logits of all tokens of the parts that have a RowReader. The rows are computed a few
// at a time, because all rows of a chunk would need much memory. Returns the sequences with a logit
// that is not finite.
std::vector<const Sequence *> SessionBatch::read_rows(std::span<const Part> parts) {
    Graph &graph = pipeline_.graph();
    const auto vocabulary = static_cast<size_t>(pipeline_.model().vocab_size);
    const uint32_t most = graph.most_projected_rows();
    std::vector<const Sequence *> not_finite;
    uint32_t begin = 0; // the first row of the sequence in the step
    for (const Member &member : members_) {
        Sequence &sequence = *member.sequence;
        const auto tokens = static_cast<uint32_t>(sequence.step.ids.size());
        const uint32_t own = std::exchange(begin, begin + tokens);
        RowReader *reader = parts[member.number].rows;
        if (reader == nullptr) continue;
        try {
            for (uint32_t first = 0; first < tokens; first += most) {
                const uint32_t n = std::min(tokens - first, most);
                graph.project(own + first, n);
                logits_.resize(n * vocabulary);
                graph.next().read_logits(n, logits_.data());
                if (!all_finite(logits_)) {
                    not_finite.push_back(&sequence);
                    break;
                }
                reader->take(first, logits_);
            }
        } catch (const Error &error) {
            if (pipeline_.engine().is_lost()) throw;
            outcomes_[member.number] = {Outcome::Kind::failed, error.what()};
            sequence.is_broken = true;
        }
    }
    return not_finite;
}

uint64_t SessionBatch::cache_bytes() const {
    return arenas_.main->bytes_in_use() + (arenas_.window ? arenas_.window->bytes_in_use() : 0);
}

void SessionBatch::finish_step() {
    for_each([](Sequence &sequence) { sequence.cache.finish_step(); });
}

} // namespace keel
