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

namespace keel {

struct AbRunOptions {
    AbShard shard;
    int64_t items = 0;         // documents of each task at most; 0: as the file says
    bool resume = true;        // go on behind what is there; false: begin anew
    bool share_prefill = true; // among arms that can
    bool cost_only = false;    // cost() alone is wanted: nothing is written
    std::shared_ptr<HostServices> host;
    Progress loading; // of weights; may throw to stop
    // Documents times arms; `found` of those that are done were there before, and say nothing about
    // the pace. May throw to stop.
    std::function<void(uint64_t done, uint64_t total, uint64_t found)> steps;
    std::function<void(const std::string &)> say; // a line when a cell is finished
    AbHeader
        header; // version, commit, date, machine: what the program knows. The rest is filled in
};

// How much an experiment is to do, before anything was done.
struct AbCost {
    struct Row {
        std::string task, protocol;
        uint64_t documents = 0, questions = 0, runs = 0; // runs: arms x budgets x seeds
        uint64_t prefill_tokens = 0,
                 decode_tokens = 0; // of all runs; answers counted at their longest
        uint64_t decode_steps = 0;  // the same, where documents take them together
        double seconds = 0;         // of all runs, their policies' own work included
    };
    std::vector<Row> rows;
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    uint32_t batch = 1; // documents at once
    // Of this process's share. Measured just now: every run took one or two documents of each task.
    double seconds = 0;
    // [runs, less the reference's second one, which the reference's part has] with all seeds
    std::vector<double> run_seconds;
    double measured_seconds = 0; // that measuring took
    bool counted_by_sample =
        false; // of some tasks the first documents were counted, and taken for all
};

// Runs an experiment's items over all arms and writes each number at once. The numbers of an item
// do not depend on earlier items, on the shard, or on interruptions. If documents take steps
// together, the numbers depend on the documents in the batch. So batches are fixed by the
// documents' numbers, shards take whole batches, and an interrupted batch is computed again as a
// whole.
class AbRunner {
  public:
    // Loads the reference, makes the output folder.
    AbRunner(const AbExperiment &experiment, const AbRunOptions &options);
    ~AbRunner();

    // Measures on some documents, so it takes as long as these take; nothing is written. For a
    // runner with AbRunOptions::cost_only.
    AbCost cost();
    // Throws what callbacks throw, Error(runtime) "cancelled" after HostServices::request_cancel;
    // what was finished stays on disk.
    void run();
    std::filesystem::path results() const; // the file that this process writes

  private:
    struct Task;
    struct Member;
    struct Asked;
    struct Scored;
    struct Measured;
    struct Sample;
    // Seconds of a run since they were last set to 0: in which it read prompts, and all.
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
    AbCost::Row count(const Task &task, AbProtocol protocol, size_t sampled) const;
    void warm_up();
    std::vector<Sample> samples(const Task &task, AbProtocol protocol, size_t documents) const;
    void measure(const Task &task, AbProtocol protocol, Sample &sample);
    std::vector<double> estimate(const Task &task, AbProtocol protocol, size_t documents);
    std::vector<double> estimate_speed(const Task &task);
    AbArms::Opened open(size_t run, uint64_t seed, const Member &member);
    std::set<std::string> finished_items(uint64_t items_before);
    std::set<std::string> cut_short(uint64_t items_before) const;
    void run_task(const Task &task);
    void run_documents(const Task &task, AbProtocol protocol, size_t first, size_t count);
    void run_members(const Task &task, const std::string &protocol,
                     std::span<const Member> members);
    void ask_questions(const Task &task, const AbPlace &place, size_t run,
                       std::span<const Member> members);
    std::unique_ptr<Asked> ask(const AbPlace &place, size_t run, const Member &member,
                               const AbQuestion &question,
                               const std::shared_ptr<AbArms::Opened> &opened, bool copy);
    bool look_at_answer(const Task &task, Asked &asked) const;
    void write_answer(const Task &task, const AbPlace &place, const Asked &asked);
    void score_continuations(const Task &task, const AbPlace &place, size_t run,
                             std::span<const Member> members);
    void check_logits(const Task &task) const;
    void make_room_for_logits(const AbPlace &place, size_t run, std::span<const Member> members);
    void take_rows(Scored &scored, size_t tokens, bool is_reference);
    void write_scores(const AbPlace &place, Scored &scored);
    void take_in(const Task &task, const AbPlace &place, size_t run,
                 std::span<Session *const> sessions, std::span<const int32_t> ids,
                 std::span<const std::string *const> items, SessionBatch::Read read);
    bool wants_logits(const AbPlace &place, std::span<const Member> members) const;
    bool draws(const AbPlace &place, size_t run, size_t document) const;
    void run_speed(const Task &task);
    bool is_finished(const AbPlace &place, const std::string &item) const;
    bool reruns(const AbPlace &place, size_t document) const;
    void note_value(const AbItem &item);
    template <typename Record> void write(const Record &record) {
        if (writer_) writer_->write(record);
    }
    void write_item(const AbItem &item);
    void write_once(const AbWarning &warning);
    void warn_of_short_answers(const Task &task);
    void step(uint64_t runs);

    const AbExperiment &experiment_;
    AbRunOptions options_;
    std::unique_ptr<AbFileLock> lock_; // while it writes; arms clear up after themselves under it
    std::unique_ptr<AbArms> arms_;
    std::vector<Task> tasks_;
    std::unique_ptr<AbWriter> writer_; // NULL: the cost alone is measured
    std::vector<Pace> paces_;          // [runs]
    std::set<std::string> finished_;
    std::set<std::string> warnings_;                 // lines that stand in the results
    std::map<std::string, double> reference_values_; // of its items
    std::set<std::string>
        differing_; // tasks, with their protocol, in which the reference differs from itself
    std::vector<std::vector<float>>
        reference_logits_;          // of the members at hand, [scored, vocab] each
    uint64_t done_ = 0, total_ = 0; // documents times runs
    double found_ = 0;              // of those done: on disk when this run began
    uint64_t written_ = 0;          // items
    uint64_t per_document_ = 0;     // runs, their seeds counted
    struct {
        uint64_t before = 0, part = 0, parts = 1, documents = 1;
    } share_; // of the documents at hand: what was done before them, which part of them this is
};

} // namespace keel
