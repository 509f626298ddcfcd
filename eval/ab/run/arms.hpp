#pragma once

#include "eval/ab/plan/experiment.hpp"
#include "run/session_batch.hpp"

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace keel::ab {

// The pipelines of an experiment's runs, and sessions that have read a prompt. Arms that differ
// only in their policy share a pipeline. If such arms evict nothing while a prompt is read, they
// also share its prefill: the session is forked for each arm. If the experiment has a `batch`, the
// sessions of a run may take steps together.
class Arms {
  public:
    struct Options {
        std::shared_ptr<HostServices> host;
        Progress progress;                // of loading
        std::filesystem::path log_folder; // folder of the eviction logs; empty: no logs
        // Suffix of the names of logs, for example "-shard-1-of-2". With it no two processes write
        // the same log.
        std::string log_suffix;
        // true: existing logs stay, and a new part is written. false: existing logs are deleted.
        bool resume = true;
        bool share_prefill = true;
    };
    // The contents of a session's cache at one time during the prompt.
    struct Note {
        uint64_t tokens = 0, kv_bytes = 0,
                 evicted_slots = 0; // evicted_slots: since the note before
    };
    // A session after its prompt: the prompt was read, the policy was told that it has ended, and
    // evicted.
    struct Opened {
        std::unique_ptr<Session> session;
        // Bytes that the core holds for the policy after the prompt. A copy of the session for a
        // question does not have the arrays that evictions between chunks leave.
        uint64_t policy_bytes = 0;
        // The peak of cache plus policy until now. The peak of a copy starts again.
        uint64_t peak_bytes = 0;
        // The most likely token after the prompt, computed before the eviction at the prompt's end.
        int32_t next = 0;
        std::vector<Note> notes;
    };

    // `experiment` must outlive this object.
    Arms(const Experiment &experiment, Options options);
    ~Arms();
    Arms(const Arms &) = delete;
    Arms &operator=(const Arms &) = delete;

    // Opens a session for a run and one of its seeds. `document`: policies that choose slots at
    // random choose differently for each document. Throws Error(resource) with the arm's name if
    // the prompt does not fit.
    Opened open(size_t run, uint64_t seed, uint64_t document, std::span<const int32_t> prompt);
    // Like open(), but with its own prefill, its own memory, and logits after the prompt. The
    // session is in no batch.
    Opened open_alone(size_t run, uint64_t seed, uint64_t document,
                      std::span<const int32_t> prompt) {
        return open_by_itself(run, seed, document, prompt, false);
    }
    // The number of recent prompts whose shared prefills are kept; 1 at first. At most the
    // experiment's `batch`.
    void keep_prompts(size_t count);
    // The batch in which the sessions that open() returns for a run take steps together. NULL if
    // the experiment has no `batch`.
    SessionBatch *batch(size_t run);
    // Does the run share its prefill with another run?
    bool shares(size_t run);
    // The number of prefills for one prompt, over all runs and their seeds.
    uint64_t prefills();
    // Throws Error(input) with the arm's name if a run cannot take in `tokens` tokens. They are a
    // prompt, possibly with its answer.
    void check_prompt(size_t run, int64_t tokens, bool with_answer);
    // Begins the eviction logs. Call it after all checks, when the run begins. Without `resume` it
    // deletes existing logs.
    void begin_logs();

    Pipeline &pipeline(size_t run) { return *base(run).pipeline; }
    const Tokenizer &tokenizer() { return *pipeline(0).tokenizer(); } // of the reference
    // Bytes of a full cache with `tokens` tokens: of the reference, or of a run with its own
    // dtypes.
    uint64_t full_bytes(int64_t tokens) { return full_bytes(0, tokens); }
    uint64_t full_bytes(size_t run, int64_t tokens);

    static constexpr uint32_t logit_rows = 64; // the most rows of logits of a step

  private:
    // A session that has read a prompt for several runs.
    struct Parent {
        std::unique_ptr<Session> session; // after the prompt
        std::vector<int32_t> prompt;
        std::vector<Note> notes;
        int32_t next = 0;
    };
    // Runs that share a prefill.
    struct Group {
        PolicySetup *plan = nullptr; // evicts nothing, and collects the data that the arms need
        std::vector<PolicySetup *> members;
        Collected gathered;                  // the data that all members collect
        std::unique_ptr<SessionBatch> batch; // of parents and their copies; NULL until it is needed
        std::deque<Parent> parents;          // the oldest is first
    };
    struct Base {
        std::unique_ptr<Pipeline> pipeline; // its policy keeps all
        // Of the runs that share no prefill; NULL until it is needed.
        std::unique_ptr<SessionBatch> batch;
        std::vector<Group> groups;
    };

    Base &base(size_t run);
    std::unique_ptr<Base> make_base(const pipeline::PipelineConfig &config);
    void group_runs(size_t number, Base &base);
    PolicySetup &plan(size_t run, uint64_t seed);
    void draw_anew(Session &session, size_t run, uint64_t seed, uint64_t document) const;
    std::filesystem::path log_path(const Run &run, uint64_t seed);
    std::filesystem::path log_part(const std::string &stem, int number) const;
    void remove_log(const std::string &stem) const;
    bool may_share(size_t run) const;
    Parent &parent(Group &group, Pipeline &pipeline, std::span<const int32_t> prompt);
    Opened open_by_itself(size_t run, uint64_t seed, uint64_t document,
                          std::span<const int32_t> prompt, bool in_batch);
    [[noreturn]] void blame(size_t run, size_t tokens, const Error &error,
                            bool with_answer = false) const;

    const Experiment &experiment_;
    Options options_;
    std::vector<size_t> base_of_; // [runs]
    // [runs] The index of the run's group in its base; `alone` if it shares no prefill.
    std::vector<size_t> group_of_;
    static constexpr size_t alone = SIZE_MAX;
    std::vector<std::filesystem::path> further_logs_; // second and later parts
    bool has_begun_ = false;
    size_t kept_prompts_ = 1;
    // Temporary logs until begin_logs(), with the stems of their final names.
    std::vector<std::pair<std::filesystem::path, std::string>> new_logs_;
    std::vector<std::unique_ptr<Base>> bases_;
    std::map<std::pair<size_t, uint64_t>, PolicySetup *> plans_; // by run and seed
};

// Bytes that a sequence holds: its keys and values, the copies of quantized keys that were rotated
// again, and the data that the core collects and keeps for the policy. All numbers of bytes in an
// experiment come from this function.
inline uint64_t held_bytes_of(const Session &session) { return session.held_bytes(); }

} // namespace keel::ab
