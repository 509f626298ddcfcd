#pragma once

#include "run/ahead_step.hpp"
#include "run/step_runner.hpp"

#include <span>

namespace keel {

// Moves a sequence to another engine. Moves its cache; if the cache was lost, reads the tokens
// again there.
class SequenceMover {
  public:
    SequenceMover(Sequence &sequence, StepRunner &runner, AheadStep &ahead)
        : sequence_(sequence), runner_(runner), ahead_(ahead) {}

    Engine &current_engine() const { return sequence_.cache.first_engine(); }
    int64_t tokens() const { return sequence_.text.size(); }
    // Allocates a cache on the engine `to`, runs `warmup_tokens` dummy tokens there, then moves
    // keys and values. So the kernels of `to` are compiled before the sequence arrives. False: the
    // move failed, the sequence stays where it is, and a warning says why. If there is no memory
    // for the cache, the move fails before any dummy token runs.
    bool move(Engine &to, BackendMove::Why why, int64_t warmup_tokens = 0);
    // The device of the current engine was lost. The sequence keeps its first `tokens` tokens,
    // which are read again on the first of `candidates` that can do it. Returns that engine. Throws
    // Error(runtime) if none of them can. `why`: the error that the lost device gave.
    Engine &reread(std::span<Engine *const> candidates, int64_t tokens, const Error &why);
    // Runs a step again that another engine has lost. The tokens of that step are not in the text
    // yet.
    void retake(std::span<const int32_t> ids, StepKind kind, uint32_t logit_rows);

  private:
    void finish_step();
    void read_on(Engine &engine, int64_t tokens);
    void read_again(std::span<const int32_t> ids);
    BackendMove describe(const Engine &to, BackendMove::Why why) const;
    void refuse(BackendMove &move, const std::string &error);

    Sequence &sequence_;
    StepRunner &runner_;
    AheadStep &ahead_;
};

} // namespace keel
