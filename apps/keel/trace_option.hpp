#pragma once

#include "program.hpp"

#include "device/trace.hpp"
#include "pipeline/pipeline.hpp"

#include <memory>
#include <string>

namespace keel::cli {

// --trace FILE of commands that run a pipeline. Lives longer than the pipelines it records.
class TraceOption {
  public:
    void add_to(CLI::App &command);
    // Makes the file, where one was asked for: before weights are loaded, so that a bad name costs no time.
    void open();
    // What the pipeline does from now on is recorded.
    void watch(Pipeline &pipeline);

  private:
    std::string file_;
    std::unique_ptr<Trace> trace_;
    double opened_ = 0;
};

} // namespace keel::cli
