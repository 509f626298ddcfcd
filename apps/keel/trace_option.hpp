#pragma once

#include "program.hpp"

#include "device/trace.hpp"
#include "run/pipeline.hpp"

#include <memory>
#include <optional>
#include <string>

namespace keel::cli {

// --trace FILE of commands that run a pipeline. Lives longer than the pipelines it records.
class TraceOption {
  public:
    void add_to(Command &command);
    bool is_given() const { return !state_->file.empty(); }
    // Makes the file, where one was asked for: before weights are loaded, so that a bad name costs
    // no time.
    void open() const;
    // The next pipeline's load begins now, where it is not the first: its span in the trace.
    void loading() const;
    // What the pipeline does from now on is recorded.
    void watch(Pipeline &pipeline) const;

  private:
    struct State { // commands hold their options by const reference while they run
        std::string file;
        std::optional<Trace> trace;
        double opened = 0;
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

} // namespace keel::cli
