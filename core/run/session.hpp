#pragma once

#include "run/ahead_step.hpp"
#include "run/context_repeater.hpp"
#include "run/sequence_mover.hpp"
#include "run/step_runner.hpp"
#include "run/switch_rules.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace keel {

// One sequence on a pipeline, step by step. This is the whole interface of a sequence for programs,
// so it has more than 30 functions; the work is done by its members. Several sessions of one
// pipeline may alternate. Read the results of a step before another session's step, because all
// sessions store results in the same place. Not thread-safe.
class Session {
  public:
    explicit Session(Pipeline &pipeline) : Session(pipeline, pipeline.policy_setup()) {}
    // `plan` is one of the pipeline's. `arenas`: memory that several sequences share, see
    // SessionBatch::make_session.
    Session(Pipeline &pipeline, PolicySetup &plan, const KvArenas *arenas = nullptr);
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    // Does the session have room for n more tokens? If not, `why` names the limit and the config
    // key that changes it.
    bool can_take(int64_t n, std::string *why = nullptr) const;
    // Runs the model over the tokens, in chunks. Afterwards there are logits for the last `rows`
    // tokens: at most PipelineOptions::max_logit_rows, and at most as many as the last chunk has
    // tokens. `is_prompt_end`: whether the prompt ends with these tokens; if it does, policies that
    // act at its end act now. Throws Error(resource) before anything happens if the tokens do not
    // fit, and Error(runtime) with layer and position if a number is not finite.
    //
    // Returns false if the call was cancelled (HostServices::request_cancel) before the last token.
    // Then there are no logits, and the session and its pending token are as before. One exception:
    // if tokens were evicted meanwhile, or keys that left a window were freed, the tokens that were
    // already computed stay; see tokens().
    bool prefill(std::span<const int32_t> ids, bool is_prompt_end = true, uint32_t rows = 1,
                 const Progress &progress = {});
    // As prefill(), for tokens after the end of the prompt: a question, or a text that is scored.
    // These tokens are not a prompt, so no eviction happens at their end, and no queries are kept
    // for one.
    bool take_in(std::span<const int32_t> ids, uint32_t rows = 1, const Progress &progress = {});
    // Ends the prompt after a prefill() without `is_prompt_end`. Policies that act at the end of
    // the prompt act now. Throws Error(usage) after take_in().
    void end_prompt();
    // Takes one token in.
    void decode(int32_t id);
    // Logits of the last `rows` tokens, [rows, vocabulary], in host memory. Valid until the next
    // step. The first call after a step waits for the step.
    std::span<const float> logits();
    // The most likely next token, without reading all logits. Of equal logits the lower id wins.
    // `go_on`: the caller will most likely call decode() with this token. If the device runs beside
    // the host, and the host decides nothing between the two steps, the next step is then queued
    // before the token is read. If another function is called instead, or drop_ahead(), that step
    // is discarded. Only SessionStats::discarded_steps and the device's time show it. If the
    // discarded step has overwritten the logits, logits() computes the last step again. A queued
    // step's slot is in cache() until the step is discarded.
    int32_t greedy(bool go_on = false);
    void drop_ahead() { ahead_.drop(); }

    // Takes the last n tokens back. Throws Error(usage) if CacheManager::truncate does.
    void truncate(int64_t n);
    // An independent copy, under the same policy or another one of the pipeline's.
    // CacheManager::fork_into says what another policy requires. The two share blocks of the cache
    // until one of them writes; PipelineOptions::sequences has to allow it. The copy's stats begin
    // at 0.
    std::unique_ptr<Session> fork();
    std::unique_ptr<Session> fork(PolicySetup &plan);
    // The token that was generated last and is not taken in yet. The next step forgets it.
    std::optional<int32_t> pending() const { return sequence_.text.pending(); }
    void set_pending(std::optional<int32_t> id) { sequence_.text.set_pending(id); }

    // Moves the sequence to another backend of a hybrid, for the chat command /switch. Throws
    // Error(usage) if the config does not allow it.
    using Switch = SwitchRules::Switch;
    Switch switch_to(Engine &engine);

    Pipeline &pipeline() { return sequence_.pipeline; }
    // Where the sequence is. If layers are split, the engine of the first layers.
    Engine &engine() const { return sequence_.cache.first_engine(); }
    // Taken in since the start or the last reset.
    int64_t tokens() const { return sequence_.text.size(); }
    std::span<const int32_t> history() const { return sequence_.text.tokens(); }
    // If layers are split, the cache of the first layers.
    CacheManager &cache() { return sequence_.cache.acting(); }
    const CacheManager &cache() const { return sequence_.cache.acting(); }
    // As the functions of CacheManager, on the caches of all layers.
    void pin(int64_t from, int64_t to, std::string_view what);
    void unpin(int64_t from) { sequence_.cache.unpin(from); }
    void protect_prefix(int64_t tokens, std::string_view what) {
        sequence_.cache.protect_prefix(tokens, what);
    }
    uint64_t kv_bytes() const { return sequence_.cache.bytes_in_use(); }
    uint64_t policy_bytes() const { return sequence_.cache.policy_bytes(); }
    // kv_bytes() plus policy_bytes(): now, and the peak.
    uint64_t held_bytes() const { return kv_bytes() + policy_bytes(); }
    uint64_t held_peak_bytes() const { return sequence_.cache.held_peak_bytes(); }
    const SessionStats &stats() { return sequence_.meter.read(sequence_.cache); }
    // The session is unusable: a device was lost and no other can continue, or a step of several
    // sessions failed. The error of the last call that threw has the reason.
    bool is_broken() const { return sequence_.is_broken; }
    // Forgets everything but the pipeline. A policy's random numbers start again.
    void reset();
    // For SessionBatch, which runs steps of several sequences. Call drop_ahead() before.
    Sequence &sequence() { return sequence_; }

    // Writes and reads cache, history and the pending token, see session_file.hpp. load_state()
    // replaces what is here; stats begin at 0 except for evictions. After a failed load_state() the
    // session is empty.
    void save_state(StateWriter &out);
    void load_state(StateReader &in);

  private:
    Session(Session &parent, std::vector<Stage> stages);
    void start_repeater();
    // `at_last`: the kind of the last step.
    bool prefill_as(StepKind at_last, std::span<const int32_t> ids, uint32_t rows,
                    const Progress &progress);
    bool prefill_all(StepKind at_last, std::span<const int32_t> ids, uint32_t rows,
                     const Progress &progress);
    void take_back(int64_t tokens, std::optional<int32_t> pending, uint64_t evictions);
    void finish_step();
    void forget_step();
    template <typename Read> void read_results(const Read &read);
    void read_logits();
    int32_t read_token(bool go_on);
    void repeat_step();
    void go_on_elsewhere(const Error &error, int64_t tokens);

    Sequence sequence_;
    StepRunner runner_;
    AheadStep ahead_;
    SequenceMover mover_;
    bool is_behind_prompt_ = false;             // take_in() was called, and no prefill() since
    std::unique_ptr<SwitchRules> rules_;        // NULL unless backends of a hybrid take turns
    std::unique_ptr<ContextRepeater> repeater_; // NULL unless the policy needs it
};

} // namespace keel
