#include "kv/evict/check_sequence.hpp"

#include "base/error.hpp"
#include "kv/evict/check_policy.hpp"

#include <algorithm>

namespace keel {

void check_fork(const PolicySetup &from, const PolicySetup &to, const ForkParent &parent) {
    const std::string &name = to.config().policy.name;
    if (to.shape().window != from.shape().window) {
        throw_error(ErrorKind::input,
                    "cannot fork to policy {3}: in the layers with an attention window, policy {0} "
                    "stores all tokens, but policy {1} stores only the window ({2} tokens); read "
                    "the prompt under policy {3}",
                    to.shape().window > 0 ? from.config().policy.name : name,
                    to.shape().window > 0 ? name : from.config().policy.name,
                    std::max(from.shape().window, to.shape().window), name);
    }
    KvShape shape = to.shape(); // `from` and `to` can have different limits in bytes
    shape.max_bytes = from.shape().max_bytes;
    shape.cap_beside = from.shape().cap_beside;
    if (!(shape == from.shape()) || &to.executor() != &from.executor())
        throw_error(ErrorKind::internal,
                    "cannot fork to policy {}: expected a cache of the same shape on the same "
                    "backend, found another cache",
                    name);
    if (parent.seen > 0) {
        Collected wanted = to.collected();
        // The rest of the prompt has all queries that the policy reads, see
        // CacheManager::next_chunk.
        if (parent.to_come >= wanted.window) wanted.window = 0;
        const char *need = from.collected().missing(wanted);
        // A policy that acts only once collects no queries after its eviction.
        const bool reads_later = parent.evicted && to.prefill_only();
        if (wanted.window > 0 && &from != &to && !reads_later && from.ring_use() == RingUse::none)
            need = "window_scores";
        if (need != nullptr) {
            throw_error(
                ErrorKind::input,
                "cannot fork to policy {0}: this policy needs {1}, which Keel did not collect when "
                "it read "
                "the prompt under policy {2}; read the prompt under a policy that also needs {1}",
                name, need, from.config().policy.name);
        }
    }
    if (to.keeps_all() || !parent.evicted) {
        const int64_t least = to.config().protect_prefix;
        const int64_t prefix =
            to.config().protect_system_prompt ? std::max(parent.prefix, least) : least;
        if (!to.keeps_all()) check_prefix(to.config(), to.budget(), prefix, "the protected prefix");
        return;
    }
    const bool moves = from.may_move_keys();
    if (moves != to.may_move_keys() || (moves && parent.prefix != to.config().protect_prefix)) {
        throw_key_error(ErrorKind::input, "policy.positions",
                        "the cache has evicted slots, but policies {} and {} have different "
                        "policy.positions or policy.protect; fork before the first eviction, or "
                        "give both policies the same policy.positions and policy.protect",
                        from.config().policy.name, name);
    }
    if (!to.config().pinned.empty()) {
        throw_key_error(ErrorKind::input, "policy.protect",
                        "tokens cannot be pinned under policy {} after slots were evicted; "
                        "fork before the first eviction",
                        name);
    }
}

void check_lengths(const StateReader &in, const PolicySetup &setup, const KvCache &cache,
                   int64_t seen, int64_t tail) {
    const KvShape &s = setup.shape();
    if (s.window > 0) return; // LayerCaches::load has already checked the cache
    const keel_granularity granularity = setup.needs().granularity;
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            const int64_t length = cache.length(l, h);
            if (length < tail || (setup.keeps_all() && length != seen))
                in.fail("layer {}, head {}: found {} slots, which is impossible after {} tokens; "
                        "the file is damaged",
                        l, h, length, seen);
            // Positions ascend and the newest tokens are present. So the positions of the tail end
            // at the position of the newest token.
            const auto positions = cache.positions(l, h);
            for (int64_t i = 1; i <= tail; ++i) {
                if (positions[static_cast<size_t>(length - i)] != seen - i)
                    in.fail("layer {}, head {}: one of the latest tokens is missing; the file is "
                            "damaged",
                            l, h);
            }
            const bool shared =
                !setup.keeps_all() &&
                (granularity == KEEL_KEEP_TOKEN || (h > 0 && granularity == KEEL_KEEP_LAYER) ||
                 (h > 0 && granularity == KEEL_KEEP_HEAD_EQUAL && !setup.allocator().ragged));
            const int64_t other =
                granularity == KEEL_KEEP_TOKEN ? cache.length(0, 0) : cache.length(l, 0);
            if (shared && length != other)
                in.fail("layer {}, head {}: found {} slots; policy {} keeps the same number of "
                        "slots in each head, expected {}",
                        l, h, length, setup.config().policy.name, other);
        }
    }
}

} // namespace keel
