#include "run/fit.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel {
namespace {

constexpr int64_t small_context =
    2048; // the least useful context: if it would be shorter, a smaller type of weights is better

std::string room(uint64_t need, const MemoryInfo &info) {
    return fmt::format("{} of {} available ({})", format_bytes(need), format_bytes(info.available),
                       info.limited_by);
}

} // namespace

int64_t context_that_fits(const ModelSource &source, keel_dtype weights, keel_dtype key,
                          keel_dtype value, const MemoryInfo &info) {
    const int64_t wanted = source.config().max_positions;
    if (info.total == 0) return wanted;
    return longest_context(wanted, usable_bytes(info), [&](int64_t context) {
        return memory_need(source, weights, key, value, context).total();
    });
}

Fit fit_to_memory(const ModelSource &source, const MemoryInfo &info) {
    const ModelConfig &model = source.config();
    const int64_t wanted = model.max_positions, least = std::min(wanted, small_context);
    Fit fit;
    fit.context = wanted;
    // The types are in ascending order of quality loss. The first type that leaves room for a
    // useful context is used.
    for (const keel_dtype weights : {KEEL_DTYPE_NONE, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        if (weights != KEEL_DTYPE_NONE && !can_be(source, weights)) continue;
        for (const keel_dtype kv : {KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0}) {
            if (model.head_dim % keel_dtype_block(kv) != 0) continue;
            const int64_t context = context_that_fits(source, weights, kv, kv, info);
            fit.weights = weights;
            fit.kv = kv;
            fit.context = context;
            fit.fits = context >= least;
            // The best choice is the whole context with the cache in f16. A shorter context with
            // the cache in q8_0 is better than a smaller type of weights.
            if (context == wanted || (fit.fits && kv == KEEL_DTYPE_Q8_0)) break;
        }
        if (fit.fits) break;
    }
    const MemoryNeed need =
        memory_need(source, fit.weights, fit.kv, fit.kv, std::max<int64_t>(fit.context, 1));
    if (info.total == 0) {
        fit.context_note =
            "All that the model was made for; this system does not tell how much memory is free.";
        return fit;
    }
    if (!fit.fits) {
        fit.context = least;
        fit.context_note = fmt::format(
            "This model does not fit into the memory that was free when this was written: it needs "
            "{}.",
            room(memory_need(source, fit.weights, fit.kv, fit.kv, least).total(), info));
        return fit;
    }
    if (fit.weights != KEEL_DTYPE_NONE) {
        fit.weights_note = fmt::format("As stored they would take {}; as {} they take {}.",
                                       format_bytes(source.total_bytes()),
                                       keel_dtype_name(fit.weights), format_bytes(need.weights));
    }
    fit.kv_note = fmt::format("{} takes {}, {} for the whole context{}.", keel_dtype_name(fit.kv),
                              kv_bytes_text(kv_bytes(model, fit.kv, fit.kv, fit.context)),
                              format_bytes(need.cache),
                              fit.kv == KEEL_DTYPE_Q8_0 ? "; f16 would not have fitted" : "");
    fit.context_note =
        fit.context == wanted
            ? fmt::format("{} is all that the model was made for. A full run needs {}.", wanted,
                          room(need.total(), info))
            : fmt::format("The model was made for {}; {} is what the memory held when this was "
                          "written: {}.",
                          wanted, fit.context, room(need.total(), info));
    return fit;
}

} // namespace keel
