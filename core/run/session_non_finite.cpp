// Where a number that is not finite first arose.
#include "run/session.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "model/tensor_check.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace keel {

void Session::check_finite(std::span<const float> values) {
    // Adding up is quicker than asking each: an infinity or a NaN survives the sum of magnitudes
    // times zero.
    float sum = 0;
    for (const float v : values)
        sum += v * 0.0F;
    if (sum != 0 || std::isnan(sum)) find_non_finite();
}

// One step with a look at the residual stream after each layer; the position counts from the step's
// first token.
std::optional<Session::NonFinite> Session::probe_step(std::span<const int32_t> ids,
                                                      std::span<const int32_t> positions,
                                                      const Caches &caches, uint32_t rows) {
    std::vector<float> host;
    std::vector<std::unique_ptr<Executor::Watch>> watches;
    for (const Part &part : parts_) {
        Executor &executor = *part.engine->executor;
        const auto look = [&](const PlannedOp &op, const keel_op_args *args, bool after) {
            const keel_tensor *x = after ? residual_after(op, args) : nullptr;
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
        forward(ids, positions, caches, rows, {});
    } catch (const NonFinite &found) {
        return found;
    }
    return std::nullopt;
}

// Everything taken in so far, on a cache of its own. Only as long as nothing was evicted: a token's
// position is its number then.
std::optional<Session::NonFinite> Session::replay_history() {
    std::vector<std::unique_ptr<KvCache>> owned;
    Caches all;
    size_t chunk = history_.size();
    for (const Part &part : parts_) {
        owned.push_back(std::make_unique<KvCache>(*part.engine->executor, part.engine->kv_shape,
                                                  part.engine->placement()));
        all.push_back(owned.back().get());
        chunk = std::min<size_t>(chunk, part.engine->graph->max_tokens());
    }
    std::vector<int32_t> positions;
    for (size_t done = 0; done < history_.size();) {
        const size_t n = std::min(history_.size() - done, chunk);
        positions.resize(n);
        std::iota(positions.begin(), positions.end(), static_cast<int32_t>(done));
        for (KvCache *cache : all)
            cache->append(positions, static_cast<int64_t>(n));
        auto found = probe_step(std::span(history_).subspan(done, n), positions, all, 0);
        if (found) {
            found->position += static_cast<int64_t>(done);
            return found;
        }
        done += n;
    }
    return std::nullopt;
}

// What to look at, once layer `layer` (-1: the embedding; as many as there are layers: what follows
// them) gave a bad number: the tensor of it that holds one itself, as its file calls it; else all
// that could be.
std::string Session::suspects(int64_t layer) const {
    const ModelSource &source = pipeline_.source();
    const bool between = layer >= 0 && layer < pipeline_.model().layers;
    const std::string own = between ? fmt::format("model.layers.{}.", layer) : std::string{};
    for (const TensorInfo &tensor : source.tensors()) {
        const bool is_of_layer =
            between ? tensor.name.starts_with(own) : !tensor.name.starts_with("model.layers.");
        if (!is_of_layer) continue;
        const TensorCheck check = check_tensor(source, tensor);
        if (!check.first_not_finite) continue;
        return fmt::format(
            "{}: tensor '{}' has {} of {} values that are not finite; get the file anew",
            printable(source.file(tensor).path(), 400),
            printable(tensor.stored_name.empty() ? tensor.name : tensor.stored_name),
            check.not_finite, check.elements);
    }
    const std::string path = printable(source.path(), 400);
    const std::string weights = fmt::format(
        "are the weights of {0} sound? `keel inspect {0} --verify` reads them all", path);
    if (loaded_from_.empty()) return weights;
    return fmt::format("is the session sound that was loaded from {}? Or {}", loaded_from_,
                       weights);
}

// Where the first number that is not finite arises, by computing again and looking at the residual
// stream after each layer. A bad token of an earlier step reaches later ones through the cache, so
// all is computed again, if all is still there to compute with.
void Session::find_non_finite() {
    const bool one_step = history_.size() == step_ids_.size();
    std::optional<NonFinite> found;
    bool traced = one_step;
    if (!one_step && cache().evictions() == 0) {
        try {
            found = replay_history();
            traced = true;
        } catch (const Error &) {
            // No memory for a second cache: the last step has to do.
        }
    }
    if (one_step || !traced) { // its cache slots are written again with the same values
        found = probe_step(step_ids_, step_positions_, caches(), rows_);
        if (found) found->position += tokens() - static_cast<int64_t>(step_ids_.size());
    }
    const char *at = traced ? "at" : "at or before";
    if (found) {
        throw_error(
            ErrorKind::runtime, "{} {} position {} (token {}): a value that is not finite; {}",
            found->layer < 0 ? std::string("embedding") : fmt::format("layer {}", found->layer), at,
            found->position, history_[static_cast<size_t>(found->position)],
            suspects(found->layer));
    }
    throw_error(ErrorKind::runtime,
                "output projection {} position {}: a logit that is not finite; {}", at,
                tokens() - 1, suspects(pipeline_.model().layers));
}

} // namespace keel
