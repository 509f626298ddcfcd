#include "run/non_finite.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "model/tensor_check.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace keel {
namespace {

struct NonFinite {
    int64_t layer; // -1 for the embedding
    int64_t position;
};

// Runs one step and checks the residual stream after each layer. The position counts from the
// step's first token.
std::optional<NonFinite> probe_step(const SequenceRows &step, StepRunner &runner) {
    std::vector<float> host;
    std::vector<std::unique_ptr<Executor::Watch>> watches;
    for (const StageStep &stage : step.stages) {
        const Engine &engine = *stage.engine;
        Executor &executor = *engine.executor;
        const auto look = [&](const PlannedOp &op, const keel_op_args *args, bool after) {
            const keel_tensor *x =
                after ? residual_after(engine.weights->config(), op, args) : nullptr;
            if (x == nullptr) return;
            host.resize(extent_bytes(*x) / sizeof(float));
            executor.device().find(x->buffer)->read(x->offset, host.data(), extent_bytes(*x));
            for (size_t i = 0; i < host.size(); ++i) {
                if (!std::isfinite(host[i]))
                    throw NonFinite{op.tag().layer, static_cast<int64_t>(i) / x->shape[1]};
            }
        };
        watches.push_back(std::make_unique<Executor::Watch>(executor, look));
    }
    try {
        runner.run(step);
    } catch (const NonFinite &found) {
        return found;
    }
    return std::nullopt;
}

// Computes all tokens of the sequence again, with a second cache. Works only if nothing was
// evicted, because then a token's position is its number.
std::optional<NonFinite> recompute_text(const Sequence &sequence, StepRunner &runner) {
    const std::span<const int32_t> tokens = sequence.text.tokens();
    std::vector<std::unique_ptr<LayerCaches>> caches;
    SequenceRows step;
    size_t chunk = tokens.size();
    for (const Stage &stage : sequence.cache.stages()) {
        Engine &engine = *stage.engine;
        caches.push_back(std::make_unique<LayerCaches>(
            *engine.executor, stage.cache->setup().layout(), engine.placement()));
        step.stages.push_back({&engine, caches.back().get()});
        chunk = std::min<size_t>(chunk, engine.graph->max_tokens());
    }
    for (size_t done = 0; done < tokens.size();) {
        const size_t n = std::min(tokens.size() - done, chunk);
        const std::span<const int32_t> ids = tokens.subspan(done, n);
        step.ids.assign(ids.begin(), ids.end());
        step.positions.resize(n);
        std::iota(step.positions.begin(), step.positions.end(), static_cast<int32_t>(done));
        for (const auto &cache : caches) cache->append(step.positions, static_cast<int64_t>(n));
        auto found = probe_step(step, runner);
        if (found) {
            found->position += static_cast<int64_t>(done);
            return found;
        }
        for (const auto &cache : caches) cache->hold_windows();
        done += n;
    }
    return std::nullopt;
}

// Returns the probable cause of a value that is not finite after layer `layer`. -1 means the
// embedding. The number of layers means the output projection. If a tensor of the layer has such a
// value, names this tensor as the model's file names it. Otherwise lists possible causes.
std::string probable_cause(const Sequence &sequence, int64_t layer) {
    const ModelSource &source = sequence.pipeline.source();
    const bool between = layer >= 0 && layer < sequence.pipeline.model().layers;
    const std::string own = between ? fmt::format("model.layers.{}.", layer) : std::string{};
    for (const TensorInfo &tensor : source.tensors()) {
        const bool is_of_layer =
            between ? tensor.name.starts_with(own) : !tensor.name.starts_with("model.layers.");
        if (!is_of_layer) continue;
        const TensorCheck check = check_tensor(source, tensor);
        if (!check.first_not_finite) continue;
        return fmt::format("{}: in tensor '{}', {} of {} values are not finite; get the file again",
                           printable(source.file(tensor).path(), 400),
                           printable(tensor.stored_name.empty() ? tensor.name : tensor.stored_name),
                           check.not_finite, check.elements);
    }
    const std::string path = printable(source.path(), 400);
    const std::string weights = fmt::format(
        "the weights of {0} may be damaged; `keel inspect {0} --verify` checks all of them", path);
    const std::string &loaded_from = sequence.text.loaded_from();
    if (loaded_from.empty()) return weights;
    return fmt::format("the session that was loaded from {} may be damaged, or {}", loaded_from,
                       weights);
}

} // namespace

bool all_finite(std::span<const float> values) {
    // One sum is faster than a test of each value. Infinity or NaN times zero is NaN.
    float sum = 0;
    for (const float v : values) sum += v * 0.0F;
    return sum == 0;
}

// A value of an earlier step that is not finite affects later steps through the cache. If nothing
// was evicted and a second cache fits in memory, all tokens are computed again. Otherwise only the
// last step is computed again.
void report_non_finite(const Sequence &sequence, StepRunner &runner) {
    const int64_t tokens = sequence.text.size();
    const bool one_step = tokens == std::ssize(sequence.step.ids);
    std::optional<NonFinite> found;
    bool traced = one_step;
    if (!one_step && sequence.cache.acting().evictions() == 0) {
        try {
            found = recompute_text(sequence, runner);
            traced = true;
        } catch (const Error &) {
            // There is no memory for a second cache, so only the last step is checked.
        }
    }
    if (one_step || !traced) { // the step that runs again writes the same values to its cache slots
        SequenceRows step = sequence.step;
        sequence.cache.find_stages(step);
        found = probe_step(step, runner);
        if (found) found->position += tokens - std::ssize(step.ids);
    }
    const char *at = traced ? "at" : "at or before";
    if (found) {
        throw_error(
            ErrorKind::runtime,
            "{} {} position {} (token {}): found a value that is not finite; {}",
            found->layer < 0 ? std::string("embedding") : fmt::format("layer {}", found->layer), at,
            found->position, sequence.text.tokens()[static_cast<size_t>(found->position)],
            probable_cause(sequence, found->layer));
    }
    throw_error(ErrorKind::runtime,
                "output projection {} position {}: found a logit that is not finite; {}", at,
                tokens - 1, probable_cause(sequence, sequence.pipeline.model().layers));
}

} // namespace keel
