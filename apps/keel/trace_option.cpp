#include "trace_option.hpp"

namespace keel::cli {

void TraceOption::add_to(Command &command) {
    command.option(
        "--trace FILE", state_->file,
        "Record ops, submits, waits, evictions and the cache's size for ui.perfetto.dev");
}

void TraceOption::open() const {
    if (!is_given()) return;
    state_->trace.emplace(state_->file);
    state_->opened = state_->trace->now();
}

void TraceOption::loading() const {
    if (state_->trace) state_->opened = state_->trace->now();
}

void TraceOption::watch(Pipeline &pipeline) const {
    if (!state_->trace) return;
    Trace &trace = *state_->trace;
    trace.span("load", "step", state_->opened, trace.now(),
               {{"model", Trace::text(pipeline.source().path())}});
    pipeline.engines().set_trace(&trace);
}

} // namespace keel::cli
