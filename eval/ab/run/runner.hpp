#pragma once

#include "eval/ab/plan/experiment.hpp"
#include "eval/ab/run/arms.hpp"
#include "eval/ab/run/shard.hpp"
#include "eval/ab/tasks/tasks.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace keel::ab {

struct RunOptions {
    Shard shard;
    int64_t items = 0;         // the most documents of each task; 0: the file decides
    bool resume = true;        // true: continue existing results; false: start again
    bool share_prefill = true; // among arms that can share it
    bool cost_only = false;    // only cost() is called, and nothing is written
    std::shared_ptr<HostServices> host;
    Progress loading; // progress of loading weights; may throw to stop
    // Progress in documents times arms. `found` of the `done` ones are from an earlier process, so
    // they do not show the speed of this one. May throw to stop.
    std::function<void(uint64_t done, uint64_t total, uint64_t found)> steps;
    std::function<void(const std::string &)> say; // gets a line of text when a cell is finished
    // The caller fills in version, commit, date and machine. The runner fills in the rest.
    Header header;
};

// The work in an experiment, before it starts.
struct Cost {
    struct Row {
        std::string task, protocol;
        uint64_t documents = 0, questions = 0, runs = 0; // runs: arms x budgets x seeds
        // Of all runs. An answer counts with its largest length.
        uint64_t prefill_tokens = 0, decode_tokens = 0;
        uint64_t decode_steps = 0; // decode_tokens in steps of several documents
        double seconds = 0;        // of all runs, with the work of their policies
    };
    std::vector<Row> rows;
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    uint32_t batch = 1; // documents that take decode steps together
    // The time of this process's shard. It is measured: every run took one or two documents of each
    // task.
    double seconds = 0;
    // For each run with all its seeds. The reference's time includes its second run, which has no
    // entry.
    std::vector<double> run_seconds;
    double measured_seconds = 0; // time that the measurement took
    // For some tasks only the first documents were counted, and the counts were scaled.
    bool counted_by_sample = false;
};

// Runs an experiment's items through all arms, and writes each number at once. The numbers of an
// item do not depend on earlier items, on the shard, or on interruptions. If documents take steps
// together, the numbers depend on the documents in the batch. So the documents' numbers decide the
// batches, shards take whole batches, and an interrupted batch is computed again as a whole.
class Runner {
  public:
    // Loads the reference and creates the output folder.
    Runner(const Experiment &experiment, const RunOptions &options);
    ~Runner();

    // Measures on some documents, so it takes as long as they do. Writes nothing. Call it on a
    // runner with RunOptions::cost_only.
    Cost cost();
    // Throws the errors of callbacks, and Error(runtime) "cancelled" after
    // HostServices::request_cancel. Finished results stay on disk.
    void run();
    std::filesystem::path results() const; // the file that this process writes

  private:
    struct PlannedTask;
    struct Member;
    struct Asked;
    struct Scored;
    struct Measured;
    struct Sample;
    // Seconds of a run since the last reset: `reading` for reading prompts, `all` in total.
    struct Pace {
        double reading = 0, all = 0;
    };
    void plan();
    void plan_batch();
    void check_lengths();
    void make_folder() const;
    void lock_folder();
    void fill_header();
    void open_results();
    uint64_t check_items() const;
    Cost::Row count(const PlannedTask &task, Protocol protocol, size_t sampled) const;
    void warm_up();
    std::vector<Sample> samples(const PlannedTask &task, Protocol protocol, size_t documents) const;
    void measure(const PlannedTask &task, Protocol protocol, Sample &sample);
    std::vector<double> estimate(const PlannedTask &task, Protocol protocol, size_t documents);
    std::vector<double> estimate_speed(const PlannedTask &task);
    Arms::Opened open(size_t run, uint64_t seed, const Member &member);
    std::set<std::string> finished_items(uint64_t items_before);
    std::set<std::string> cut_short(uint64_t items_before) const;
    void run_task(const PlannedTask &task);
    void run_documents(const PlannedTask &task, Protocol protocol, size_t first, size_t count);
    void run_members(const PlannedTask &task, const std::string &protocol,
                     std::span<const Member> members);
    void ask_questions(const PlannedTask &task, const Place &place, size_t run,
                       std::span<const Member> members);
    std::unique_ptr<Asked> ask(const Place &place, size_t run, const Member &member,
                               const Question &question,
                               const std::shared_ptr<Arms::Opened> &opened, bool copy);
    bool look_at_answer(const PlannedTask &task, Asked &asked) const;
    void write_answer(const PlannedTask &task, const Place &place, const Asked &asked);
    void score_continuations(const PlannedTask &task, const Place &place, size_t run,
                             std::span<const Member> members);
    void check_logits(const PlannedTask &task) const;
    void make_room_for_logits(const Place &place, size_t run, std::span<const Member> members);
    void take_rows(Scored &scored, size_t tokens, bool is_reference);
    void write_scores(const Place &place, Scored &scored);
    void take_in(const PlannedTask &task, const Place &place, size_t run,
                 std::span<Session *const> sessions, std::span<const int32_t> ids,
                 std::span<const std::string *const> items, SessionBatch::Read read);
    bool wants_logits(const Place &place, std::span<const Member> members) const;
    bool draws(const Place &place, size_t run, size_t document) const;
    void run_speed(const PlannedTask &task);
    bool is_finished(const Place &place, const std::string &item) const;
    bool reruns(const Place &place, size_t document) const;
    void note_value(const Item &item);
    template <typename Record> void write(const Record &record) {
        if (writer_) writer_->write(record);
    }
    void write_item(const Item &item);
    void write_once(const Warning &warning);
    void warn_of_short_answers(const PlannedTask &task);
    void step(uint64_t runs);

    const Experiment &experiment_;
    RunOptions options_;
    // Held while results are written. It is destroyed after arms_, because arms delete files.
    std::unique_ptr<FileLock> lock_;
    std::unique_ptr<Arms> arms_;
    std::vector<PlannedTask> tasks_;
    std::unique_ptr<Writer> writer_; // NULL if only the cost is measured
    std::vector<Pace> paces_;        // [runs]
    std::set<std::string> finished_;
    std::set<std::string> warnings_;                 // lines that are in the results already
    std::map<std::string, double> reference_values_; // of the reference's items
    // Tasks (with protocol) in which the reference's second run gave other numbers.
    std::set<std::string> differing_;
    // Of the current members, [scored, vocab] each.
    std::vector<std::vector<float>> reference_logits_;
    uint64_t done_ = 0, total_ = 0; // documents times runs
    double found_ = 0;              // the part of done_ that was on disk when this run began
    uint64_t written_ = 0;          // items
    uint64_t per_document_ = 0;     // runs, each counted once for each seed
    // The current documents: how many were done before them, and which part of them is running.
    struct {
        uint64_t before = 0, part = 0, parts = 1, documents = 1;
    } share_;
};

} // namespace keel::ab
