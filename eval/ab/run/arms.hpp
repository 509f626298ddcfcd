#pragma once

#include "eval/ab/plan/experiment.hpp"
#include "run/session_batch.hpp"

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace keel {

// The pipelines of an experiment's runs, and sessions that have read a prompt. Arms that differ
// only in their policy share a pipeline. If such arms evict nothing while a prompt is read, they
// share its prefill and are forked from it. If the experiment has a `batch`, the sessions of a run
// may take steps together.
class AbArms {
  public:
    struct Options {
        std::shared_ptr<HostServices> host;
        Progress progress;                // of loading
        std::filesystem::path log_folder; // for eviction logs; empty: none
        std::string
            log_suffix;     // of their names, so that no two processes write one: "-shard-1-of-2"
        bool resume = true; // logs that are there stay, a new part is begun; false: they go
        bool share_prefill = true;
    };
    // What a session's cache held while a prompt was read.
    struct Note {
        uint64_t tokens = 0, kv_bytes = 0,
                 evicted_slots = 0; // evicted_slots: since the note before
    };
    // A session behind a prompt: read, told that it has ended, evicted from.
    struct Opened {
        std::unique_ptr<Session> session;
        // What the policy makes the core hold, behind the prompt: a copy for a question lacks the
        // arrays that evictions between chunks leave.
        uint64_t policy_bytes = 0;
        // The peak of cache plus policy up to here. In a copy of the session the peak starts again.
        uint64_t peak_bytes = 0;
        int32_t next =
            0; // the most likely token behind the prompt, from before the eviction at its end
        std::vector<Note> notes;
    };

    // `experiment` outlives this.
    AbArms(const AbExperiment &experiment, Options options);
    ~AbArms();
    AbArms(const AbArms &) = delete;
    AbArms &operator=(const AbArms &) = delete;

    // For a run and one of its seeds. `document`: policies that choose slots at random choose
    // differently for each document. Throws Error(resource) for a prompt that does not fit, naming
    // the arm.
    Opened open(size_t run, uint64_t seed, uint64_t document, std::span<const int32_t> prompt);
    // The same with a prefill and memory of its own, with logits behind it. No batch's.
    Opened open_alone(size_t run, uint64_t seed, uint64_t document,
                      std::span<const int32_t> prompt) {
        return open_by_itself(run, seed, document, prompt, false);
    }
    // The number of prompts, those read last, whose shared prefills are kept; 1 at first. At most
    // the experiment's `batch`.
    void keep_prompts(size_t count);
    // The batch in which sessions that open() returns for a run take steps together; NULL for an
    // experiment without a `batch`.
    SessionBatch *batch(size_t run);
    // Whether a run's prefill is shared with another's.
    bool shares(size_t run);
    // Prefills that all runs with all their seeds take for one prompt.
    uint64_t prefills();
    // Throws Error(input) naming the arm if a run cannot take this many tokens in: a prompt,
    // possibly with its answer.
    void check_prompt(size_t run, int64_t tokens, bool with_answer);
    // Call it after all checks, when the run begins. Without `resume` this deletes existing
    // eviction logs; nothing deletes them before.
    void begin_logs();

    Pipeline &pipeline(size_t run) { return *base(run).pipeline; }
    const Tokenizer &tokenizer() { return *pipeline(0).tokenizer(); } // of the reference
    // Bytes of a full cache that holds so many tokens: of the reference, and of a run's own types.
    uint64_t full_bytes(int64_t tokens) { return full_bytes(0, tokens); }
    uint64_t full_bytes(size_t run, int64_t tokens);

    static constexpr uint32_t logit_rows = 64; // that a step hands out at most

  private:
    // A prompt that was read for several runs.
    struct Parent {
        std::unique_ptr<Session> session; // behind it
        std::vector<int32_t> prompt;
        std::vector<Note> notes;
        int32_t next = 0;
    };
    // Runs that share a prefill.
    struct Group {
        PolicySetup *plan = nullptr; // keeps all and collects what the arms need
        std::vector<PolicySetup *> members;
        Collected gathered;                  // by all of them
        std::unique_ptr<SessionBatch> batch; // parents and their copies; NULL: none was wanted
        std::deque<Parent> parents;          // the oldest first
    };
    struct Base {
        std::unique_ptr<Pipeline> pipeline;  // under a policy that keeps all
        std::unique_ptr<SessionBatch> batch; // runs that share no prefill; NULL: none was wanted
        std::vector<Group> groups;
    };

    Base &base(size_t run);
    std::unique_ptr<Base> make_base(const pipeline::PipelineConfig &config);
    void group_runs(size_t number, Base &base);
    PolicySetup &plan(size_t run, uint64_t seed);
    void draw_anew(Session &session, size_t run, uint64_t seed, uint64_t document) const;
    std::filesystem::path log_path(const AbRun &run, uint64_t seed);
    std::filesystem::path log_part(const std::string &stem, int number) const;
    void remove_log(const std::string &stem) const;
    bool may_share(size_t run) const;
    Parent &parent(Group &group, Pipeline &pipeline, std::span<const int32_t> prompt);
    Opened open_by_itself(size_t run, uint64_t seed, uint64_t document,
                          std::span<const int32_t> prompt, bool in_batch);
    [[noreturn]] void blame(size_t run, size_t tokens, const Error &error,
                            bool with_answer = false) const;

    const AbExperiment &experiment_;
    Options options_;
    std::vector<size_t> base_of_;  // [runs]
    std::vector<size_t> group_of_; // [runs], of the run's base; alone: by itself
    static constexpr size_t alone = SIZE_MAX;
    std::vector<std::filesystem::path> further_logs_; // parts behind the first
    bool has_begun_ = false;
    size_t kept_prompts_ = 1;
    std::vector<std::pair<std::filesystem::path, std::string>>
        new_logs_; // until begin_logs(); and their stems
    std::vector<std::unique_ptr<Base>> bases_;
    std::map<std::pair<size_t, uint64_t>, PolicySetup *> plans_; // of a run, under one of its seeds
};

// Bytes that a sequence holds: its keys and values, copies of quantized keys that were rotated
// again, and the data that the core collects and keeps for its policy. Every number of bytes in an
// experiment is computed from it.
inline uint64_t ab_held_bytes(const Session &session) { return session.held_bytes(); }

} // namespace keel
