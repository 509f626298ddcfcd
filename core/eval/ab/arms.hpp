#pragma once

#include "eval/ab/experiment.hpp"
#include "pipeline/session.hpp"

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace keel {

// The pipelines behind an experiment's runs, and sessions that have read a prompt.
class AbArms {
  public:
    // What a run's session passed while it read a prompt.
    struct Note {
        uint64_t tokens = 0, kv_bytes = 0, evicted_slots = 0; // evicted_slots: since the note before
    };
    // A session behind a prompt: read, told that it has ended, evicted from.
    struct Opened {
        std::unique_ptr<Session> session;
        uint64_t peak_bytes = 0; // of its own cache, so far
        double seconds = 0;      // until it stood there, a shared prefill not counted
        std::vector<Note> notes;
    };

    AbArms(const AbExperiment &experiment, std::shared_ptr<HostServices> host, Progress progress,
           const std::filesystem::path &log_folder);
    ~AbArms();
    AbArms(const AbArms &) = delete;
    AbArms &operator=(const AbArms &) = delete;

    // Under a run and one of its seeds. Throws Error(resource) for a prompt that does not fit, naming the arm.
    Opened open(size_t run, uint64_t seed, std::span<const int32_t> prompt);

    Pipeline &pipeline(size_t run, uint64_t seed);
    // Of the reference.
    const Tokenizer &tokenizer();
    // Bytes of a full cache of the reference that holds so many tokens.
    uint64_t full_bytes(int64_t tokens);

    static constexpr uint32_t logit_rows = 64; // that a step hands out at most

  private:
    const AbExperiment &experiment_;
    std::shared_ptr<HostServices> host_;
    Progress progress_;
    std::filesystem::path log_folder_;
    std::map<std::pair<size_t, uint64_t>, std::unique_ptr<Pipeline>> pipelines_;
};

} // namespace keel
