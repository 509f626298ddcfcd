#pragma once

#include "run/ahead_step.hpp"
#include "run/step_runner.hpp"

#include <span>

namespace keel {

// Moves a sequence to another engine. If possible, moves the cache. If the cache was lost, computes
// the tokens again on the new engine.
class SequenceMover {
  public:
    SequenceMover(Sequence &sequence, StepRunner &runner, AheadStep &ahead)
        : sequence_(sequence), runner_(runner), ahead_(ahead) {}

    Engine &current_engine() const { return sequence_.cache.first_engine(); }
    int64_t tokens() const { return sequence_.text.size(); }
    // Moves the sequence in three steps: allocates a cache on the engine `to`, runs `warmup_tokens`
    // dummy tokens there, then moves keys and values. The dummy tokens compile the kernels of `to`
    // before the sequence arrives. If the move fails, returns false, the sequence stays on its
    // engine, and a warning gives the reason. If there is no memory for the cache, the move fails
    // before any dummy token runs.
    bool move(Engine &to, BackendMove::Why why, int64_t warmup_tokens = 0);
    // Call it if the device of the current engine was lost. The sequence keeps its first `tokens`
    // tokens: another engine computes them again. The engines of `candidates` are tried in their
    // order until one succeeds. Returns this engine. Throws Error(runtime) if no engine can compute
    // the tokens. `why`: the error of the lost device.
    Engine &reread(std::span<Engine *const> candidates, int64_t tokens, const Error &why);
    // Runs a step again that was lost together with an engine. The text must not have the tokens of
    // this step yet.
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
