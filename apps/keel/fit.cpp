#include "fit.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel::cli {
namespace {

constexpr int64_t context_step = 256;
constexpr int64_t small_context = 2048; // below it a smaller type of the weights is the better choice
constexpr int64_t chunk = 512;          // tokens of a prefill chunk, the core's default

uint64_t tensor_bytes(const TensorInfo &tensor, keel_dtype weights) {
    if (weights == KEEL_DTYPE_NONE || tensor.shape.size() != 2) return tensor.bytes;
    return static_cast<uint64_t>(tensor.shape[0]) *
           keel_dtype_row_bytes(weights, static_cast<uint64_t>(tensor.shape[1]));
}

uint64_t work_bytes(const ModelConfig &m, int64_t context) {
    const int64_t per_token =
        2 * m.hidden_size + (2 * m.q_size() + 2 * m.kv_size()) + 3 * m.intermediate_size;
    const int64_t floats = std::min(chunk, context) * per_token + context * m.head_dim + m.vocab_size;
    return static_cast<uint64_t>(floats) * sizeof(float);
}

std::string room(uint64_t need, const MemoryInfo &info) {
    return fmt::format("{} of {} available ({})", format_bytes(need), format_bytes(info.available),
                       info.limited_by);
}

} // namespace

uint64_t kv_bytes_per_token(const ModelConfig &m, keel_dtype key, keel_dtype value) {
    const auto dim = static_cast<uint64_t>(m.head_dim);
    if (dim % keel_dtype_block(key) != 0 || dim % keel_dtype_block(value) != 0) return 0;
    return static_cast<uint64_t>(m.layers * m.kv_heads) *
           (keel_dtype_row_bytes(key, dim) + keel_dtype_row_bytes(value, dim));
}

MemoryNeed memory_need(const ModelSource &source, keel_dtype weights, keel_dtype key, keel_dtype value,
                       int64_t context) {
    MemoryNeed need;
    for (const TensorInfo &tensor : source.tensors())
        need.weights += tensor_bytes(tensor, weights);
    need.cache = static_cast<uint64_t>(context) * kv_bytes_per_token(source.config(), key, value);
    need.work = work_bytes(source.config(), context);
    return need;
}

bool can_be(const ModelSource &source, keel_dtype weights) {
    return std::all_of(source.tensors().begin(), source.tensors().end(), [&](const TensorInfo &tensor) {
        return tensor.shape.size() != 2 || tensor.shape[1] % keel_dtype_block(weights) == 0;
    });
}

uint64_t usable_bytes(const MemoryInfo &info) {
    return info.available - info.available / 8;
}

int64_t context_that_fits(const ModelSource &source, keel_dtype weights, keel_dtype key, keel_dtype value,
                          const MemoryInfo &info) {
    const int64_t wanted = source.config().max_positions;
    if (info.total == 0 || memory_need(source, weights, key, value, wanted).total() <= usable_bytes(info))
        return wanted;
    // The need grows with the context: bisect over multiples of the step.
    int64_t fits = 0, too_much = (wanted + context_step - 1) / context_step;
    while (too_much - fits > 1) {
        const int64_t middle = fits + (too_much - fits) / 2;
        (memory_need(source, weights, key, value, middle * context_step).total() <= usable_bytes(info)
             ? fits
             : too_much) = middle;
    }
    return fits * context_step;
}

Fit fit_to_memory(const ModelSource &source, const MemoryInfo &info) {
    const ModelConfig &model = source.config();
    const int64_t wanted = model.max_positions, least = std::min(wanted, small_context);
    Fit fit;
    fit.context = wanted;
    // Types in the order in which they cost quality; the first that leaves room for a useful context is taken.
    for (const keel_dtype weights : {KEEL_DTYPE_NONE, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        if (weights != KEEL_DTYPE_NONE && !can_be(source, weights)) continue;
        for (const keel_dtype kv : {KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0}) {
            if (kv_bytes_per_token(model, kv, kv) == 0) continue;
            const int64_t context = context_that_fits(source, weights, kv, kv, info);
            fit.weights = weights;
            fit.kv = kv;
            fit.context = context;
            fit.fits = context >= least;
            // The whole context in f16 is best; a part of it in q8_0 is better than smaller weights.
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
            "This model does not fit into the memory that was free when this was written: it needs {}.",
            room(memory_need(source, fit.weights, fit.kv, fit.kv, least).total(), info));
        return fit;
    }
    if (fit.weights != KEEL_DTYPE_NONE) {
        fit.weights_note = fmt::format("As stored they would take {}; as {} they take {}.",
                                       format_bytes(source.total_bytes()), keel_dtype_name(fit.weights),
                                       format_bytes(need.weights));
    }
    const uint64_t per_token = kv_bytes_per_token(model, fit.kv, fit.kv);
    fit.kv_note = fmt::format("{} takes {} a token, {} for the whole context{}.", keel_dtype_name(fit.kv),
                              format_bytes(per_token), format_bytes(need.cache),
                              fit.kv == KEEL_DTYPE_Q8_0 ? "; f16 would not have fitted" : "");
    fit.context_note =
        fit.context == wanted
            ? fmt::format("{} is all that the model was made for. A full run needs {}.", wanted,
                          room(need.total(), info))
            : fmt::format("The model was made for {}; {} is what the memory held when this was written: {}.",
                          wanted, fit.context, room(need.total(), info));
    return fit;
}

} // namespace keel::cli
