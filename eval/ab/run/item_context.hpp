#pragma once

#include "base/error.hpp"
#include "eval/ab/run/measured.hpp"
#include "eval/ab/run/results.hpp"
#include "run/session_batch.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace keel::ab {

// Returns the seconds of a monotonic clock.
double steady_seconds();

// Seconds of a run: `reading` is the time for reading prompts, `all` the total time.
struct Pace {
    double reading = 0, all = 0;
};

// Data that all items of a run share: the arms, the results and the times. The struct also opens
// sessions that have read a prompt, and takes decode steps in several sessions.
struct ItemContext {
    const Experiment &experiment;
    const RunOptions &options;
    Arms &arms;
    Results &results;
    std::vector<Pace> paces = std::vector<Pace>(experiment.runs.size()); // [runs]

    // Opens a session that has read the member's prompt. Counts the time as reading time.
    Arms::Opened open(size_t run, uint64_t seed, const Member &member);
    // Takes one decode step in each session. `items` has the name of each session's item, for
    // messages. Throws the error of the first session that fails.
    void take_in(const PlannedTask &task, const Place &place, size_t run,
                 std::span<Session *const> sessions, std::span<const int32_t> ids,
                 std::span<const std::string *const> items, SessionBatch::Read read);
    // True if the run records keep maps and timelines for this document.
    bool draws(const Place &place, size_t run, size_t document) const;
    // Writes the tokens of a prompt, if the place is the reference's.
    void write_prompt(const Place &place, const std::string &item,
                      std::span<const int32_t> ids) const;
};

// Makes an error whose message begins with the task, the arm and the item.
Error error_at(const Place &place, const std::string &item, ErrorKind kind,
               const std::string &what);

// Runs `action`. If `action` throws Error(resource) (memory is full), adds the names of the arm and
// the item to the message.
template <typename Action>
auto at_arm(const Place &place, const std::string &item, Action &&action) {
    try {
        return action();
    } catch (const Error &e) {
        if (e.kind() != ErrorKind::resource) throw;
        throw error_at(place, item, e.kind(), e.what());
    }
}

} // namespace keel::ab
