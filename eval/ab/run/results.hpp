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

// The reference's second run takes at least the first documents of each task, this many.
inline constexpr size_t first_reruns = 8;

// The file of results that this process writes, and the items that it already has. Before open()
// nothing is finished, and records are dropped: that is how a cost is measured.
class Results {
  public:
    // `experiment` and `options` must outlive this object.
    Results(const Experiment &experiment, const RunOptions &options)
        : experiment_(experiment), options_(options) {}

    std::filesystem::path file() const;
    // Creates the folder and locks the results. Two processes that write the same items would not
    // see each other's results, and would delete each other's logs. Throws Error(usage) if another
    // process has the lock, or if the folder is a user's own.
    void lock();
    // Throws the errors that open() would throw because of existing results.
    void check(std::span<const PlannedTask> tasks, const Header &header) const;
    // Begins or continues the file. Items that are not complete are removed from it.
    void open(std::span<const PlannedTask> tasks, const Header &header);
    bool is_open() const { return writer_ != nullptr; }

    bool is_finished(const Place &place, const std::string &item) const;
    // Does the reference's second run take this document? The first documents show whether the
    // reference repeats itself exactly. If it does not, it runs again on all documents, to measure
    // the differences.
    bool reruns(const Place &place, size_t document) const;

    template <typename Record> void write(const Record &record) {
        if (writer_) writer_->write(record);
    }
    void write_item(const Item &item);
    void write_once(const Warning &warning);      // not if the results have this warning already
    uint64_t written() const { return written_; } // items

  private:
    void make_folder() const;
    uint64_t check_items(std::span<const PlannedTask> tasks) const;
    std::set<std::string> cut_short(std::span<const PlannedTask> tasks,
                                    uint64_t items_before) const;
    std::set<std::string> finished_items(std::span<const PlannedTask> tasks, uint64_t items_before);
    void note_value(const Item &item);

    const Experiment &experiment_;
    const RunOptions &options_;
    std::unique_ptr<FileLock> lock_; // held while results are written
    std::unique_ptr<Writer> writer_; // NULL before open()
    std::set<std::string> finished_;
    std::set<std::string> warnings_;                 // lines that are in the results already
    std::map<std::string, double> reference_values_; // of the reference's items
    // Tasks (with protocol) in which the reference's second run gave other numbers.
    std::set<std::string> differing_;
    uint64_t written_ = 0;
};

} // namespace keel::ab
