#include "run/session.hpp"

#include "device/trace.hpp"

#include <algorithm>
#include <chrono>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

} // namespace

// Adds the time and the stream's work between construction and destruction to the stats of a kind
// of step.
class Session::Meter {
  public:
    Meter(Session &session, bool decode)
        : session_(session), decode_(decode), start_(Clock::now()),
          before_(session.pipeline_.counters()) {}
    ~Meter() {
        const Stream::Counters used = session_.pipeline_.counters() - before_;
        session_.stats_.stream += used;
        (decode_ ? session_.stats_.decode_seconds : session_.stats_.prefill_seconds) +=
            seconds_since(start_);
        if (decode_) session_.stats_.decode_stream += used;
    }
    Meter(const Meter &) = delete;
    Meter &operator=(const Meter &) = delete;

  private:
    Session &session_;
    bool decode_;
    Clock::time_point start_;
    Stream::Counters before_;
};

bool Session::can_take(int64_t n, std::string *why) const {
    const int64_t more = ahead_ ? std::max<int64_t>(n - 1, 0) : n; // the first one's slot is made
    return std::all_of(parts_.begin(), parts_.end(),
                       [&](const Part &part) { return part.cache->can_take(more, false, why); });
}

bool Session::prefill(std::span<const int32_t> ids, bool is_prompt_end, uint32_t rows,
                      const Progress &progress) {
    if (ids.empty()) return true;
    const std::vector<int32_t> kept(ids.begin(), ids.end()); // may be this session's own
    const std::optional<int32_t> pending = pending_;
    const size_t before = history_.size();
    const uint64_t counted = stats_.prefill_tokens;
    for (;;) {
        try {
            return prefill_all(kept, is_prompt_end, rows, progress);
        } catch (const Error &error) {
            go_on_elsewhere(error, before);
            pending_ = pending;
            stats_.prefill_tokens =
                counted; // all are read again; the time that was lost stays the prompt's
        }
    }
}

// Tokens of the next step of a prompt.
int64_t Session::next_chunk(int64_t left) const {
    int64_t n = left;
    for (const Part &part : parts_)
        n = std::min<int64_t>(n, part.engine->graph->max_tokens());
    for (const Part &part : parts_)
        n = std::min(n, part.cache->next_chunk(left, n));
    return n;
}

bool Session::prefill_all(std::span<const int32_t> ids, bool is_prompt_end, uint32_t rows,
                          const Progress &progress) {
    settle();
    if (hybrid_) before_prefill();
    std::string why;
    const auto total = static_cast<int64_t>(ids.size());
    for (const Part &part : parts_) {
        if (!part.cache->can_take(total, true, &why)) throw_error(ErrorKind::resource, "{}", why);
    }
    const std::optional<int32_t> pending = pending_;
    const uint64_t evictions = cache().evictions();
    for (int64_t done = 0; done < total;) {
        if (pipeline_.host().cancelled()) {
            if (done > 0) take_back(done, pending, evictions);
            return false;
        }
        const int64_t n = next_chunk(total - done);
        const bool last = done + n == total;
        {
            const Meter meter(*this, false);
            step(ids.subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
                 last && is_prompt_end ? StepKind::prefill_end : StepKind::prefill_chunk,
                 last ? std::min<uint32_t>(rows, static_cast<uint32_t>(n)) : 0);
            if (last) {
                if (rows > 0) read_logits(); // the wait belongs to the prefill
            } else {
                settle(); // submitted, not waited for: the next chunk is queued behind it
            }
        }
        done += n;
        stats_.prefill_tokens += static_cast<uint64_t>(n);
        if (progress)
            progress("prefill", static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    }
    return true;
}

// Of a prefill that was cancelled: as if it had not begun, unless it evicted what cannot come back,
// or went into a policy's sums.
void Session::take_back(int64_t tokens, std::optional<int32_t> pending, uint64_t evictions) {
    settle();
    const bool can = std::all_of(parts_.begin(), parts_.end(), [&](const Part &part) {
        return part.cache->can_truncate(tokens);
    });
    if (cache().evictions() != evictions || !can) return;
    truncate(tokens);
    pending_ = pending;
}

void Session::decode(int32_t id) {
    const size_t before = history_.size();
    if (hybrid_) note_decode();
    for (;;) {
        try {
            if (hybrid_) {
                const Meter meter(*this, true);
                settle_step();
            }
            if (hybrid_) before_decode(); // may move the cache, which is no part of the step
            const Meter meter(*this, true);
            if (!take_ahead(id)) {
                settle();
                step({&id, 1}, StepKind::decode, 1);
            }
            break;
        } catch (const Error &error) {
            go_on_elsewhere(error, before);
        }
    }
    ++stats_.decode_tokens;
}

Session::Caches Session::caches() const {
    Caches all;
    for (const Part &part : parts_)
        all.push_back(&part.cache->cache());
    return all;
}

// Through all layers: what one backend leaves goes on on the next.
void Session::forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                      const Caches &caches, uint32_t rows, std::span<StepTap *const> step_taps) {
    for (size_t i = 0; i < parts_.size(); ++i) {
        Engine &engine = *parts_[i].engine;
        const bool last = i + 1 == parts_.size();
        Segment segment{
            .positions = positions, .kv = caches[i]->views(), .logit_rows = last ? rows : 0};
        if (i == 0) {
            segment.ids = ids;
        } else {
            segment.residual = residual_;
        }
        if (i < step_taps.size() && step_taps[i] != nullptr) {
            segment.tap = step_taps[i];
            segment.tap_ops = &pipeline_.taps(parts_[i].cache->plan());
        }
        engine.graph->forward(segment);
        if (!last) engine.graph->read_residual(residual_);
    }
}

void Session::step(std::span<const int32_t> ids, StepKind kind, uint32_t rows) {
    const TraceSpan span(engine().executor->stream().trace(),
                         kind == StepKind::decode ? "decode" : "prefill", "step");
    take_in(ids, kind, rows);
    forward(step_ids_, step_positions_, step_caches_, rows, taps_);
}

void Session::take_in(std::span<const int32_t> ids, StepKind kind, uint32_t rows) {
    const auto n = static_cast<int64_t>(ids.size());
    forget_overwritten();
    for (const Part &part : parts_)
        part.cache->before_append(n, kind);
    const std::span<const int32_t> positions = cache().next_positions(n);
    step_ids_.assign(ids.begin(), ids.end());
    step_positions_.assign(positions.begin(), positions.end());
    taps_.clear();
    step_caches_.clear();
    for (const Part &part : parts_) {
        part.cache->append(n);
        taps_.push_back(part.cache->begin_step(n, kind));
        step_caches_.push_back(&part.cache->cache());
    }
    begin_results(ids, kind, rows);
}

// The step whose results may be read is this one now.
void Session::begin_results(std::span<const int32_t> ids, StepKind kind, uint32_t rows) {
    step_kind_ = kind;
    rows_ = rows;
    first_row_ = 0;
    results_ = parts_.back().engine;
    said_.reset();
    coming_.drop();
    overwritten_ = false;
    logits_read_ = false;
    settled_ = false;
    pending_.reset();
    history_.insert(history_.end(), ids.begin(), ids.end());
}

// A step that was taken elsewhere, where steps may have been longer.
void Session::retake(std::span<const int32_t> ids, StepKind kind, uint32_t rows) {
    const size_t most = engine().graph->max_tokens();
    for (; ids.size() > most; ids = ids.subspan(most)) {
        step(ids.first(most), StepKind::prefill_chunk, 0);
        settle();
    }
    step(ids, kind, rows);
}

void Session::end_prompt() {
    const Meter meter(*this, false);
    settle();
    if (overwritten_ && !logits_read_) logits(); // of the cache as it is
    for (const Part &part : parts_)
        part.cache->after_step(StepKind::prefill_end);
}

void Session::settle() {
    drop_ahead();
    settle_step();
}

void Session::settle_step() {
    if (settled_) return;
    settled_ = true;
    for (const Part &part : parts_) {
        part.cache->after_step(step_kind_);
        part.engine->executor->stream().end_of_step();
    }
}

void Session::read_logits() {
    if (overwritten_) take_step_again();
    logits_.resize(static_cast<size_t>(rows_) * static_cast<size_t>(pipeline_.model().vocab_size));
    if (rows_ > 0) results_->graph->next().read_logits(rows_, logits_.data(), first_row_);
    check_finite(logits_);
    logits_read_ = true;
    settle();
}

// Results of the last step. Where its device turns out to be lost the step is taken again
// elsewhere.
template <typename Read>
void Session::read_results(const Read &read) {
    bool again = false;
    std::vector<int32_t> ids; // of a step that has to be taken again
    const size_t before = history_.size() - step_ids_.size();
    const std::optional<int32_t> pending = pending_;
    const StepKind kind = step_kind_;
    const uint32_t rows = rows_;
    for (;;) {
        try {
            const Meter meter(*this, kind == StepKind::decode);
            if (again) retake(ids, kind, rows);
            pending_ = pending;
            return read();
        } catch (const Error &error) {
            if (!again) ids = step_ids_;
            go_on_elsewhere(error, before);
            again = true;
        }
    }
}

std::span<const float> Session::logits() {
    if (!logits_read_) read_results([&] { read_logits(); });
    return logits_;
}

int32_t Session::greedy(bool go_on) {
    if (results_ == nullptr || (logits_read_ && logits_.empty()))
        throw_error(ErrorKind::internal, "no step was taken that has logits");
    if (logits_read_) { // of the prefill: they are here already
        const std::span<const float> row =
            logits().last(static_cast<size_t>(pipeline_.model().vocab_size));
        return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    }
    if (settled_ && said_) return *said_; // of a step of several sequences
    int32_t id = -1;
    read_results([&] { id = read_greedy(go_on); });
    said_ = id;
    return id;
}

const SessionStats &Session::stats() {
    stats_.evictions = cache().evictions();
    stats_.evicted_tokens = cache().evicted_slots();
    stats_.evicted_bytes = stats_.policy_bytes = stats_.policy_peak_bytes = 0;
    stats_.eviction_seconds = 0;
    uint64_t peak = 0;
    stats_.replay_parts = 0;
    stats_.no_replay.clear();
    for (const Part &part : parts_) {
        if (part.engine->executor->can_record()) ++stats_.replay_parts;
        if (stats_.no_replay.empty() && part.engine->executor->can_record())
            stats_.no_replay = part.engine->graph->why_not_recorded();
        stats_.eviction_seconds += part.cache->eviction_us() / 1e6;
        stats_.policy_bytes += part.cache->policy_bytes();
        stats_.policy_peak_bytes += part.cache->policy_peak_bytes();
        stats_.evicted_bytes += part.cache->evicted_bytes();
        peak += part.cache->cache().arena().peak_bytes();
    }
    stats_.kv_bytes = kv_bytes();
    stats_.kv_peak_bytes = std::max(stats_.kv_peak_bytes, peak);
    return stats_;
}

uint64_t Session::kv_bytes() const {
    uint64_t bytes = 0;
    for (const Part &part : parts_)
        bytes += part.cache->bytes_in_use();
    return bytes;
}

void Session::pin(int64_t from, int64_t to, std::string_view what) {
    drop_ahead(); // they go by slots
    for (const Part &part : parts_)
        part.cache->pin(from, to, what);
}

void Session::unpin(int64_t from) {
    for (const Part &part : parts_)
        part.cache->unpin(from);
}

void Session::protect_prefix(int64_t tokens, std::string_view what) {
    for (const Part &part : parts_)
        part.cache->protect_prefix(tokens, what);
}

void Session::reset() {
    if (hybrid_) reset_hybrid();
    for (const Part &part : parts_)
        part.cache->reset();
    forget_step();
    history_.clear();
    pending_.reset();
    loaded_from_.clear();
    ahead_failed_ = false;
    stats_ = {};
}

// There is no step any more whose results could be read.
void Session::forget_step() {
    step_ids_.clear();
    step_positions_.clear();
    forget_ahead();
    logits_.clear();
    settled_ = true;
    logits_read_ = true;
    rows_ = 0;
}

void Session::truncate(int64_t n) {
    settle();
    for (const Part &part : parts_) {
        std::string why;
        if (!part.cache->can_truncate(n, &why)) throw_error(ErrorKind::usage, "{}", why);
    }
    for (const Part &part : parts_)
        part.cache->truncate(n);
    history_.resize(history_.size() - static_cast<size_t>(n));
    pending_.reset();
    forget_step();
}

void Session::save_state(StateWriter &out) {
    settle();
    out.put(static_cast<uint64_t>(history_.size()));
    out.put_all<int32_t>(history_);
    out.put(pending_.value_or(-1));
    for (const Part &part : parts_)
        part.cache->save(out);
}

void Session::load_state(StateReader &in) {
    reset();
    try {
        const auto vocabulary = static_cast<int32_t>(pipeline_.model().vocab_size);
        const auto tokens = in.get<uint64_t>("the tokens so far");
        in.get_all<int32_t>(history_, tokens, "the tokens so far");
        for (const int32_t id : history_) {
            if (id < 0 || id >= vocabulary)
                in.fail("token {}: the model's vocabulary ends at {}", id, vocabulary - 1);
        }
        const auto pending = in.get<int32_t>("the token to go on with");
        if (pending >= vocabulary)
            in.fail("token {}: the model's vocabulary ends at {}", pending, vocabulary - 1);
        for (const Part &part : parts_) {
            part.cache->load(in);
            if (part.cache->tokens_seen() != this->tokens())
                in.fail("the cache saw {} tokens, the text has {}", part.cache->tokens_seen(),
                        this->tokens());
        }
        if (pending >= 0) pending_ = pending;
        loaded_from_ = in.name();
    } catch (...) {
        reset();
        throw;
    }
}

} // namespace keel
