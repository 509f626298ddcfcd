#include "config/schema.hpp"

#include "base/error.hpp"

namespace keel::pipeline {

void check_sync(SyncSection &sync) {
    if (*sync.strategy == SyncStrategy::batched) {
        if (!*sync.ops) sync.ops.value = defaults::ops_per_submit;
    } else if (*sync.ops) {
        throw_at(sync.ops.where, ErrorKind::input,
                 "expected the strategy batched, because 'sync.ops' is set; found another; write "
                 "'strategy: batched', or remove 'sync.ops'");
    }
}

void declare_sync(Schema &schema) {
    schema.sections.push_back({"sync",
                               "How often host and device wait for each other. The results do not "
                               "depend on it.",
                               "strategy"});
    schema.keys.add(
        {.path = "sync.strategy",
         .doc = "When Keel submits queued ops to the device. auto: the backend's own "
                "choice. lazy: at the end of a step or of a chunk of the prompt. "
                "eager: after every op, and the host waits for it. batched: every "
                "sync.ops ops.",
         .example = "lazy"},
        [](auto &c) -> auto & { return c.sync.strategy; }, SyncStrategy::automatic);
    schema.keys.add(
        {.path = "sync.ops",
         .doc = fmt::format("Ops per submission. Requires the strategy batched; the default is "
                            "then {}.",
                            defaults::ops_per_submit),
         .example = "25",
         .rule = {.minimum = 1, .maximum = 1000000}},
        [](auto &c) -> auto & { return c.sync.ops; });
    schema.keys.add(
        {.path = "sync.replay",
         .doc = "Whether a decode step is recorded once and then submitted again. "
                "auto: yes, if the backend can do it (keel.replay/1) and the strategy "
                "does not submit within a step. off: each op of each step is queued "
                "again.",
         .example = "off"},
        [](auto &c) -> auto & { return c.sync.replay; }, StepReplay::automatic);
    schema.keys.add(
        {.path = "sync.ahead",
         .doc = "Whether the next decode step of a greedy text is queued before the "
                "host has read its token. With auto it is, if the device runs in "
                "parallel with the host (keel.read_later/1) and the policy decides "
                "nothing between the two steps. With off, the host waits for each "
                "token first.",
         .example = "off"},
        [](auto &c) -> auto & { return c.sync.ahead; }, StepAhead::automatic);
}

} // namespace keel::pipeline
