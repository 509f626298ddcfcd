#include "trace_option.hpp"

namespace keel::cli {

void TraceOption::add_to(CLI::App &command) {
    command
        .add_option("--trace", file_,
                    "Record ops, submits, waits, evictions and the cache's size for ui.perfetto.dev")
        ->type_name("FILE");
}

void TraceOption::open() {
    if (file_.empty()) return;
    trace_ = std::make_unique<Trace>(file_);
    opened_ = trace_->now();
}

void TraceOption::watch(Pipeline &pipeline) {
    if (!trace_) return;
    trace_->span("load", "step", opened_, trace_->now(), {{"model", Trace::text(pipeline.source().path())}});
    pipeline.executor().set_trace(trace_.get());
}

} // namespace keel::cli
