#pragma once

#include "kv/evict/eviction.hpp"
#include "kv/evict/layer_tap.hpp"
#include "kv/inputs/context_repeat.hpp"
#include "kv/inputs/policy_inputs.hpp"
#include "kv/store/layer_caches.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// One sequence's cache under its policy, step by step. It owns the caches and the classes that
// decide: EvictionClock (when), Eviction (which slots), ProtectedTokens (which slots stay). The
// policy acts on the main cache of LayerCaches. Layers with an attention window hold only the
// tokens of the window.
// A step:
//
//     n = manager.next_chunk(tokens_left, chunk);        // prefill; decode: n = 1
//     manager.before_append(n, kind);                    // may evict to make room
//     positions = manager.next_positions(n);
//     manager.append(n);                                 // slots exist now
//     tap = manager.begin_step(n, kind);                 // what the step leaves for the policy
//     graph.forward({positions, manager.caches().views(), ids, tap, ...});
//     for (const EvictionRecord &r : manager.after_step(kind)) ...
//
// Under a policy that keeps all slots, none of these calls queues an op for the policy, allocates a
// buffer or reads a buffer. Evictions read policy inputs back, so they wait for the stream. Not
// thread-safe.
//
// The class has more than 30 member functions, because each event of a sequence needs one: steps,
// speculative steps, pins, removal of tokens, fork, move, save and load.
class CacheManager {
  public:
    // `setup` must stay valid. `placement`: the value of Executor::placement() after all ops were
    // planned.
    CacheManager(PolicySetup &setup, keel_buffer_kind placement);
    // Use this constructor for one of several sequences that share arenas. The arenas have the
    // setup's executor and layout.
    CacheManager(PolicySetup &setup, const KvArenas &arenas);
    ~CacheManager();

    // The cache of the layers on which the policy acts.
    KvCache &cache() { return *cache_; }
    const KvCache &cache() const { return *cache_; }
    LayerCaches &caches() { return caches_; } // of all layers
    const LayerCaches &caches() const { return caches_; }
    PolicySetup &setup() const { return setup_; }

    // ---- steps ----

    // Returns true if there is room for n more tokens, in steps of the sizes that next_chunk()
    // gives. `prompt`: true if the tokens are part of a prompt. (A policy that acts only at the end
    // of a prompt makes no room during the prompt.) If there is no room, `why` gets a text with the
    // limit and the key to change.
    bool can_take(int64_t n, bool prompt, std::string *why = nullptr) const;
    // Returns the number of prompt tokens that the next step should take. The number is at most
    // `left` and at most `preferred`. All these tokens fit after the policy has made room. The
    // prompt's last chunk always has all queries of the window that the policy reads.
    int64_t next_chunk(int64_t left, int64_t preferred) const;

    // If n tokens do not fit and the policy may act now, evicts slots and returns the records of
    // the eviction. If the tokens still do not fit, throws Error(resource) with the key to change.
    // Before this error, the cache changes only by the eviction.
    std::span<const EvictionRecord> before_append(int64_t n, StepKind kind);
    // Returns the RoPE positions of the next n tokens, [n], equal for all heads. A token's position
    // is its number since the start of the sequence, even if keys are rotated to new positions (see
    // Rerotation). The result is valid until the next call.
    std::span<const int32_t> next_positions(int64_t n);
    // Takes slots for n tokens at next_positions. Call it between before_append and the step.
    void append(int64_t n);
    // Call it between append() and the step's ops. Returns the tap that receives the by-products of
    // the step for the policy. Returns NULL if the policy needs no by-products. The tap is valid
    // for this step.
    StepTap *begin_step(int64_t n, StepKind kind);
    // Call it after all ops of the step were queued. Fires triggers and evicts. Returns one record
    // for each layer from which slots were evicted. The records are valid until the next call.
    std::span<const EvictionRecord> after_step(StepKind kind);

    // A speculative step: one token, queued before the previous decode step's after_step().
    // can_append_ahead() returns true if the speculative step can be undone: the previous step
    // evicts nothing, and the speculative step allocates nothing and records nothing for the
    // policy. append_ahead() makes the slot; the step's position is next_positions(1). After
    // append_ahead() call either keep_ahead() or drop_ahead(), before anything else.
    bool can_append_ahead() const;
    void append_ahead();
    void keep_ahead();
    void drop_ahead();
    // Evicts now, down to the budget, even if no trigger fires. For experiments. Throws
    // Error(usage) if the policy needs the last queries and the cache keeps none.
    std::span<const EvictionRecord> evict();

    // ---- what stays ----

    // Protects the first slots of the sequence from eviction: at least `tokens` slots, and at least
    // the config's prefix. A session uses this function for a system prompt. Call it before the
    // first token. If the protection leaves no room for other tokens, throws Error(input) that
    // names the key to change. `what` names the slots in the error: "the system prompt".
    void protect_prefix(int64_t tokens, std::string_view what);
    int64_t protected_prefix() const { return tokens_.prefix(); }
    // Pins the tokens `from` to `to` - 1, counted from the start of the sequence. Pinned tokens are
    // not evicted. Tokens that are not in the cache yet can be pinned too. Pinned tokens count
    // against the budget. A pin ends when one of its tokens is removed (truncate), and with
    // reset(). Throws Error(usage) if some of the tokens were evicted already. Throws Error(input),
    // with the key to change, if the budget has no room for the tokens. `what` names the tokens in
    // the error: "generation.pin". With a policy that keeps all tokens, pin() does nothing.
    void pin(int64_t from, int64_t to, std::string_view what);
    // Removes all pins with a token whose number is `from` or larger.
    void unpin(int64_t from) { tokens_.unpin(from); }
    // pinned tokens after the protected prefix
    int64_t pinned_tokens() const { return tokens_.pinned(); }

    // ---- the life of a sequence ----

    // Removes the last n tokens. Removing all tokens is always possible. Otherwise throws
    // Error(usage) in three cases:
    // - Some of the tokens were evicted already.
    // - Some of the tokens are part of sums that the policy reads (running_scores, query_stats,
    //   chunk_scores).
    // - Layers with an attention window have freed keys that later queries would need again.
    void truncate(int64_t n);
    bool can_truncate(int64_t n, std::string *why = nullptr) const;
    // Empties the cache and resets the policy's state. The protected prefix is again the prefix of
    // the config.
    void reset();
    // Resets the policy's state with another seed than the seed of the setup, so that sequences of
    // one setup make different random choices. Call it before anything was evicted from this
    // sequence.
    void reseed(uint64_t seed);

    // save() writes the cache, its lengths and positions, and the policy's state. load() replaces
    // these in this sequence. The pipeline needs the same shape, types, policy and parameters.
    // load() throws Error(input) for invalid values. After a failed load() the cache is empty.
    // save() and load() throw Error(plugin) if the policy has state and cannot save it.
    void save(StateWriter &out) const;
    void load(StateReader &in);
    // Makes a copy that shares each block with this sequence until one of the two writes to the
    // block. KvShape::sequences must allow one more cache. Both sequences write to the setup's log.
    std::unique_ptr<CacheManager> fork();
    // Makes a copy under another setup, which has the same executor and shape and must stay valid.
    // Throws Error(input) unless this sequence has collected the inputs of the other setup's policy
    // (PolicySetup::collected). The state of that policy is reset. If slots were evicted already,
    // both setups must treat positions alike. `to_come`: at least this many tokens of the prompt
    // are read after the fork, so queries that only the end of the prompt needs are not missing.
    std::unique_ptr<CacheManager> fork_into(PolicySetup &setup, int64_t to_come = 0);
    // These functions move the sequence to another device, under a setup of the same policy. The
    // setup must stay valid.
    // begin_move() makes a manager on the other device, with room for the whole cache, and copies
    // the inputs that were collected for the policy. If begin_move() fails, this manager has not
    // changed.
    // finish_move() moves keys and values layer by layer and frees each layer here. Then it moves
    // lengths, positions and the policy's state. It returns the bytes written. After finish_move(),
    // this manager must not be used. If finish_move() throws, neither manager may be used, and the
    // tokens must be computed again.
    std::unique_ptr<CacheManager> begin_move(PolicySetup &setup, keel_buffer_kind placement);
    uint64_t finish_move(CacheManager &to);
    // Empties this sequence, and copies the protected prefix, the pins and the log number of
    // another sequence.
    void begin_like(const CacheManager &other);
    // Sets the object that runs the model for a policy that lets the model repeat its context. Such
    // a policy needs this call before the first token. The object must stay valid.
    void set_forward(SequenceForward *forward) { forward_ = forward; }

    // ---- counters ----

    int64_t tokens_seen() const { return seen_; }
    // Bytes of this sequence's blocks in all layers, including shared blocks, and of copies of
    // quantized keys.
    uint64_t bytes_in_use() const {
        return caches_.bytes_in_use() + (rerotation_ ? rerotation_->copied_bytes() : 0);
    }
    // The maximum of bytes_in_use() since the sequence began. It includes the temporary tokens
    // while the model repeats its context.
    uint64_t peak_bytes() const { return std::max(peaks_.cache, bytes_in_use()); }
    // Bytes that the core has allocated for the policy in addition to the cache, on device and
    // host. These are the sums per slot, the last queries, the statistics of the queries, the
    // scores of a repeated context, and the protected prefix before its rotation. The arrays for
    // deciding evictions also count; they are freed after a prompt. The plugin's own memory does
    // not count.
    uint64_t policy_bytes() const;
    // Returns an estimate of policy_bytes() for a context of `context` tokens, if the cache holds
    // `held` of these tokens when slots are evicted. Allocates no memory.
    static uint64_t policy_bytes(const PolicySetup &setup, int64_t context, int64_t held);
    // The maximum of policy_bytes() since the sequence began, also during evictions.
    uint64_t policy_peak_bytes() const { return std::max(peaks_.policy, policy_bytes()); }
    // All bytes of the sequence: its cache, and the data for the policy.
    uint64_t held_bytes() const { return bytes_in_use() + policy_bytes(); }
    // The maximum of held_bytes() since the sequence began, also during evictions. It can be less
    // than the sum of peak_bytes() and policy_peak_bytes(), because these two can occur at
    // different times.
    uint64_t held_peak_bytes() const { return std::max(peaks_.held, held_bytes()); }
    // The bytes that evictions saved: the maximum of held_bytes() at the start of an eviction,
    // minus held_bytes() now. 0 without evictions.
    uint64_t freed_bytes() const {
        const uint64_t now = held_bytes();
        return std::max(peaks_.evicting, now) - now;
    }
    // Microseconds that evictions took, measured on the host from the trigger to the end. The waits
    // for reads from the device are included.
    double eviction_us() const { return totals_.microseconds; }
    uint64_t evictions() const { return totals_.evictions; } // number of evictions
    // Slots that the head with the most losses lost, summed over evictions.
    uint64_t evicted_slots() const { return totals_.evicted_slots; }
    // Bytes of the blocks that evictions freed, summed over evictions. A block that is used and
    // freed again counts twice. So the sum can exceed the largest size of the cache. See
    // freed_bytes().
    uint64_t evicted_bytes() const { return totals_.evicted_bytes; }

  private:
    // Maxima since the sequence began, in bytes.
    struct Peaks {
        uint64_t cache = 0, policy = 0;
        uint64_t held = 0;     // cache plus policy
        uint64_t evicting = 0; // the maximum of cache plus policy bytes at the start of an eviction

        void note(uint64_t cache_bytes, uint64_t policy_bytes) {
            cache = std::max(cache, cache_bytes);
            policy = std::max(policy, policy_bytes);
            held = std::max(held, cache_bytes + policy_bytes);
        }
    };

    CacheManager(CacheManager &parent, PolicySetup &setup, LayerCaches caches);
    void start();
    void set_prefix(int64_t prefix);
    void count_append(int64_t n);
    std::span<const EvictionRecord> run(const Firing &firing);
    void end_prompt();
    std::span<const EvictionRecord> answer_pressure(StepKind kind);
    bool repeat_context();
    bool can_repeat_context(int64_t n, std::string *why) const;
    bool has_evicted() const;

    PolicySetup &setup_;
    keel_buffer_kind placement_;
    LayerCaches caches_;
    KvCache *cache_; // caches_.main()
    LayerTap tap_;
    ProtectedTokens tokens_;
    EvictionClock clock_;
    std::unique_ptr<Rerotation> rerotation_; // NULL: keys keep their positions
    // NULL: the policy keeps all slots, so nothing is collected
    std::unique_ptr<PolicyInputs> inputs_;
    std::unique_ptr<Eviction> eviction_; // NULL: the policy keeps all slots
    SequenceForward *forward_ = nullptr;
    SequenceStamp stamp_;
    int64_t seen_ = 0; // tokens since the start
    // number of the newest tokens that are still in all heads; only these tokens can be removed
    int64_t tail_ = 0;
    uint64_t set_aside_ = 0; // bytes that are reserved for the policy
    EvictionTotals totals_;
    Peaks peaks_;
    std::vector<int32_t> positions_; // positions of the next tokens
};

} // namespace keel
