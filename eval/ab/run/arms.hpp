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

// Holds the pipelines of an experiment's runs, and opens sessions that have read a prompt. Arms
// that differ only in their policy share a pipeline. If these arms evict nothing while the prompt
// is read, these arms also share the prefill: the session is forked for each arm. If the experiment
// has a `batch`, sessions of a run can take decode steps together.
class Arms {
  public:
    struct Options {
        std::shared_ptr<HostServices> host;
        Progress progress;                // reports the progress of loading weights
        std::filesystem::path log_folder; // folder for the eviction logs; empty: no logs
        // Suffix of the log names, for example "-shard-1-of-2". With the suffix, no two processes
        // write to one log.
        std::string log_suffix;
        // If true, existing logs stay and each log gets a new part. If false, existing logs are
        // deleted.
        bool resume = true;
        // Allows arms to share a prefill.
        bool share_prefill = true;
    };
    // The state of a session's cache at one time while the prompt is read.
    struct Note {
        // evicted_slots: number of slots evicted since the previous note
        uint64_t tokens = 0, kv_bytes = 0, evicted_slots = 0;
    };
    // A session that has read its prompt. The policy has got the event "end of the prompt" and has
    // evicted.
    struct Opened {
        std::unique_ptr<Session> session;
        // Bytes that the core holds for the policy after the prompt. Questions are asked in copies
        // of the session. A copy does not have the arrays that evictions between chunks leave in
        // the original session.
        uint64_t policy_bytes = 0;
        // The peak of the bytes of cache and policy data up to now. A copy of the session counts
        // the peak of the copy.
        uint64_t peak_bytes = 0;
        // The most likely token after the prompt. This token is computed before the eviction at the
        // end of the prompt.
        int32_t next = 0;
        std::vector<Note> notes;
    };

    // `experiment` must outlive this object.
    Arms(const Experiment &experiment, Options options);
    ~Arms();
    Arms(const Arms &) = delete;
    Arms &operator=(const Arms &) = delete;

    // Opens a session for a run with one of the run's seeds. `document` is the number of the
    // document. A policy that draws slots at random draws different slots in different documents.
    // Throws Error(resource) with the arm's name if the prompt does not fit.
    Opened open(size_t run, uint64_t seed, uint64_t document, std::span<const int32_t> prompt);
    // Like open(), but the session has its own prefill, its own memory, and logits after the
    // prompt. The session belongs to no batch.
    Opened open_alone(size_t run, uint64_t seed, uint64_t document,
                      std::span<const int32_t> prompt) {
        return open_by_itself(run, seed, document, prompt, false);
    }
    // Sets how many recent prompts keep their shared prefills. The number is 1 before the first
    // call. The number must not exceed the experiment's `batch`.
    void keep_prompts(size_t count);
    // The batch for a run: the sessions that open() returns for this run take steps together in
    // this batch. NULL if the experiment has no `batch`.
    SessionBatch *batch(size_t run);
    // True if the run shares its prefill with another run.
    bool shares(size_t run);
    // The number of prefills that one prompt needs for all runs and their seeds together.
    uint64_t prefills();
    // Throws Error(input) with the arm's name if the cache of a run cannot hold `tokens` tokens. If
    // `with_answer` is true, the message says that the tokens include an answer.
    void check_prompt(size_t run, int64_t tokens, bool with_answer);
    // Begins the eviction logs. Call the function after all checks, when the run begins. If
    // Options::resume is false, the function deletes existing logs.
    void begin_logs();

    Pipeline &pipeline(size_t run) { return *base(run).pipeline; }
    // The tokenizer of the reference.
    const Tokenizer &tokenizer() { return *pipeline(0).tokenizer(); }
    // Bytes of a cache that keeps all `tokens` tokens. The first function is for the cache of the
    // reference. The second function is for the cache of a run, whose cache dtypes can differ.
    uint64_t full_bytes(int64_t tokens) { return full_bytes(0, tokens); }
    uint64_t full_bytes(size_t run, int64_t tokens);

    static constexpr uint32_t logit_rows = 64; // limit for the rows of logits of one step

  private:
    // A session that has read a prompt. Several runs fork this session.
    struct Parent {
        std::unique_ptr<Session> session; // the session after the prompt
        std::vector<int32_t> prompt;
        std::vector<Note> notes;
        int32_t next = 0;
    };
    // Runs that share prefills.
    struct Group {
        // This policy setup evicts nothing, and collects the data that all policies of the group
        // need.
        PolicySetup *plan = nullptr;
        std::vector<PolicySetup *> members;
        Collected gathered; // the data that the policies of all members collect
        // The batch of the parents and of the parents' copies. NULL until the first session needs
        // the batch.
        std::unique_ptr<SessionBatch> batch;
        std::deque<Parent> parents; // the oldest is first
    };
    // A pipeline and the runs that use it.
    struct Base {
        std::unique_ptr<Pipeline> pipeline; // the pipeline's policy evicts nothing
        // The batch of the runs that share no prefill. NULL until the first session needs the
        // batch.
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
    std::vector<size_t> base_of_; // [runs] index of the run's base in bases_
    // [runs] Index of the run's group in its base. `alone` if the run shares no prefill.
    std::vector<size_t> group_of_;
    static constexpr size_t alone = SIZE_MAX;
    std::vector<std::filesystem::path> further_logs_; // logs that are a second or later part
    bool has_begun_ = false;
    size_t kept_prompts_ = 1;
    // Temporary logs that exist until begin_logs(). Each entry has the path of the log, and the
    // stem of the log's final name.
    std::vector<std::pair<std::filesystem::path, std::string>> new_logs_;
    std::vector<std::unique_ptr<Base>> bases_;
    std::map<std::pair<size_t, uint64_t>, PolicySetup *> plans_; // key: run and seed
};

// Bytes that a sequence holds: its keys and values, copies of quantized keys that were rotated
// again, and the data that the core collects for the policy. All numbers of bytes in an experiment
// come from this function.
inline uint64_t held_bytes_of(const Session &session) { return session.held_bytes(); }

} // namespace keel::ab
