#pragma once

#include "eval/ab/run/planned_task.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

namespace keel::ab {

// The reference's second run takes at least this many documents of each task, from the first on.
inline constexpr size_t first_reruns = 8;

// Manages the file of results that this process writes, and knows the items that are finished.
// Before open(), no item is finished, and all records are dropped. A measurement of the cost never
// calls open(), so the measurement works in this state.
class Results {
  public:
    // `experiment` and `options` must outlive this object.
    Results(const Experiment &experiment, const RunOptions &options)
        : experiment_(experiment), options_(options) {}

    std::filesystem::path file() const;
    // Creates the folder and locks the results. Without the lock, two processes could write the
    // same items. Each process would compute items that the second process already has, and each
    // process would delete the logs of the second process. Throws Error(usage) if another process
    // has the lock, or if the folder has files but no results.
    void lock();
    // Throws the errors that open() would throw for the existing results. Changes nothing.
    void check(std::span<const PlannedTask> tasks, const Header &header) const;
    // Begins or continues the file of results. Removes items that are not complete.
    void open(std::span<const PlannedTask> tasks, const Header &header);
    bool is_open() const { return writer_ != nullptr; }

    bool is_finished(const Place &place, const std::string &item) const;
    // True if the reference's second run takes this document. The first documents show whether the
    // reference repeats its numbers exactly. If the numbers are not repeated exactly, the second
    // run takes all documents, to measure the differences.
    bool reruns(const Place &place, size_t document) const;

    template <typename Record> void write(const Record &record) {
        if (writer_) writer_->write(record);
    }
    void write_item(const Item &item);
    // Writes the warning, unless the results already have it.
    void write_once(const Warning &warning);
    // The number of items that this process has written.
    uint64_t written() const { return written_; }

  private:
    void make_folder() const;
    uint64_t check_items(std::span<const PlannedTask> tasks) const;
    std::set<std::string> cut_short(std::span<const PlannedTask> tasks,
                                    uint64_t items_before) const;
    std::set<std::string> finished_items(std::span<const PlannedTask> tasks, uint64_t items_before);
    void note_value(const Item &item);

    const Experiment &experiment_;
    const RunOptions &options_;
    std::unique_ptr<FileLock> lock_; // held until this object is destroyed
    std::unique_ptr<Writer> writer_; // NULL before open()
    std::set<std::string> finished_;
    std::set<std::string> warnings_;                 // the warnings in the results, as lines
    std::map<std::string, double> reference_values_; // the values of the reference's items
    // Tasks (with protocol) for which the reference's second run gave different numbers than the
    // first run.
    std::set<std::string> differing_;
    uint64_t written_ = 0;
};

} // namespace keel::ab
