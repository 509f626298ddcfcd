#pragma once

#include "kv/evict/cache_config.hpp"

#include <functional>

namespace keel::test {

// An allocator that a test defines: it declares `needs` and `flags`, and calls `allocate`.
struct Sharer {
    uint64_t needs = KEEL_ALLOCATOR_NEED_SCORES;
    uint32_t flags = KEEL_ALLOCATOR_RAGGED;
    std::function<void(const keel_allocator_input &, int32_t *)> allocate;
};

// The allocator that is in use.
inline Sharer *&current_sharer() {
    static Sharer *sharer = nullptr;
    return sharer;
}

inline KvPlugin<keel_allocator> shared_by(Sharer &sharer) {
    static const keel_allocator table = [] {
        keel_allocator t = {KEEL_HEADER(keel_allocator)};
        t.create = [](const keel_host *, const keel_geometry *, const keel_param *const *, uint32_t,
                      keel_allocator_needs *needs, keel_allocator_state **out) -> keel_status {
            needs->needs = current_sharer()->needs;
            needs->flags = current_sharer()->flags;
            *out = reinterpret_cast<keel_allocator_state *>(current_sharer());
            return KEEL_OK;
        };
        t.destroy = [](keel_allocator_state *) {};
        t.allocate = [](keel_allocator_state *state, const keel_allocator_input *in,
                        int32_t *budgets) -> keel_status {
            reinterpret_cast<Sharer *>(state)->allocate(*in, budgets);
            return KEEL_OK;
        };
        return t;
    }();
    current_sharer() = &sharer;
    return {"sharer", &table, nullptr, 0};
}

} // namespace keel::test
