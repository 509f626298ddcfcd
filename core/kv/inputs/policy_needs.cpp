#include "kv/inputs/policy_needs.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <bit>

namespace keel {
namespace {

struct NamedNeed {
    uint64_t bit;
    const char *name;
};
constexpr NamedNeed named_needs[] = {
    {KEEL_NEED_POSITIONS, "positions"},
    {KEEL_NEED_KEY_NORMS, "key_norms"},
    {KEEL_NEED_VALUE_NORMS, "value_norms"},
    {KEEL_NEED_WINDOW_SCORES, "window_scores"},
    {KEEL_NEED_RUNNING_SCORES, "running_scores"},
    {KEEL_NEED_KEY_SUM, "key_sum"},
    {KEEL_NEED_KEY_PROJECT, "key_project"},
    {KEEL_NEED_QUERY_STATS, "query_stats"},
    {KEEL_NEED_REPLAY, "replay"},
    {KEEL_NEED_KEYS, "keys"},
    {KEEL_NEED_KEY_ANCHOR, "key_anchor"},
    {KEEL_NEED_CHUNK_SCORES, "chunk_scores"},
    {KEEL_NEED_UNROTATED, "unrotated"},
};
constexpr uint64_t served_needs =
    KEEL_NEED_POSITIONS | KEEL_NEED_KEY_NORMS | KEEL_NEED_VALUE_NORMS | KEEL_NEED_WINDOW_SCORES |
    KEEL_NEED_RUNNING_SCORES | KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_PROJECT | KEEL_NEED_QUERY_STATS |
    KEEL_NEED_REPLAY | KEEL_NEED_KEYS | KEEL_NEED_KEY_ANCHOR | KEEL_NEED_CHUNK_SCORES |
    KEEL_NEED_UNROTATED;
constexpr uint32_t known_flags = KEEL_POLICY_COMPARABLE | KEEL_POLICY_PREFILL_ONLY |
                                 KEEL_POLICY_BLOCKWISE | KEEL_POLICY_BETWEEN_LAYERS |
                                 KEEL_POLICY_KEEPS_ALL | KEEL_POLICY_SEEDED |
                                 KEEL_POLICY_KVPRESS_WORDS;
constexpr uint32_t most_window = 4096;

// Checks the needs of one policy. Errors name the policy.
struct Checker {
    const std::string &policy;
    const keel_policy_needs &needs;

    bool has(uint64_t bit) const { return (needs.needs & bit) != 0; }

    template <typename... Args>
    [[noreturn]] void broken(fmt::format_string<Args...> format, Args &&...args) const {
        throw Error(
            ErrorKind::plugin,
            fmt::format("policy {} {}", policy, fmt::format(format, std::forward<Args>(args)...)));
    }

    void form() const {
        if (needs.granularity < KEEL_KEEP_TOKEN || needs.granularity > KEEL_KEEP_HEAD_RAGGED)
            broken("declares granularity {}, expected 1 to 4", needs.granularity);
        if (needs.output != KEEL_OUTPUT_SCORES && needs.output != KEEL_OUTPUT_KEEP)
            broken("declares output {}, which is neither scores nor keep-lists", needs.output);
    }

    void scores() const {
        const uint64_t sources =
            needs.needs & (KEEL_NEED_WINDOW_SCORES | KEEL_NEED_RUNNING_SCORES | KEEL_NEED_REPLAY);
        if (std::popcount(sources) > 1)
            broken("needs {} and another kind of scores, but input.scores can hold only one kind",
                   need_name(sources & (0 - sources)));
        if (has(KEEL_NEED_WINDOW_SCORES) && (needs.window == 0 || needs.window > most_window))
            broken("needs window_scores of {} queries, expected 1 to {}", needs.window,
                   most_window);
        if (needs.window > most_window)
            broken("declares a window of {} queries, expected at most {}", needs.window,
                   most_window);
        if ((sources & ~KEEL_NEED_REPLAY) != 0) {
            if (needs.reduce_queries < KEEL_REDUCE_SUM || needs.reduce_queries > KEEL_REDUCE_MAX)
                broken("declares reduce_queries {}, expected sum, mean or max",
                       needs.reduce_queries);
            if (needs.reduce_group > KEEL_REDUCE_MAX)
                broken("declares reduce_group {}, expected none, sum, mean or max",
                       needs.reduce_group);
        }
        if (!has(KEEL_NEED_RUNNING_SCORES)) return;
        if (needs.reduce_queries == KEEL_REDUCE_MEAN)
            broken("needs running_scores as a mean over queries, but Keel keeps sums; divide a sum "
                   "by query_count");
        if (needs.reduce_group == KEEL_REDUCE_NONE)
            broken("needs running_scores per query head, but Keel keeps these scores per KV head; "
                   "set reduce_group");
    }

    void keys() const {
        if (has(KEEL_NEED_UNROTATED) && !has(KEEL_NEED_KEY_PROJECT | KEEL_NEED_KEYS))
            broken("needs keys before RoPE, but requests neither key_project nor keys");
    }

    void chunks(int64_t step, int64_t longest) const {
        if (!has(KEEL_NEED_CHUNK_SCORES)) return;
        if (needs.chunk == 0)
            broken("needs chunk_scores for pieces of 0 tokens, expected 1 or more");
        if (needs.reduce_group < KEEL_REDUCE_SUM || needs.reduce_group > KEEL_REDUCE_MAX)
            broken("needs chunk_scores with reduce_group {}, expected sum, mean or max",
                   needs.reduce_group);
        // A piece must fit in one step, because each query of the piece attends to all keys of the
        // piece.
        if (int64_t{needs.chunk} > step && step < longest) {
            throw_error(ErrorKind::input,
                        "policy {} needs chunk_scores for pieces of {} tokens, but this backend "
                        "prefills at most {} tokens at a time; choose smaller pieces",
                        policy, needs.chunk, step);
        }
    }

    void replay() const {
        if (!has(KEEL_NEED_REPLAY)) {
            if (has_flag(needs, KEEL_POLICY_KVPRESS_WORDS))
                broken("sets the flag KEEL_POLICY_KVPRESS_WORDS, but does not need replay");
            return;
        }
        if ((needs.flags & KEEL_POLICY_PREFILL_ONLY) == 0)
            broken("needs replay, but does not set the flag KEEL_POLICY_PREFILL_ONLY");
        if (has(KEEL_NEED_CHUNK_SCORES))
            broken("needs both replay and chunk_scores, but may need only one of the two");
        if (needs.replay_chunk == 0)
            broken("needs replay in pieces of 0 tokens, expected 1 or more");
        if (needs.replay_lead >= needs.replay_chunk)
            broken("needs replay with a lead of {} tokens, but a piece has only {} tokens",
                   needs.replay_lead, needs.replay_chunk);
    }
};

} // namespace

std::string need_name(uint64_t bit) {
    for (const NamedNeed &need : named_needs) {
        if (need.bit == bit) return need.name;
    }
    return fmt::format("bit {}", std::countr_zero(bit));
}

Collected Collected::of(const keel_policy_needs &needs) {
    Collected g;
    if ((needs.flags & KEEL_POLICY_KEEPS_ALL) != 0) return g;
    if ((needs.needs & KEEL_NEED_WINDOW_SCORES) != 0) g.window = needs.window;
    if ((needs.needs & KEEL_NEED_RUNNING_SCORES) != 0)
        g.running = Running{needs.reduce_queries, needs.reduce_group};
    if ((needs.needs & KEEL_NEED_QUERY_STATS) != 0) g.stats = Stats{needs.skip_queries};
    if ((needs.needs & KEEL_NEED_CHUNK_SCORES) != 0)
        g.chunks = Chunks{needs.chunk, needs.reduce_group};
    return g;
}

const char *Collected::missing(const Collected &other) const {
    if (other.window > window) return "window_scores";
    if (other.running && other.running != running) return "running_scores";
    if (other.stats && other.stats != stats) return "query_stats";
    if (other.chunks && other.chunks != chunks) return "chunk_scores";
    return nullptr;
}

const char *Collected::merge(const Collected &other) {
    if (running && other.running && running != other.running) return "running_scores";
    if (stats && other.stats && stats != other.stats) return "query_stats";
    if (chunks && other.chunks && chunks != other.chunks) return "chunk_scores";
    window = std::max(window, other.window);
    if (other.running) running = other.running;
    if (other.stats) stats = other.stats;
    if (other.chunks) chunks = other.chunks;
    return nullptr;
}

int64_t fixed_slots(const keel_policy_needs &needs, int64_t prefix, int64_t recent,
                    int64_t pinned) {
    const int64_t own = std::max<int64_t>(0, int64_t{needs.least_budget} - 1);
    const int64_t newest = std::min<int64_t>(own, needs.window);
    return std::max(prefix, own - newest) + std::max(recent, newest) + pinned;
}

void check_policy_needs(const std::string &policy, const keel_policy_needs &needs, int64_t step,
                        int64_t longest) {
    const uint64_t unserved = needs.needs & ~served_needs;
    if (unserved != 0) {
        throw_error(ErrorKind::input,
                    "policy {} needs {}, which this version of Keel does not compute", policy,
                    need_name(unserved & (0 - unserved)));
    }
    if ((needs.flags & ~known_flags) != 0) {
        throw_error(
            ErrorKind::input,
            "policy {} sets the flags {:#x}, which this version of Keel does not know; update Keel",
            policy, needs.flags & ~known_flags);
    }
    if ((needs.flags & KEEL_POLICY_KEEPS_ALL) != 0) return;
    if ((needs.flags & KEEL_POLICY_BETWEEN_LAYERS) != 0) {
        throw_error(ErrorKind::input,
                    "policy {} requests decisions between the layers of a step, which this version "
                    "of Keel does not support",
                    policy);
    }
    const Checker check = {policy, needs};
    check.form();
    check.scores();
    check.keys();
    check.chunks(step, longest);
    check.replay();
}

} // namespace keel
