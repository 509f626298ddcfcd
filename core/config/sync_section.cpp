#include "config/schema.hpp"

#include "base/error.hpp"

namespace keel::pipeline {

void check_sync(SyncSection &sync) {
    if (*sync.strategy == SyncStrategy::batched) {
        if (!*sync.ops) sync.ops.value = defaults::ops_per_submit;
    } else if (*sync.ops) {
        throw_at(sync.ops.where, ErrorKind::input,
                 "expected the strategy batched beside 'sync.ops', found another; write "
                 "'strategy: batched'");
    }
}

void declare_sync(Schema &schema) {
    schema.sections.push_back(
        {"sync", "How often host and device wait for each other; results are the same.",
         "strategy"});
    schema.keys.add(
        {.path = "sync.strategy",
         .doc = "When work is submitted and waited for: auto is the backend's own "
                "choice, lazy at natural ends, eager after every op, batched every "
                "sync.ops ops.",
         .example = "lazy"},
        [](auto &c) -> auto & { return c.sync.strategy; }, SyncStrategy::automatic);
    schema.keys.add(
        {.path = "sync.ops",
         .doc = fmt::format("Ops per submission; belongs to the strategy batched, where {} is the "
                            "default.",
                            defaults::ops_per_submit),
         .example = "25",
         .rule = {.minimum = 1, .maximum = 1000000}},
        [](auto &c) -> auto & { return c.sync.ops; });
    schema.keys.add(
        {.path = "sync.replay",
         .doc = "Decode steps are recorded once and submitted again where the backend "
                "can (keel.replay/1) and the strategy does not cut them; off queues "
                "each op of each step anew.",
         .example = "off"},
        [](auto &c) -> auto & { return c.sync.replay; }, StepReplay::automatic);
    schema.keys.add(
        {.path = "sync.ahead",
         .doc = "Greedy text on a device that runs beside the host "
                "(keel.read_later/1): the next decode step is queued before its token "
                "is read, where the policy decides nothing in between; off waits for "
                "each token first.",
         .example = "off"},
        [](auto &c) -> auto & { return c.sync.ahead; }, StepAhead::automatic);
}

} // namespace keel::pipeline
