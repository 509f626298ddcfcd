#pragma once

#include "base/error.hpp"
#include "kv/store/layer_caches.hpp"
#include "run/session.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace keel {

// Runs several sequences of one pipeline together. A step runs one token, or a chunk of a prompt,
// of each sequence in one pass through the model. So each weight is read once for all sequences.
// Each sequence keeps its own cache, policy and position.
//
// The text of a sequence does not depend on the other sequences, except for the rounding in matrix
// products of several rows. Other sequences never cut a chunk of a prompt (Session::next_chunk). So
// other sequences do not change which tokens a policy keeps.
//
// Two steps can have different sequences. Not thread-safe.
class SessionBatch {
  public:
    // Throws Error(usage) if the pipeline was made for one sequence (PipelineOptions::batch).
    // `plan`: the policy setup of new sequences; the pipeline must own it.
    explicit SessionBatch(Pipeline &pipeline) : SessionBatch(pipeline, pipeline.policy_setup()) {}
    SessionBatch(Pipeline &pipeline, PolicySetup &plan);
    SessionBatch(const SessionBatch &) = delete;
    SessionBatch &operator=(const SessionBatch &) = delete;

    // Makes a new, empty sequence. All sequences share arenas for keys and values. At most
    // max(Pipeline::batch(), PipelineOptions::sequences) sequences, including forks, may hold
    // tokens at the same time. The session may outlive this object.
    std::unique_ptr<Session> make_session() { return make_session(plan_); }
    // Like make_session(), but with another policy setup of the pipeline.
    std::unique_ptr<Session> make_session(PolicySetup &plan);

    // The results that a step reads for each sequence.
    enum class Read {
        greedy, // the most likely next token (Session::greedy), without reading all logits
        logits, // Session::logits
    };
    struct Outcome {
        enum class Kind {
            done,
            // there is no room for one more token; `detail` names the key to change; the sequence
            // has not changed, except that tokens can have been evicted
            full,
            // the sequence's policy failed, or a number is not finite, see `detail`. The sequence
            // is unusable now
            failed
        };
        Kind kind = Kind::done;
        std::string detail; // the reason, for full and failed
        // Returns the exception to throw for a caller that has to stop: Error(resource) for full,
        // Error(runtime) for failed.
        Error error() const;
    };
    // Receives the logits of all tokens of a part, a few rows at a time.
    class RowReader {
      public:
        virtual ~RowReader() = default;
        // `logits`: [rows, vocabulary] of consecutive tokens, from token `first` of the part on. If
        // it throws Error, only this sequence fails.
        virtual void take(size_t first, std::span<const float> logits) = 0;
    };
    // The tokens of one sequence in a step.
    struct Part {
        Session *session = nullptr;
        // decode: one token. prefill_chunk and prefill_end: the next tokens of the prompt;
        // Session::next_chunk() gives their number.
        std::span<const int32_t> ids;
        StepKind kind = StepKind::decode;
        RowReader *rows = nullptr; // NULL: only the last token of a prompt has logits
    };
    // Runs one step. `parts`: 1 to Pipeline::batch() different sessions of this pipeline, with at
    // most Graph::max_step_tokens() tokens together. This is enough for a chunk of a prompt and one
    // token of each other session. Call Session::check_prompt before the first chunk of a prompt.
    //
    // Returns one outcome for each part, valid until the next call. If a sequence fails, the other
    // sequences do not change. A sequence that is done has the same state as after Session::decode
    // or Session::prefill and after reading its results, including evictions. A decoded token and
    // the last chunk of a prompt have results. Other chunks have no results. If the parts cannot
    // run a step together, throws Error(usage) and changes nothing. An error that concerns all
    // sessions, for example a lost device, is thrown; then all sessions are broken
    // (Session::is_broken).
    std::span<const Outcome> step(std::span<const Part> parts, Read read);
    // Runs step() with the token ids[i] for each sessions[i].
    std::span<const Outcome> decode(std::span<Session *const> sessions,
                                    std::span<const int32_t> ids, Read read);

    // Bytes of keys and values of all sequences. Blocks that forks share count once.
    uint64_t cache_bytes() const;

    struct Stats {
        uint64_t steps = 0;  // number of steps with decoded tokens
        uint64_t tokens = 0; // number of decoded tokens
        // Time in steps, including evictions. The decode_seconds of each sequence contain this time
        // too.
        double seconds = 0;
        Stream::Counters stream; // work of all steps; the sequences do not count it
        double rate() const {    // tokens per second of all sequences together
            return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
        }
    };
    const Stats &stats() const { return stats_; }

  private:
    void check(std::span<const Part> parts) const;
    void check(const Part &part, size_t number) const;
    void take_in(std::span<const Part> parts);
    void queue_step();
    void read_results(Read read);
    void check_results(Read read);
    std::vector<const Sequence *> read_rows(std::span<const Part> parts);
    void finish_step();
    // Runs `action` for each sequence of the step that is not broken. If `action` throws Error,
    // only this sequence fails.
    template <typename Action> void for_each(const Action &action);

    Pipeline &pipeline_;
    PolicySetup &plan_;
    KvArenas arenas_;
    Stats stats_;
    StepRunner runner_;
    LayerBatchView view_;
    // Data of the current step. The memory is reused, so that the next step allocates no memory.
    std::vector<Part> decoded_;     // the parts of decode()
    std::vector<Outcome> outcomes_; // one for each part of the step
    struct Member {
        Sequence *sequence;
        size_t number; // index of the member's part
    };
    std::vector<Member> members_;            // the sequences that take part in the step
    std::vector<Sequence *> readers_;        // the sequences with results, in the order of the rows
    std::vector<const SequenceRows *> rows_; // [members_]
    std::vector<int32_t> next_;
    std::vector<float> logits_;
};

} // namespace keel
