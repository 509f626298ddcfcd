#include "run/sequence.hpp"

namespace keel {

void Sequence::take_in(std::span<const int32_t> ids, StepKind kind, uint32_t logit_rows) {
    results.give_up_overwritten();
    cache.make_room(std::ssize(ids), kind);
    step.ids.assign(ids.begin(), ids.end());
    cache.append(step, kind);
    step.kind = kind;
    step.logit_rows = logit_rows;
    results.begin(cache.last_engine(), logit_rows);
    text.append(ids);
}

void Sequence::take_ahead(int32_t id) {
    step.ids.assign(1, id);
    cache.keep_ahead(step);
    step.kind = StepKind::decode;
    step.logit_rows = 1;
    results.begin(cache.last_engine(), 1);
    text.append({&id, 1});
}

void Sequence::forget_step() {
    step.ids.clear();
    step.positions.clear();
    step.logit_rows = 0;
    results.forget();
    cache.forget_open_step();
}

} // namespace keel
