#pragma once

#include "base/error.hpp"
#include "kv/store/batch_view.hpp"
#include "run/session.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace keel {

// Sequences of one pipeline that are decoded together. A step takes one token of each in, in one
// pass through the model: every weight is read once for all of them, which is what a decode step
// waits for. Each sequence keeps its own cache, policy and position, and its text is the one that
// it has alone, up to the rounding of a matrix product of several rows. Prompts are read one by one
// (Session::prefill). Sequences come and go between steps: a step takes those that it is given. Not
// thread-safe.
class SessionBatch {
  public:
    // Throws Error(usage) for a pipeline that was not made for it (PipelineOptions::batch). `plan`
    // is one of the pipeline's.
    explicit SessionBatch(Pipeline &pipeline) : SessionBatch(pipeline, pipeline.cache_plan()) {}
    SessionBatch(Pipeline &pipeline, CachePlan &plan);
    SessionBatch(const SessionBatch &) = delete;
    SessionBatch &operator=(const SessionBatch &) = delete;

    // A new, empty sequence. As many as Pipeline::batch() (or PipelineOptions::sequences, where
    // that is more) may hold tokens at once, their forks included: their keys and values share one
    // arena. It may outlive this.
    std::unique_ptr<Session> make_session() { return make_session(plan_); }
    // Under another plan of the pipeline's.
    std::unique_ptr<Session> make_session(CachePlan &plan);

    // What a step gives of each sequence.
    enum class Read {
        greedy, // the most likely next token (Session::greedy), without reading all logits
        logits, // Session::logits
    };
    struct Outcome {
        enum class Kind {
            done,
            full,  // there is no room for one more token: `detail` names the key to change. Nothing
                   // has changed for it but evictions
            failed // its policy failed, or a number is not finite: `detail` says it. It is of no
                   // use any more
        };
        Kind kind = Kind::done;
        std::string detail; // of full and failed
        // Of full (Error(resource)) and failed (Error(runtime)): for whoever cannot go on without
        // this sequence.
        Error error() const;
    };
    // Takes ids[i] in for sessions[i], which are different ones and of this
    // pipeline, 1..Pipeline::batch() of them. One outcome for each, valid until the next call: what
    // befalls one sequence leaves the others as they are. Afterwards each that is done stands as
    // after Session::decode and the reading of its results, evictions included. Throws Error(usage)
    // before anything happens for sessions that cannot take a step together; what fails for all of
    // them (a device that is lost, say) is thrown, and leaves them broken (Session::is_broken).
    std::span<const Outcome> decode(std::span<Session *const> sessions,
                                    std::span<const int32_t> ids, Read read);

    struct Stats {
        uint64_t steps = 0, tokens = 0;
        double seconds =
            0; // in steps, evictions included; each sequence's decode_seconds have them too
        Stream::Counters stream; // of all steps; the sequences' own counters do not have it
        double rate() const {
            return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
        } // of all
    };
    const Stats &stats() const { return stats_; }

  private:
    void check(std::span<Session *const> sessions, std::span<const int32_t> ids) const;
    void take_in(std::span<Session *const> sessions, std::span<const int32_t> ids);
    void forward();
    void read_results(Read read);
    void settle();

    // A sequence that takes part in the step, and which of those given it is.
    struct Member {
        Session *session;
        size_t index;
    };

    Pipeline &pipeline_;
    CachePlan &plan_;
    std::shared_ptr<KvArena> arena_;
    Stats stats_;
    // Of the step in the making; kept, so that a step allocates nothing.
    std::vector<Outcome> outcomes_;
    std::vector<Member> members_;
    std::vector<int32_t> next_;
    std::vector<Segment> segments_;
    std::vector<KvCache *> caches_;
    BatchView view_;
    std::vector<float> logits_;
};

} // namespace keel
