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

// Runs an experiment's items through all arms, and writes each number at once. The numbers of an
// item do not depend on earlier items, on the shard, or on interruptions. If documents take steps
// together, the numbers depend on the documents in the batch. So the documents' numbers decide the
// batches, shards take whole batches, and an interrupted batch is computed again as a whole.
class Runner {
  public:
    // Loads the reference and creates the output folder. `experiment` must outlive this object.
    Runner(const Experiment &experiment, const RunOptions &options);
    ~Runner();
    Runner(const Runner &) = delete;
    Runner &operator=(const Runner &) = delete;

    // Measures on some documents, so it takes as long as they do. Writes nothing. Call it on a
    // runner with RunOptions::cost_only.
    Cost cost();
    // Throws the errors of callbacks, and Error(runtime) "cancelled" after
    // HostServices::request_cancel. Finished results stay on disk.
    void run();
    std::filesystem::path results() const { return results_.file(); } // this process writes it

  private:
    bool takes(const PlannedTask &task, size_t document) const;
    void expect_work(class RunProgress &progress) const;
    void run_task(const PlannedTask &task, class DocumentRunner &documents);

    const Experiment &experiment_;
    const RunOptions options_;
    // It holds the lock of the folder. It is destroyed after arms_, because arms delete files.
    Results results_;
    std::unique_ptr<Arms> arms_;
    std::vector<PlannedTask> tasks_;
};

} // namespace keel::ab
