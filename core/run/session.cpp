#include "run/session.hpp"

#include "base/error.hpp"
#include "run/non_finite.hpp"

#include <algorithm>

namespace keel {

// ---- the beginning and copies -------------------------------------------------------------------

Session::Session(Pipeline &pipeline, PolicySetup &plan, const KvArenas *arenas)
    : sequence_(pipeline), ahead_(sequence_), mover_(sequence_, runner_, ahead_) {
    using pipeline::HybridMode;
    SequenceCache &cache = sequence_.cache;
    const HybridMode mode = pipeline.policies().is_own(plan) ? pipeline.mode() : HybridMode::none;
    if (arenas != nullptr) {
        std::vector<Stage> stages;
        stages.push_back({&pipeline.engine(), std::make_unique<CacheManager>(plan, *arenas)});
        cache.assign(std::move(stages));
    } else if (mode == HybridMode::by_layers) {
        for (const auto &engine : pipeline.engines()) cache.add(*engine, *engine->policy_setup);
    } else if (mode == HybridMode::taking_turns) {
        rules_ = std::make_unique<SwitchRules>(pipeline);
        Engine &start = rules_->start();
        cache.add(start, *start.policy_setup);
    } else {
        cache.add(pipeline.engine(), plan);
    }
    start_repeater();
}

Session::Session(Session &parent, std::vector<Stage> stages)
    : sequence_(parent.pipeline()), ahead_(sequence_), mover_(sequence_, runner_, ahead_),
      is_behind_prompt_(parent.is_behind_prompt_) {
    sequence_.text.copy(parent.sequence_.text);
    sequence_.results.copy_logits(parent.sequence_.results);
    sequence_.cache.assign(std::move(stages));
    if (parent.rules_) rules_ = std::make_unique<SwitchRules>(pipeline(), *parent.rules_);
    start_repeater();
}

void Session::start_repeater() {
    if ((cache().setup().needs().needs & KEEL_NEED_REPLAY) == 0) return;
    repeater_ = std::make_unique<ContextRepeater>(sequence_);
    sequence_.cache.set_forward(repeater_.get());
}

std::unique_ptr<Session> Session::fork() {
    logits();
    finish_step();
    return std::unique_ptr<Session>(new Session(*this, sequence_.cache.fork()));
}

std::unique_ptr<Session> Session::fork(PolicySetup &plan, int64_t to_come) {
    if (&plan == &cache().setup()) return fork();
    if (sequence_.cache.stages().size() != 1 || rules_)
        throw_error(ErrorKind::internal,
                    "a session of a hybrid pipeline cannot be forked under another policy");
    logits();
    finish_step();
    std::vector<Stage> stages;
    stages.push_back({&engine(), cache().fork_into(plan, to_come)});
    return std::unique_ptr<Session>(new Session(*this, std::move(stages)));
}

// ---- steps --------------------------------------------------------------------------------------

bool Session::can_take(int64_t n, std::string *why) const {
    // If a step is queued ahead, the first token already has a slot.
    const int64_t more = ahead_.is_queued() ? std::max<int64_t>(n - 1, 0) : n;
    return sequence_.cache.can_take(more, false, why);
}

void Session::check_prompt(int64_t n) {
    finish_step();
    std::string why;
    if (!sequence_.cache.can_take(n, true, &why)) throw_error(ErrorKind::resource, "{}", why);
}

bool Session::prefill(std::span<const int32_t> ids, bool is_prompt_end, uint32_t rows,
                      const Progress &progress) {
    is_behind_prompt_ = false;
    return prefill_as(is_prompt_end ? StepKind::prefill_end : StepKind::prefill_pause, ids, rows,
                      progress);
}

bool Session::take_in(std::span<const int32_t> ids, uint32_t rows, const Progress &progress) {
    if (!ids.empty()) is_behind_prompt_ = true;
    return prefill_as(StepKind::prefill_chunk, ids, rows, progress);
}

bool Session::prefill_as(StepKind at_last, std::span<const int32_t> ids, uint32_t rows,
                         const Progress &progress) {
    if (ids.empty()) return true;
    // a copy, because `ids` can be the session's own tokens
    const std::vector<int32_t> kept(ids.begin(), ids.end());
    const std::optional<int32_t> pending = this->pending();
    const int64_t before = tokens();
    const uint64_t counted = sequence_.meter.prefill_tokens();
    for (;;) {
        try {
            return prefill_all(at_last, kept, rows, progress);
        } catch (const Error &error) {
            go_on_elsewhere(error, before);
            set_pending(pending);
            // Another engine computes all tokens again. The time that was lost counts as time of
            // the prompt.
            sequence_.meter.set_prefill_tokens(counted);
        }
    }
}

bool Session::prefill_all(StepKind at_last, std::span<const int32_t> ids, uint32_t rows,
                          const Progress &progress) {
    finish_step();
    if (rules_) rules_->before_prefill(mover_);
    const int64_t total = std::ssize(ids);
    check_prompt(total);
    const std::optional<int32_t> pending = this->pending();
    const uint64_t evictions = cache().evictions();
    for (int64_t done = 0; done < total;) {
        if (pipeline().host().cancelled()) {
            if (done > 0) take_back(done, pending, evictions);
            return false;
        }
        const int64_t n = sequence_.cache.next_chunk(total - done);
        const bool last = done + n == total;
        {
            const StepMeter::Span span(sequence_.meter, false);
            runner_.step(sequence_, ids.subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
                         last ? at_last : StepKind::prefill_chunk,
                         last ? std::min<uint32_t>(rows, static_cast<uint32_t>(n)) : 0);
            if (!last) {
                // does not wait for the device, so the next chunk can be queued right after this
                // chunk
                finish_step();
            } else if (rows > 0) {
                read_logits(); // the wait counts as time of the prefill
            }
        }
        done += n;
        sequence_.meter.set_prefill_tokens(sequence_.meter.prefill_tokens() +
                                           static_cast<uint64_t>(n));
        if (progress)
            progress("prefill", static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    }
    return true;
}

// Undoes a cancelled prefill, unless it has evicted slots or added to a policy's sums.
void Session::take_back(int64_t tokens, std::optional<int32_t> pending, uint64_t evictions) {
    finish_step();
    if (cache().evictions() != evictions || !sequence_.cache.can_truncate(tokens)) return;
    truncate(tokens);
    set_pending(pending);
}

void Session::decode(int32_t id) {
    const int64_t before = tokens();
    if (rules_) rules_->count_decode();
    for (;;) {
        try {
            if (rules_) {
                const StepMeter::Span span(sequence_.meter, true);
                sequence_.cache.finish_step();
            }
            // the time of a move does not count as time of the step
            if (rules_) rules_->before_decode(mover_);
            const StepMeter::Span span(sequence_.meter, true);
            if (!ahead_.take(id)) {
                finish_step();
                runner_.step(sequence_, {&id, 1}, StepKind::decode, 1);
            }
            break;
        } catch (const Error &error) {
            go_on_elsewhere(error, before);
        }
    }
    sequence_.meter.count_decode();
}

void Session::decode_guess(std::span<const int32_t> ids) {
    const int64_t before = tokens();
    try {
        const StepMeter::Span span(sequence_.meter, true);
        finish_step();
        runner_.step(sequence_, ids, StepKind::prefill_chunk, static_cast<uint32_t>(ids.size()));
        read_logits();
    } catch (const Error &error) {
        go_on_elsewhere(error, before); // throws, because guesses need a pipeline with one backend
    }
    sequence_.meter.count_decode();
}

void Session::keep_guess(int64_t guessed, int64_t right) {
    const StepMeter::Span span(sequence_.meter, true);
    sequence_.meter.count_guess(static_cast<uint64_t>(guessed), static_cast<uint64_t>(right));
    if (right < guessed) truncate(guessed - right);
}

void Session::end_prompt() {
    if (is_behind_prompt_)
        throw_error(ErrorKind::usage,
                    "end_prompt() was called after take_in(), but the tokens of take_in() are not "
                    "a prompt; call end_prompt() only after tokens of a prompt");
    const StepMeter::Span span(sequence_.meter, false);
    finish_step();
    // if the logits were overwritten, computes them again before the cache changes
    if (sequence_.results.is_overwritten()) logits();
    sequence_.cache.end_prompt();
}

// Discards the step that is queued ahead. Then does the eviction of the last step if it is due.
void Session::finish_step() {
    ahead_.drop();
    sequence_.cache.finish_step();
}

void Session::forget_step() {
    ahead_.forget();
    sequence_.forget_step();
}

// ---- results ------------------------------------------------------------------------------------

// Reads results of the last step. If the device of the results is lost, runs the step again on
// another device.
template <typename Read> void Session::read_results(const Read &read) {
    const int64_t before = tokens() - std::ssize(sequence_.step.ids);
    const std::optional<int32_t> pending = this->pending();
    const StepKind kind = sequence_.step.kind;
    const uint32_t rows = sequence_.step.logit_rows;
    std::optional<std::vector<int32_t>> ids; // the ids of the step, in case it must run again
    for (;;) {
        try {
            const StepMeter::Span span(sequence_.meter, kind == StepKind::decode);
            if (ids) mover_.retake(*ids, kind, rows);
            set_pending(pending);
            return read();
        } catch (const Error &error) {
            if (!ids) ids = sequence_.step.ids;
            go_on_elsewhere(error, before);
        }
    }
}

std::span<const float> Session::logits() {
    if (!sequence_.results.has_logits()) read_results([&] { read_logits(); });
    return sequence_.results.logits();
}

void Session::read_logits() {
    StepResults &results = sequence_.results;
    if (results.is_overwritten()) repeat_step();
    if (!all_finite(results.read_logits(static_cast<size_t>(pipeline().model().vocab_size)))) {
        results.reject_logits();
        report_non_finite(sequence_, runner_);
    }
    finish_step();
}

int32_t Session::greedy(bool go_on) {
    StepResults &results = sequence_.results;
    if (results.holder() == nullptr || (results.has_logits() && results.logits().empty()))
        throw_error(ErrorKind::internal,
                    "there are no logits, because no step with logits was run");
    // the logits are read already: they belong to a prefill, or to a step of several sequences
    if (results.has_logits()) {
        const auto row = results.logits().last(static_cast<size_t>(pipeline().model().vocab_size));
        return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    }
    if (!sequence_.cache.has_open_step() && results.next_token()) return *results.next_token();
    int32_t id = -1;
    read_results([&] { id = read_token(go_on); });
    results.put_token(id);
    return id;
}

int32_t Session::read_token(bool go_on) {
    StepResults &results = sequence_.results;
    if (results.is_overwritten() && !results.has_pending_read()) repeat_step();
    const int32_t id = ahead_.read_token(go_on && (!rules_ || rules_->stays_on(engine())));
    if (id < 0) { // a logit is not finite
        ahead_.drop();
        report_non_finite(sequence_, runner_);
    }
    sequence_.cache.finish_step();
    return id;
}

// Computes the last step again, because its logits were overwritten. The step writes the same
// values to its cache slots as before. The sequence can be on another engine now.
void Session::repeat_step() {
    ahead_.drop();
    sequence_.results.begin_repeat(sequence_.cache.last_engine());
    sequence_.cache.find_stages(sequence_.step);
    runner_.run(sequence_.step);
    sequence_.results.set_overwritten(false);
}

// ---- other backends -----------------------------------------------------------------------------

// Call it in a catch block. If the device was lost and another backend can continue, the sequence
// keeps its first `tokens` tokens, and the other backend computes them again. Otherwise throws the
// caught error, or an error with more details.
void Session::go_on_elsewhere(const Error &error, int64_t tokens) {
    if (engine().is_lost()) {
        ahead_.forget();
        sequence_.results.forget_on_device();
    }
    if (rules_) {
        if (!engine().is_lost()) throw; // the error has another cause
        try {
            rules_->choose(mover_.reread(rules_->candidates(), tokens, error));
        } catch (const Error &) {
            sequence_.is_broken = true;
            throw;
        }
        return;
    }
    const Device *device = pipeline().engines().lost_device();
    if (device == nullptr) throw; // the error has another cause
    sequence_.is_broken = true;
    throw_error(
        ErrorKind::runtime,
        "{}; the error happened at token {} on device '{}', and no other backend can continue",
        error.what(), tokens + 1, device->device_info().name);
}

Session::Switch Session::switch_to(Engine &engine) {
    if (!rules_)
        throw_error(ErrorKind::usage, "this pipeline has only one backend, so there is no backend "
                                      "to switch to; list several backends under 'hybrid'");
    // reads the logits now, because the old backend has them
    if (sequence_.results.holder() != nullptr) logits();
    finish_step();
    return rules_->command(mover_, engine);
}

// ---- the cache and the text ---------------------------------------------------------------------

void Session::pin(int64_t from, int64_t to, std::string_view what) {
    ahead_.drop(); // discards the step that is queued ahead, because a pin must not count its slot
    sequence_.cache.pin(from, to, what);
}

void Session::reset() {
    if (rules_) {
        rules_->reset();
        // Moves back to the engine on which sequences begin. The cache is empty, so nothing is
        // moved.
        Engine &start = rules_->start();
        if (&start != &engine()) {
            sequence_.cache.replace(
                start, std::make_unique<CacheManager>(*start.policy_setup, start.placement()));
        }
    }
    is_behind_prompt_ = false;
    sequence_.cache.reset();
    ahead_.reset();
    forget_step();
    sequence_.text.clear();
    sequence_.meter.reset();
}

void Session::truncate(int64_t n) {
    finish_step();
    std::string why;
    if (!sequence_.cache.can_truncate(n, &why)) throw_error(ErrorKind::usage, "{}", why);
    sequence_.cache.truncate(n);
    sequence_.text.remove_last(n);
    forget_step();
}

void Session::save_state(StateWriter &out) {
    finish_step();
    sequence_.text.save(out);
    sequence_.cache.save(out);
}

void Session::load_state(StateReader &in) {
    reset();
    try {
        sequence_.text.load(in, pipeline().model().vocab_size);
        sequence_.cache.load(in, tokens());
    } catch (...) {
        reset();
        throw;
    }
}

} // namespace keel
