#pragma once

#include "kv/evict/cache_manager.hpp"
#include "run/pipeline.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace keel {

// A sequence went on on another backend of a hybrid, or was to and could not.
struct BackendMove {
    enum class Why {
        phase,    // prompts are read on one backend and texts written on another
        tokens,   // hybrid.switch.after_tokens
        pressure, // memory is short
        command,  // somebody asked for it
        lost,     // the device that it was on is gone
    };
    Why why = Why::phase;
    std::string from, to; // names of hybrid.backends
    int64_t tokens = 0;   // that the sequence had by then
    uint64_t bytes = 0;   // of keys and values, as they were written there
    double milliseconds = 0;
    int64_t warmup_tokens = 0; // dummy tokens that the new backend ran before
    int64_t reread_tokens = 0; // read anew, where the cache was lost
    std::string refused;       // why it stayed where it was; empty: it went
};
const char *move_reason_name(BackendMove::Why why); // "phase"
// "a -> b after 256 tokens (switch.after_tokens): 3.1 MiB in 4.0 ms, 8 warm-up tokens"
std::string move_text(const BackendMove &move);

// What a session did so far.
struct SessionStats {
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    double prefill_seconds = 0, decode_seconds = 0; // in steps, evictions included
    uint64_t evictions = 0;                         // times that a trigger fired and slots went
    uint64_t evicted_tokens = 0; // by the head that lost most, summed over evictions
    uint64_t evicted_bytes = 0;  // of blocks that became empty
    double eviction_seconds = 0; // within the steps' seconds, see CacheManager::eviction_us
    uint64_t kv_bytes = 0, kv_peak_bytes = 0;
    uint64_t policy_bytes = 0,
             policy_peak_bytes = 0; // beside the cache, see CacheManager::policy_bytes
    // What streams did in all steps, and in decode steps alone; in those that were run in vain as
    // well.
    Stream::Counters stream;
    Stream::Counters decode_stream;
    uint64_t ahead_steps =
        0; // decode steps that were queued before their token was read, see Session::greedy
    uint64_t vain_steps = 0; // so many more were, and nobody wanted them: none of the decode tokens
    uint64_t replay_parts = 0;      // of a decode step, that a backend could submit as a recording
    std::string no_replay;          // why it does not; empty: it does
    std::vector<BackendMove> moves; // between a hybrid's backends
    double prefill_rate() const {
        return prefill_seconds > 0 ? static_cast<double>(prefill_tokens) / prefill_seconds : 0;
    }
    double decode_rate() const {
        return decode_seconds > 0 ? static_cast<double>(decode_tokens) / decode_seconds : 0;
    }
};

// One sequence on a pipeline: its cache under its policy, step by step. Several sessions of one
// pipeline take turns: a turn is a step and the reading of its results, which lie where the next
// one's will. Not thread-safe.
class Session {
  public:
    explicit Session(Pipeline &pipeline) : Session(pipeline, pipeline.cache_plan()) {}
    Session(Pipeline &pipeline, CachePlan &plan); // `plan` is one of the pipeline's
    // Beside others, whose keys and values lie in one arena: SessionBatch::make_session.
    Session(Pipeline &pipeline, CachePlan &plan, std::shared_ptr<KvArena> arena);
    ~Session();
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    // Can n more tokens be taken in? If not, `why` says which limit stands in the way and which
    // config key moves it.
    bool can_take(int64_t n, std::string *why = nullptr) const;
    // Takes tokens in, in chunks. `rows` of logits are there afterwards (at most
    // PipelineOptions::max_logit_rows, and no more than the last chunk has). `is_prompt_end`: the
    // prefill is over, policies that wait for it act now. Throws Error(resource) before anything
    // happens if the tokens do not fit, Error(runtime) with layer and position if a number is not
    // finite. False: it was cancelled (HostServices::request_cancel) before all was taken in, and
    // has no logits. The session, its pending token too, is then as it was before; but where tokens
    // were evicted meanwhile those that were taken in stay, tokens() says how many.
    bool prefill(std::span<const int32_t> ids, bool is_prompt_end = true, uint32_t rows = 1,
                 const Progress &progress = {});
    // The prompt ends here: policies that wait for that act now, if prefill() was told that more of
    // it follows.
    void end_prompt();
    // Takes one token in.
    void decode(int32_t id);
    // Logits of the last `rows` tokens taken in, [rows, vocab], in host memory until the next step.
    // The first call of a step waits for it.
    std::span<const float> logits();
    // The most likely next token, without reading all logits: ties go to the lower id. `go_on`:
    // what comes next is most likely decode() with that token. Where the device runs beside the
    // host, and nothing is decided on the host between the two, that step is then queued before the
    // token is read: embed takes it from where argmax put it. Should it not be wanted it is taken
    // back by whatever is called instead, or by drop_ahead(), and nothing but
    // SessionStats::vain_steps and the device's time tells of it; logits() computes the step again
    // whose logits it wrote over. Until then cache() has its slot.
    int32_t greedy(bool go_on = false);
    void drop_ahead();

    // Takes the last n tokens back. Throws Error(usage) where CacheManager::truncate does.
    void truncate(int64_t n);
    // A copy that goes its own way, under the same policy or another one of the pipeline's
    // (CacheManager::fork_into says what that takes): an experiment's arms share one prefill. The
    // cache's blocks are shared until they are written to; PipelineOptions::sequences has to allow
    // it. Stats begin anew.
    std::unique_ptr<Session> fork();
    std::unique_ptr<Session> fork(CachePlan &plan);
    // The token that was generated last and is not taken in yet: what the sequence goes on with.
    // The next step forgets it.
    std::optional<int32_t> pending() const { return pending_; }
    void set_pending(std::optional<int32_t> id) { pending_ = id; }

    // The sequence goes on on another of a hybrid's backends, as /switch of a chat asks for. Throws
    // Error(usage) where the config does not allow that.
    enum class Switch {
        there,   // it is there already
        done,    // it is there now
        refused, // it stays where it is: stats().moves says why
    };
    Switch switch_to(Engine &engine);

    Pipeline &pipeline() { return pipeline_; }
    // Where the sequence is; of split layers where it begins.
    Engine &engine() const { return *parts_.front().engine; }
    int64_t tokens() const {
        return static_cast<int64_t>(history_.size());
    } // taken in since the start or the last reset
    std::span<const int32_t> history() const { return history_; }
    // Of split layers those of the first backend.
    CacheManager &cache() { return *parts_.front().cache; }
    const CacheManager &cache() const { return *parts_.front().cache; }
    // As the CacheManager's, of the cache of all layers.
    void pin(int64_t from, int64_t to, std::string_view what);
    void unpin(int64_t from);
    void protect_prefix(int64_t tokens, std::string_view what);
    uint64_t kv_bytes() const;
    const SessionStats &stats();
    // A device was lost and nothing else could go on, or a step of several sessions failed: what
    // the last call that threw said. The session is of no use any more.
    bool is_broken() const { return is_broken_; }
    // Forgets everything but the pipeline; a policy's random numbers start anew.
    void reset();

    // Writes cache, history and the pending token, and takes them in again in the place of what is
    // here, see session_file.hpp. Stats begin anew, but for evictions. After a failed load_state()
    // the session is empty.
    void save_state(StateWriter &out);
    void load_state(StateReader &in);

  private:
    friend class SessionBatch;
    class Meter;
    class Repeater;
    class Hybrid;
    // The cache of some layers, on the engine that runs them. One holds all layers, unless a hybrid
    // splits them.
    struct Part {
        Engine *engine;
        std::unique_ptr<CacheManager> cache;
    };
    using Caches = std::vector<KvCache *>;
    Session(Session &parent, std::vector<Part> parts);
    void serve_replay();
    void add_part(Engine &engine, CachePlan &plan);
    Caches caches() const;
    int64_t next_chunk(int64_t left) const;
    bool prefill_all(std::span<const int32_t> ids, bool is_prompt_end, uint32_t rows,
                     const Progress &progress);
    void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 const Caches &caches, uint32_t rows, std::span<StepTap *const> taps);
    // In a catch block: if the device was lost and another backend can go on, all but `tokens`
    // tokens are forgotten and those are read anew there. Else throws what was caught, or what
    // tells more.
    void go_on_elsewhere(const Error &error, size_t tokens);
    void read_again(std::span<const int32_t> ids);
    void retake(std::span<const int32_t> ids, StepKind kind, uint32_t rows);
    // Of a hybrid whose backends take turns (session_hybrid.cpp).
    void start_hybrid();
    void fork_hybrid(const Session &parent);
    void before_prefill();
    void note_decode();
    void before_decode();
    bool stays() const; // it runs its next step where it is, as far as is known now
    void reset_hybrid();
    template <typename Read>
    void read_results(const Read &read);
    void take_back(int64_t tokens, std::optional<int32_t> pending, uint64_t evictions);
    void step(std::span<const int32_t> ids, StepKind kind, uint32_t rows);
    // All of a step but the forward pass: makes room, takes the tokens in. Where it throws nothing
    // has changed but evictions.
    void take_in(std::span<const int32_t> ids, StepKind kind, uint32_t rows);
    void read_logits();
    void forget_step();
    void
    settle(); // the step's eviction, once its results were read; a step ahead is not wanted then
    void settle_step(); // the same, and it may be
    void begin_results(std::span<const int32_t> ids, StepKind kind, uint32_t rows);
    // Steps ahead (session_ahead.cpp).
    int32_t read_greedy(bool go_on);
    bool may_run_ahead() const;
    void run_ahead();
    bool take_ahead(int32_t id);
    void take_step_again();
    void forget_ahead();
    void forget_overwritten();
    void check_finite(std::span<const float> values);
    std::string suspects(int64_t layer) const;
    struct NonFinite {
        int64_t layer; // -1: the embedding
        int64_t position;
    };
    [[noreturn]] void find_non_finite();
    std::optional<NonFinite> probe_step(std::span<const int32_t> ids,
                                        std::span<const int32_t> positions, const Caches &caches,
                                        uint32_t rows);
    std::optional<NonFinite> replay_history();

    Pipeline &pipeline_;
    std::unique_ptr<Repeater> repeater_; // for a policy that replays the context; else NULL
    std::vector<Part> parts_;
    std::unique_ptr<Hybrid> hybrid_; // where backends take turns; else NULL
    std::vector<int32_t> history_;
    std::optional<int32_t> pending_;
    std::string loaded_from_;   // the session file; empty: nothing was loaded
    std::vector<float> logits_; // [rows, vocab], kept from step to step
    SessionStats stats_;
    // The step whose results may still be read.
    std::vector<int32_t> step_ids_, step_positions_;
    Engine *results_ = nullptr;   // whose graph holds the results
    std::optional<int32_t> said_; // what greedy() gave
    LaterRead coming_;            // what it will give, where argmax was queued with the step
    LaterRead ahead_; // the same of the step that is queued behind that one; empty: there is none
    // NextToken::results_version() when the argmax of coming_ or ahead_ was queued.
    uint64_t results_version_ = 0;
    bool overwritten_ = false;    // the step's logits, by the one that was ahead of them
    bool ahead_failed_ = false;   // a step could not be queued: no other is tried
    std::vector<float> residual_; // between the parts of a step
    std::vector<StepTap *> taps_; // of the parts
    Caches step_caches_; // of the parts, kept from step to step as all of these: a decode step
                         // allocates nothing
    StepKind step_kind_ = StepKind::decode;
    uint32_t rows_ = 0;
    uint32_t first_row_ =
        0; // of the logits on the device: above 0 behind a step of several sequences
    bool logits_read_ = false, settled_ = true, is_broken_ = false;
};

} // namespace keel
