#pragma once

#include "kv/evict/cache_config.hpp"

#include <functional>

namespace keel::test {

// A policy that a test defines: it declares `needs` and calls `decide`.
struct Script {
    keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
    std::function<keel_status(const keel_policy_input &, keel_policy_decision &)> decide;
    int created = 0, destroyed = 0, decided = 0;
};

// The script that is in use.
inline Script *&current_script() {
    static Script *script = nullptr;
    return script;
}

inline KvPlugin<keel_policy> scripted(Script &script) {
    static const keel_policy table = [] {
        keel_policy t = {KEEL_HEADER(keel_policy)};
        t.create = [](const keel_host *, const keel_geometry *, const keel_param *const *, uint32_t,
                      uint64_t, keel_policy_needs *needs, keel_policy_state **out) -> keel_status {
            ++current_script()->created;
            keel_emit(needs, &current_script()->needs, sizeof(keel_policy_needs));
            *out = reinterpret_cast<keel_policy_state *>(current_script());
            return KEEL_OK;
        };
        t.destroy = [](keel_policy_state *state) {
            ++reinterpret_cast<Script *>(state)->destroyed;
        };
        t.decide = [](keel_policy_state *state, const keel_policy_input *input,
                      keel_policy_decision *decision) -> keel_status {
            auto *self = reinterpret_cast<Script *>(state);
            ++self->decided;
            return self->decide(*input, *decision);
        };
        return t;
    }();
    current_script() = &script;
    return {"scripted", &table, nullptr, 0};
}

} // namespace keel::test
