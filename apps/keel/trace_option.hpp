#pragma once

#include "program.hpp"

#include "device/trace.hpp"
#include "run/pipeline.hpp"

#include <memory>
#include <optional>
#include <string>

namespace keel::cli {

// The option --trace FILE of commands that run a pipeline. This object must outlive the pipelines
// that it records.
class TraceOption {
  public:
    void add_to(Command &command);
    bool is_given() const { return !state_->file.empty(); }
    // Creates the trace file if the user wants a trace. Call this before weights are loaded, so
    // that an invalid name is reported early.
    void open() const;
    // Call this when a second or later pipeline begins to load. The trace then shows the loading as
    // a span.
    void loading() const;
    // Records all further work of the pipeline.
    void watch(Pipeline &pipeline) const;

  private:
    // Shared, because commands hold their options by const reference while they run.
    struct State {
        std::string file;
        std::optional<Trace> trace;
        double opened = 0;
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

} // namespace keel::cli
