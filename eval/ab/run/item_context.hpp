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

// Seconds of a monotonic clock.
double steady_seconds();

// Seconds of a run: `reading` for reading prompts, `all` in total.
struct Pace {
    double reading = 0, all = 0;
};

// Shared by all items of a run: the arms, the results and the times. It opens sessions after their
// prompt, and takes decode steps of several sessions.
struct ItemContext {
    const Experiment &experiment;
    const RunOptions &options;
    Arms &arms;
    Results &results;
    std::vector<Pace> paces = std::vector<Pace>(experiment.runs.size()); // [runs]

    // A session that has read the member's prompt. The time counts as reading.
    Arms::Opened open(size_t run, uint64_t seed, const Member &member);
    // One decode step of each session. `items`: the names of their items, for messages. Throws the
    // error of the first session that fails.
    void take_in(const PlannedTask &task, const Place &place, size_t run,
                 std::span<Session *const> sessions, std::span<const int32_t> ids,
                 std::span<const std::string *const> items, SessionBatch::Read read);
    // Are maps and timelines recorded for this document?
    bool draws(const Place &place, size_t run, size_t document) const;
};

Error error_at(const Place &place, const std::string &item, ErrorKind kind,
               const std::string &what);

// After the prompt, an error that memory is full gets the names of the arm and the item.
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
