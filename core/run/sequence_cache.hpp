#pragma once

#include "run/pipeline.hpp"
#include "run/step.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// An engine that runs some layers of a sequence, and the sequence's cache of these layers. If a
// hybrid splits the layers between backends, a sequence has several stages. Otherwise one stage has
// all layers.
struct Stage {
    Engine *engine;
    std::unique_ptr<CacheManager> cache;
};

// The keys and values of one sequence in all layers. Performs each operation of a cache on all
// stages.
class SequenceCache {
  public:
    explicit SequenceCache(const Pipeline &pipeline) : pipeline_(pipeline) {}

    const std::vector<Stage> &stages() const { return stages_; }
    Engine &first_engine() const { return *stages_.front().engine; }
    Engine &last_engine() const { return *stages_.back().engine; } // has the logits
    CacheManager &first() const { return *stages_.front().cache; }
    // Returns the cache of the first stage with layers on which the policy acts. If there is no
    // such stage, returns the cache of the first stage.
    CacheManager &acting() const;
    // Adds a stage with an empty cache.
    void add(Engine &engine, PolicySetup &plan);
    // Replaces all stages.
    void assign(std::vector<Stage> stages);
    // Makes `engine` the only stage. Returns the old cache.
    std::unique_ptr<CacheManager> replace(Engine &engine, std::unique_ptr<CacheManager> cache);
    // Sets the object that runs tokens for a policy with KEEL_NEED_REPLAY, also for stages that are
    // added later. The object must outlive this one.
    void set_forward(SequenceForward *forward);

    // Like CacheManager::can_take, for all stages.
    bool can_take(int64_t n, bool prompt, std::string *why = nullptr) const;
    // Returns how many of the `left` tokens of a prompt the next step takes.
    int64_t next_chunk(int64_t left) const;
    // Makes room for n tokens. This can evict slots. If the function throws, evictions are the only
    // change.
    void make_room(int64_t n, StepKind kind);
    // Makes the slots of step.ids. Writes the positions and stages of the step to `step`.
    void append(SequenceRows &step, StepKind kind);
    // Like append(), but for a token whose slot was made by CacheManager::append_ahead.
    void keep_ahead(SequenceRows &step);
    // Writes the stages of a step whose slots exist to `step`. The step collects nothing for the
    // policy.
    void find_stages(SequenceRows &step) const;
    // Returns true if a step was begun and finish_step() has not run yet.
    bool has_open_step() const { return open_step_.has_value(); }
    // Call it after the step's ops were queued. Fires triggers and evicts slots. Does nothing if no
    // step is open.
    void finish_step();
    void forget_open_step() { open_step_.reset(); }
    // Fires the triggers that wait for the end of a prompt.
    void end_prompt();

    bool can_truncate(int64_t n, std::string *why = nullptr) const;
    void truncate(int64_t n);
    void reset();
    void pin(int64_t from, int64_t to, std::string_view what);
    void unpin(int64_t from);
    void protect_prefix(int64_t tokens, std::string_view what);
    uint64_t bytes_in_use() const;
    uint64_t policy_bytes() const;    // the sum of CacheManager::policy_bytes over the stages
    uint64_t held_peak_bytes() const; // the sum of CacheManager::held_peak_bytes over the stages
    void save(StateWriter &out) const;
    // Throws Error(input) if the cache has seen a different number of tokens.
    void load(StateReader &in, int64_t tokens);
    // Makes copies of the stages. A copy shares blocks until one of the two writes to them.
    std::vector<Stage> fork() const;

  private:
    void attach_forward();

    const Pipeline &pipeline_;
    std::vector<Stage> stages_;
    SequenceForward *forward_ = nullptr;
    std::optional<StepKind> open_step_;
};

} // namespace keel
