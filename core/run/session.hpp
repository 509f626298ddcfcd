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
// so it has more than 30 functions. The members do the work. Several sessions of one pipeline can
// alternate. Read the results of a step before another session's step, because all sessions store
// results in the same place. Not thread-safe.
class Session {
  public:
    explicit Session(Pipeline &pipeline) : Session(pipeline, pipeline.policy_setup()) {}
    // `plan` must be a policy setup of the pipeline. `arenas`: memory that several sequences share,
    // see SessionBatch::make_session.
    Session(Pipeline &pipeline, PolicySetup &plan, const KvArenas *arenas = nullptr);
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    // Returns true if the session has room for n more tokens. If it has no room, `why` gets a text
    // with the limit and the config key that changes it.
    bool can_take(int64_t n, std::string *why = nullptr) const;
    // Runs the model over the tokens, in chunks. After that, there are logits for the last `rows`
    // tokens. `rows` is at most PipelineOptions::max_logit_rows, and at most the number of tokens
    // in the last chunk. `is_prompt_end`: true if the prompt ends with these tokens. Then policies
    // that act at the end of the prompt act now. If the tokens do not fit, throws Error(resource)
    // and changes nothing. If a number is not finite, throws Error(runtime) with the layer and the
    // position.
    // position.
    //
    // Returns false if the user cancelled the call (HostServices::request_cancel) before the last
    // token. Then there are no logits, and the session and its pending token are as before the
    // call. There is one exception: if tokens were evicted during the call, or keys outside of a
    // window were freed, the computed tokens stay in the session; see tokens().
    bool prefill(std::span<const int32_t> ids, bool is_prompt_end = true, uint32_t rows = 1,
                 const Progress &progress = {});
    // Throws Error(resource) if a prompt of n tokens does not fit after the evictions of the last
    // step.
    void check_prompt(int64_t n);
    // For a caller that reads the prompt in parts (SessionBatch::step): returns the number of
    // tokens of the next part, if `left` tokens are left. The number depends on this sequence
    // alone.
    int64_t next_chunk(int64_t left) const { return sequence_.cache.next_chunk(left); }
    // Like prefill(), but for tokens after the end of the prompt: a question, or a text that is
    // scored. These tokens are not a prompt. So no eviction happens at their end, and no queries
    // are kept for an eviction.
    bool take_in(std::span<const int32_t> ids, uint32_t rows = 1, const Progress &progress = {});
    // Ends the prompt after a prefill() without `is_prompt_end`. Policies that act at the end of
    // the prompt act now. Throws Error(usage) after take_in().
    void end_prompt();
    // Runs a step with one token.
    void decode(int32_t id);
    // Takes in a token and a guess of the tokens after it, in one step. Afterwards there are logits
    // for each of these tokens. The policy must keep all tokens. Call keep_guess() before the next
    // step. At most PipelineOptions::max_logit_rows tokens.
    void decode_guess(std::span<const int32_t> ids);
    // The first `right` of the `guessed` tokens were right. Removes the others.
    void keep_guess(int64_t guessed, int64_t right);
    // Returns the logits of the last `rows` tokens, [rows, vocabulary], in host memory. They are
    // valid until the next step. The first call after a step waits for the step.
    std::span<const float> logits();
    // Returns the most likely next token, without reading all logits. If two logits are equal, the
    // lower id wins.
    //
    // `go_on`: true if the caller will most likely call decode() with this token. In this case
    // greedy() can queue the next step before it reads the token. Two conditions must hold: the
    // device runs in parallel with the host, and the host decides nothing between the two steps. If
    // the caller calls another function, the queued step is discarded. A discarded step shows only
    // in SessionStats::discarded_steps and in the device's time. If the discarded step has
    // overwritten the logits, logits() computes the last step again. A queued step's slot is in
    // cache() until the step is discarded.
    int32_t greedy(bool go_on = false);
    void drop_ahead() { ahead_.drop(); }

    // Removes the last n tokens. Throws the same errors as CacheManager::truncate.
    void truncate(int64_t n);
    // Makes an independent copy, under the same policy or under another policy of the pipeline.
    // CacheManager::fork_into describes the requirements for another policy. The two sessions share
    // blocks of the cache until one of them writes to a block. PipelineOptions::sequences must
    // allow one more session. The copy's stats begin at 0.
    std::unique_ptr<Session> fork();
    std::unique_ptr<Session> fork(PolicySetup &plan, int64_t to_come = 0);
    // The token that was generated last, if no step has read it yet. The next step clears it.
    std::optional<int32_t> pending() const { return sequence_.text.pending(); }
    void set_pending(std::optional<int32_t> id) { sequence_.text.set_pending(id); }

    // Moves the sequence to another backend of a hybrid, for the chat command /switch. Throws
    // Error(usage) if the config does not allow the move.
    using Switch = SwitchRules::Switch;
    Switch switch_to(Engine &engine);

    Pipeline &pipeline() { return sequence_.pipeline; }
    // Returns the engine on which the sequence is. If layers are split, returns the engine of the
    // first layers.
    Engine &engine() const { return sequence_.cache.first_engine(); }
    // The number of tokens since the start or the last reset.
    int64_t tokens() const { return sequence_.text.size(); }
    std::span<const int32_t> history() const { return sequence_.text.tokens(); }
    // Returns the cache. If layers are split, returns the cache of the first stage with layers on
    // which the policy acts.
    CacheManager &cache() { return sequence_.cache.acting(); }
    const CacheManager &cache() const { return sequence_.cache.acting(); }
    // The next functions do the same as the functions of CacheManager with the same names, on the
    // caches of all layers.
    void pin(int64_t from, int64_t to, std::string_view what);
    void unpin(int64_t from) { sequence_.cache.unpin(from); }
    void protect_prefix(int64_t tokens, std::string_view what) {
        sequence_.cache.protect_prefix(tokens, what);
    }
    uint64_t kv_bytes() const { return sequence_.cache.bytes_in_use(); }
    uint64_t policy_bytes() const { return sequence_.cache.policy_bytes(); }
    // The sum of kv_bytes() and policy_bytes(): now, and the peak.
    uint64_t held_bytes() const { return kv_bytes() + policy_bytes(); }
    uint64_t held_peak_bytes() const { return sequence_.cache.held_peak_bytes(); }
    const SessionStats &stats() { return sequence_.meter.read(sequence_.cache); }
    // Returns true if the session is unusable: a device was lost and no other backend can continue,
    // or a step of several sessions failed. The error of the last call that threw has the reason.
    bool is_broken() const { return sequence_.is_broken; }
    // Empties the session. A policy's random numbers start again from the seed.
    void reset();
    // For SessionBatch, which runs steps of several sequences. Call drop_ahead() first.
    Sequence &sequence() { return sequence_; }
    // call it when a step has read tokens of a prompt
    void begin_prompt() { is_behind_prompt_ = false; }

    // Write and read the cache, the tokens and the pending token, see session_file.hpp.
    // load_state() replaces the content of the session. The statistics start at 0, except for the
    // statistics of evictions. After a failed load_state() the session is empty.
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
    // true: take_in() was called, and prefill() was not called after it
    bool is_behind_prompt_ = false;
    std::unique_ptr<SwitchRules> rules_;        // NULL unless backends of a hybrid take turns
    std::unique_ptr<ContextRepeater> repeater_; // NULL unless the policy needs KEEL_NEED_REPLAY
};

} // namespace keel
