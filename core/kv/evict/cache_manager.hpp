#pragma once

#include "kv/evict/cache_plan.hpp"
#include "kv/evict/pinned_tokens.hpp"
#include "kv/evict/plugin_state.hpp"
#include "kv/evict/rerotation.hpp"
#include "kv/inputs/policy_inputs.hpp"
#include "kv/inputs/replay.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// A step is one forward pass.
enum class StepKind {
    prefill_chunk, // more of the prompt follows
    prefill_end,   // the last chunk of a prompt
    decode,
};

// A sequence's cache under its policy: owns the KvCache and the policy's state, and decides when slots go. A step is
//
//     n = manager.next_chunk(tokens_left, chunk);        // prefill; decode: n = 1
//     manager.before_append(n, kind);                    // may evict to make room
//     positions = manager.next_positions(n);
//     manager.append(n);                                 // slots exist now
//     tap = manager.begin_step(n, kind);                 // what the step leaves for the policy
//     graph.forward({positions, manager.cache().views(), ids, tap, ...});
//     for (const EvictionRecord &r : manager.after_step(kind)) ...
//
// Under a policy that keeps all, no hook queues an op, makes a buffer or reads one. Evictions read policy inputs back, so they wait
// for the stream. Not thread-safe.
class CacheManager {
  public:
    // `plan` outlives this. `placement` is Executor::placement() once all ops are planned.
    CacheManager(CachePlan &plan, keel_buffer_kind placement);
    // The same for a sequence beside others, whose blocks lie in one arena (of the plan's executor and shape).
    CacheManager(CachePlan &plan, std::shared_ptr<KvArena> arena);
    ~CacheManager();

    KvCache &cache() { return *cache_; }
    const KvCache &cache() const { return *cache_; }
    CachePlan &plan() const { return plan_; }

    // Could n more tokens come, in steps as next_chunk cuts them? `prompt`: as a prefill (a policy that acts at its end only does not
    // help while it runs). If not, `why` says which limit stands in the way and the key to change.
    bool can_take(int64_t n, bool prompt, std::string *why = nullptr) const;
    // How many of `left` prompt tokens the next step should take, at most `preferred`: what fits once the policy has made room, and so
    // that the prompt's last chunk holds the window that the policy wants to see.
    int64_t next_chunk(int64_t left, int64_t preferred) const;

    // Makes room for n tokens if they would not fit and the policy may act now; returns what it evicted. Throws Error(resource) with
    // the key to change if they do not fit; nothing has changed then but evictions.
    std::span<const EvictionRecord> before_append(int64_t n, StepKind kind);
    // RoPE positions of the next n tokens, [n], the same for all heads: each token's number since the start, in every mode (see
    // Rerotation). Valid until the next call.
    std::span<const int32_t> next_positions(int64_t n);
    // Takes slots for n tokens at next_positions. To be called between before_append and the step.
    void append(int64_t n);
    // Between append() and the step's ops: what the graph is to leave for the policy; NULL: nothing. Good for this step.
    StepTap *begin_step(int64_t n, StepKind kind);
    // After all ops of the step were queued: fires triggers, evicts. The records, one per layer, are valid until the next call.
    std::span<const EvictionRecord> after_step(StepKind kind);
    // A step of one token that is queued before anybody knows whether it is wanted, behind a decode step whose after_step() is still to
    // come. can_append_ahead(): that one will decide nothing, this one leaves nothing for the policy and takes no memory; so where it is not
    // wanted nothing tells that it was there. The slot is made by append_ahead(), the step's position comes of next_positions(1), and
    // exactly one of the others ends it before anything else is done with the cache: the token was taken in, or it was not.
    bool can_append_ahead() const;
    void append_ahead();
    void keep_ahead();
    void drop_ahead();
    // Evicts now, whatever the triggers say, down to the budget. For experiments.
    std::span<const EvictionRecord> evict();

    // Takes the last n tokens back. Throws Error(usage) if some of them were evicted already, or if sums that the policy reads hold
    // what they added, which cannot be told apart any more (running_scores, query_stats, chunk_scores); all tokens can be taken back.
    void truncate(int64_t n);
    bool can_truncate(int64_t n, std::string *why = nullptr) const;
    // An empty cache and a policy that begins anew; the protected prefix is the config's again.
    void reset();
    // The policy begins anew under another seed than the plan's: one plan serves many sequences that draw each on their own. To be called
    // before anything was evicted from this sequence.
    void reseed(uint64_t seed);
    // From here on the first `tokens` slots stay (at least the config's prefix): a system prompt. Before the first token. Throws
    // Error(input) naming the key to change if that leaves no room; `what` it is: "the system prompt".
    void protect_prefix(int64_t tokens, std::string_view what);
    int64_t protected_prefix() const { return prefix_; }

    // From here on tokens number from..to - 1 since the start stay, whether they are there or still to come; they count against the budget.
    // Pins go when a token of theirs is taken back, and with reset(). Throws Error(input) naming the key to change if that leaves no room;
    // `what` they are: "generation.pin"; Error(usage) if some of them were evicted already. Under a policy that keeps all it does nothing.
    void pin(int64_t from, int64_t to, std::string_view what);
    // Takes pins back that reach to token number `from` or beyond.
    void unpin(int64_t from) { pins_.truncate(from); }
    int64_t pinned_tokens() const { return pins_.count(prefix_); } // behind the protected prefix

    // Writes cache, books and the policy's state, and takes them in again in the place of what is here. A pipeline of the same shape,
    // types, policy and parameters understands them. Throws Error(input) for what cannot be, Error(plugin) for a policy that has state
    // and cannot save it; after a failed load() the cache is empty.
    void save(StateWriter &out) const;
    void load(StateReader &in);
    // A copy that shares blocks until either is written. KvShape::sequences has to allow it. Both write to the plan's log.
    std::unique_ptr<CacheManager> fork();
    // The same under another plan on the same executor and shape, which outlives it: what that plan's policy needs was collected here
    // (CachePlan::gathered), else Error(input). Its policy begins anew. Where slots were evicted already both keep positions alike.
    std::unique_ptr<CacheManager> fork_into(CachePlan &plan);
    // The sequence goes on on another device, under a plan of the same policy, which outlives it. begin_move() makes a manager there that has
    // room for all, and what the policy collected: where that fails nothing has changed here. finish_move() moves keys and values layer
    // by layer, giving each layer's memory back as it goes, then the books and the policy with what it remembers; the bytes that were
    // written. From then on this one is of no use, and where it throws neither is (the tokens have to be read anew).
    std::unique_ptr<CacheManager> begin_move(CachePlan &plan, keel_buffer_kind placement);
    uint64_t finish_move(CacheManager &to);
    // Begins anew with what was promised to another sequence: protected prefix, pins that are to come again, its number in the log.
    void begin_like(const CacheManager &other);
    // Who runs tokens for a policy that replays the context; outlives this. Such a policy's sequences need one before the first token.
    void set_replayer(Replayer *replayer) { replayer_ = replayer; }

    int64_t tokens_seen() const { return seen_; }
    // Of this sequence's blocks, shared ones included, and of copies of quantized keys.
    uint64_t bytes_in_use() const {
        return cache_->bytes_in_use() + (rerotation_ ? rerotation_->copied_bytes() : 0);
    }
    // The most that bytes_in_use() was since the sequence began, a replay's passing tokens included.
    uint64_t peak_bytes() const { return std::max(peak_bytes_, bytes_in_use()); }
    // What the policy makes the core hold beside that: sums per slot, last queries, their statistics, replay scores, the protected prefix
    // before its rotation, and the arrays that evictions are decided with (behind a prompt they are given back). On the device and on the
    // host, as much as was made by now. What the plugin itself keeps is its own.
    uint64_t policy_bytes() const;
    // The most that it was since the sequence began, while evictions were decided included.
    uint64_t policy_peak_bytes() const { return std::max(policy_peak_, policy_bytes()); }
    // Microseconds that evictions took, from the trigger to the end, on the host (which waits for the device where it reads).
    double eviction_us() const { return eviction_us_; }
    uint64_t evictions() const { return evictions_; } // times that slots went
    uint64_t evicted_slots() const {
        return evicted_slots_;
    } // of the head that lost most, summed over evictions
    uint64_t evicted_bytes() const { return evicted_bytes_; } // of blocks given back by them

  private:
    CacheManager(CacheManager &parent, CachePlan &plan, std::unique_ptr<KvCache> cache);
    void check_fork(const CachePlan &plan) const;
    void adopt_extras(const CacheManager &parent);
    bool has_evicted() const;
    bool can_replay(int64_t n, std::string *why) const;

    void start();
    void set_prefix(int64_t prefix);
    int64_t protected_slots() const {
        return prefix_ + plan_.config().protect_recent + pins_.count(prefix_);
    }
    BudgetNow budget_now(int64_t seen) const; // what memory pressure leaves of the plan's
    void start_extras();
    void copy_extras(const CacheManager &parent);
    void load_extras(StateReader &in);
    std::span<const EvictionRecord> answer_pressure();
    void note_append(int64_t n,
                     int64_t there = 0); // `there`: slots that the cache has for them already
    void count_append(int64_t n);
    void note_compact(uint32_t layer, const KeepLists &keep);
    void note_kept(EvictionRecord &record) const;
    std::vector<int32_t> first_slots(int64_t from, int64_t to) const;
    void load_books(StateReader &in);
    void load_numbers(StateReader &in);
    void check_lengths(const StateReader &in) const;
    bool may_act(StepKind kind) const;
    bool fires_every_n() const {
        return plan_.config().every_n && since_every_n_ >= *plan_.config().every_n;
    }
    bool
    is_over(const BudgetNow &budget) const; // more slots than budget and slack, all heads together
    std::span<const EvictionRecord> run_eviction(keel_trigger trigger, int64_t target);
    enum class ShareOut { evenly, by_lengths, by_scores };
    void share_out(int64_t target, ShareOut how);
    bool has_excess(keel_trigger trigger, int64_t target) const;
    int64_t fixed_slots() const;
    int64_t held_slots() const; // of all heads together
    void add_scores(keel_allocator_input &input);
    bool replay();
    // What is known of a layer and what the policy said about it; arrays [kv_heads, stride] but for lengths and counts.
    struct Answer {
        std::vector<int32_t> lengths, positions;
        std::vector<uint8_t> mask, stay, held; // held: either, for allocators
        std::vector<float> scores;
        std::vector<int32_t> listed, counts;
    };
    Answer &answer(uint32_t layer);
    std::string name_of(uint32_t layer, uint32_t head) const;
    void ask(uint32_t layer, keel_trigger trigger);
    void protect(uint32_t layer, Answer &answer);
    void read_decision(uint32_t layer, EvictionRecord &record);
    void equalize(uint32_t layer, KeepLists &keep);
    void compact(std::vector<EvictionRecord> &records, keel_trigger trigger);
    void note_eviction(double microseconds);
    int64_t tokens_to_come(keel_trigger trigger) const;
    bool should_close(uint32_t layer, int64_t coming) const;
    void note_tail(uint32_t layer, const KeepLists &keep);

    CachePlan &plan_;
    keel_buffer_kind placement_;
    int64_t prefix_; // slots at the front that stay
    std::unique_ptr<KvCache> cache_;
    std::unique_ptr<PolicyState> policy_;
    std::unique_ptr<AllocatorState> allocator_; // NULL: the same budget for all heads
    std::unique_ptr<Rerotation> rerotation_;    // NULL in absolute mode
    PinnedTokens pins_;
    std::unique_ptr<TokenNumbers>
        numbers_; // for the log; NULL: positions are numbers, or nobody asks
    std::unique_ptr<PressureWatch> pressure_;             // NULL: not watched
    std::shared_ptr<const PressureFacts> pressure_facts_; // where memory is short
    std::unique_ptr<PolicyInputs> inputs_; // NULL where nothing is collected nor decided
    Replayer *replayer_ = nullptr;
    std::chrono::steady_clock::time_point start_;
    uint64_t sequence_ = 0;
    int64_t seen_ = 0, since_every_n_ = 0;
    int64_t tail_ = 0; // newest tokens that are in all heads: what may be taken back
    uint64_t evictions_ = 0, evicted_slots_ = 0, evicted_bytes_ = 0;
    double eviction_us_ = 0;
    uint64_t peak_bytes_ = 0, policy_peak_ = 0;
    std::vector<int32_t> positions_; // of the tokens to come
    std::vector<EvictionRecord> records_;

    // Of the eviction in the making; kept for the next one.
    std::vector<int32_t> budgets_; // [layers, kv_heads]
    std::vector<KeepLists> keep_;  // [layers]
    int64_t stride_ = 0;           // of the arrays below: the longest head
    std::vector<Answer> answers_; // one, or with an allocator that weighs scores one for each layer
    std::vector<double> asked_microseconds_; // [layers]
    std::vector<int32_t> all_lengths_;       // [layers, kv_heads]
    std::vector<const float *> score_rows_;
    std::vector<const uint8_t *> mask_rows_;
    std::vector<int32_t> order_;
};

} // namespace keel
