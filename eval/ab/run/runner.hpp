#pragma once

#include "eval/ab/run/arms.hpp"
#include "eval/ab/run/cost.hpp"
#include "eval/ab/run/item_context.hpp"
#include "eval/ab/run/results.hpp"
#include "eval/ab/run/run_options.hpp"

#include <filesystem>
#include <memory>
#include <vector>

namespace keel::ab {

// Runs an experiment's items through all arms, and writes each number immediately. Without `batch`,
// the numbers of an item depend only on this item, and not on the shard or on interruptions. With
// `batch`, documents take steps together, and the numbers depend on the documents in the batch. So
// each document has a fixed batch, a shard takes whole batches, and an interrupted batch is
// computed again as a whole.
class Runner {
  public:
    // Loads the reference and creates the output folder. `experiment` must outlive this object.
    Runner(const Experiment &experiment, const RunOptions &options);
    ~Runner();
    Runner(const Runner &) = delete;
    Runner &operator=(const Runner &) = delete;

    // Estimates the time of the experiment by a measurement on some documents. Writes nothing. Call
    // this function only on a runner with RunOptions::cost_only.
    Cost cost();
    // Runs the experiment. Throws the errors of callbacks, and Error(runtime) "cancelled" after
    // HostServices::request_cancel. Finished results stay on disk after an error.
    void run();
    // The file of results that this process writes.
    std::filesystem::path results() const { return results_.file(); }

  private:
    bool takes(const PlannedTask &task, size_t document) const;
    void expect_work(class RunProgress &progress) const;
    void run_task(const PlannedTask &task, class DocumentRunner &documents);

    const Experiment &experiment_;
    const RunOptions options_;
    // Holds the lock of the results. results_ is destroyed after arms_, because arms delete log
    // files.
    Results results_;
    std::unique_ptr<Arms> arms_;
    std::vector<PlannedTask> tasks_;
};

} // namespace keel::ab
