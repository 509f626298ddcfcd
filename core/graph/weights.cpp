#include "graph/weights.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "graph/weight_sources.hpp"
#include "model/model_tensors.hpp"
#include "platform/memory.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace keel {

// Takes tensors from the source one after the other, in the order of the layers.
class ModelWeights::Loader {
  public:
    Loader(Executor &executor, std::shared_ptr<const ModelSource> source,
           const LoadOptions &options, uint64_t total_bytes)
        : executor_(executor), source_(std::move(source)), options_(options), total_(total_bytes) {}

    // Joins the rows of several matrices to one weight. NULL if the model has no such weight.
    std::unique_ptr<Weight> matrix(const std::string &name, const WeightParts &weight_parts,
                                   uint32_t use = KEEL_USE_MATMUL) {
        if (weight_parts.empty()) return nullptr;
        const int64_t cols = weight_parts.cols;
        std::vector<const TensorInfo *> tensors;
        int64_t rows = 0;
        for (const WeightParts::Part &part : weight_parts.parts) {
            rows += part.rows;
            tensors.push_back(&source_->expect(part.tensor, {part.rows, cols}));
        }
        const keel_dtype dtype =
            weight_parts.as_f32
                ? keel_dtype{KEEL_DTYPE_F32}
                : loaded_dtype(*tensors.front(), options_.dtype, options_.weight_dtypes);
        // A fallback device can call `make` after this loader and its memory are destroyed.
        const std::weak_ptr<ConversionMemory> reused = memory_;
        const auto make = [source = source_, tensors, dtype, parallel = options_.parallel, reused] {
            const auto memory = reused.lock();
            return weight_sources(source, tensors, dtype, parallel, memory.get());
        };
        auto weight =
            std::make_unique<Weight>(name, dtype, rows, cols, make, KEEL_JOIN_ROWS, use,
                                     options_.max_m, static_cast<uint32_t>(weight_parts.experts));
        // A device without the op never reads a weight with experts. The weight is prepared on the
        // device on which the op runs.
        const Device &device = executor_.device();
        if (weight_parts.experts == 0 || has_op(device.table(), KEEL_OP_EXPERT_MATMUL))
            weight->prepare(executor_.device());
        // Some pages of the file are not read in place by any device. Gives these pages back to the
        // system.
        for (const TensorInfo *tensor : tensors) {
            if (!weight->sources_needed() || !source_->in_place(*tensor, dtype))
                source_->drop(*tensor);
            advance(tensor->bytes);
        }
        return weight;
    }

    // Joins the rows of several matrices like matrix(). Neighbouring parts that are stored in one
    // type become one weight.
    RowParts row_parts(const std::string &name, const WeightParts &all) {
        RowParts parts;
        WeightParts run{{}, all.cols};
        std::string type;
        const auto flush = [&] {
            if (run.parts.empty()) return;
            const std::string suffix =
                parts.empty() ? "" : fmt::format(", part {}", parts.size() + 1);
            parts.push_back(matrix(name + suffix, run));
            run.parts.clear();
        };
        for (const WeightParts::Part &part : all.parts) {
            const std::string &stored =
                source_->expect(part.tensor, {part.rows, all.cols}).dtype_name;
            if (stored != type) flush();
            type = stored;
            run.parts.push_back(part);
        }
        flush();
        return parts;
    }

    // Returns the weights of all experts' gate and up: one weight, or two if their types differ.
    RowParts expert_rows(const std::string &name, const WeightParts &all) {
        RowParts parts;
        if (all.empty()) return parts;
        const WeightParts gate = expert_parts(all, 0, 1), up = expert_parts(all, 1, 1);
        const std::string gate_type = type_of_all(gate), up_type = type_of_all(up);
        if (gate_type == up_type) {
            parts.push_back(matrix(name, all, KEEL_USE_EXPERTS));
        } else {
            parts.push_back(matrix(name, gate, KEEL_USE_EXPERTS));
            parts.push_back(matrix(name + ", part 2", up, KEEL_USE_EXPERTS));
        }
        return parts;
    }

    // Returns the type in which all experts of a matrix are stored. Throws Error(input) if they
    // have different types, because a weight has one type.
    std::string type_of_all(const WeightParts &all) {
        const auto stored = [&](const WeightParts::Part &part) -> const TensorInfo & {
            return source_->expect(part.tensor, {part.rows, all.cols});
        };
        const std::string &type = stored(all.parts.front()).dtype_name;
        for (const WeightParts::Part &part : all.parts) {
            const TensorInfo &tensor = stored(part);
            if (tensor.dtype_name != type)
                throw_error(ErrorKind::input,
                            "{}: tensor '{}': expected {}, the type of this matrix in the first "
                            "expert, found {}",
                            source_->file(tensor).path(), part.tensor, type, tensor.dtype_name);
        }
        return type;
    }

    // Joins f32 vectors to one tensor, adds `offset` to each element, and multiplies it by `scale`.
    // The tensor is empty if the model has no such weight.
    Tensor vectors(const WeightParts &weight_parts, double offset = 0, double scale = 1) {
        if (weight_parts.empty()) return {};
        std::vector<float> values;
        for (const auto &[name, n] : weight_parts.parts) {
            const TensorInfo &tensor = source_->expect(name, {n});
            const size_t at = values.size();
            values.resize(at + static_cast<size_t>(n));
            source_->read_vector(tensor, values.data() + at);
            advance(tensor.bytes);
        }
        if (offset != 0) {
            for (float &value : values) value += static_cast<float>(offset);
        }
        if (scale != 1) {
            for (float &value : values) value = static_cast<float>(value * scale);
        }
        Tensor out = Tensor::allocate(executor_.device(), KEEL_DTYPE_F32,
                                      {static_cast<int64_t>(values.size())}, executor_.placement());
        out.write(values.data());
        return out;
    }

    void layer(const LayerParts &parts, const std::string &name, double norm_offset,
               LayerWeights &l) {
        const auto norm = [&](const WeightParts &weight) { return vectors(weight, norm_offset); };
        l.attention_norm = norm(parts.attention_norm);
        l.qkv = row_parts(name + "qkv", parts.qkv);
        l.qkv_bias = vectors(parts.qkv_bias);
        l.q_norm = norm(parts.q_norm);
        l.k_norm = norm(parts.k_norm);
        l.attention_out = matrix(name + "attention_out", parts.attention_out);
        l.attention_out_bias = vectors(parts.attention_out_bias);
        l.post_attention_norm = norm(parts.post_attention_norm);
        l.ffn_norm = norm(parts.ffn_norm);
        l.gate_up = row_parts(name + "gate_up", parts.gate_up);
        l.gate_up_bias = vectors(parts.gate_up_bias);
        // The ops of experts multiply the result of a shared expert by a number.
        WeightParts down = parts.down;
        const bool is_shared = !parts.shared_router.empty();
        down.experts = is_shared ? 1 : 0;
        l.down = matrix(name + "down", down, is_shared ? KEEL_USE_EXPERTS : KEEL_USE_MATMUL);
        l.down_bias = vectors(parts.down_bias);
        l.post_ffn_norm = norm(parts.post_ffn_norm);
        if (parts.router.empty()) return;
        l.router = matrix(name + "router", parts.router);
        l.expert_gate_up = expert_rows(name + "expert gate_up", parts.expert_gate_up);
        (void)type_of_all(parts.expert_down);
        l.expert_down = matrix(name + "expert down", parts.expert_down, KEEL_USE_EXPERTS);
        l.shared_router = matrix(name + "shared router", parts.shared_router);
    }

  private:
    void advance(uint64_t bytes) {
        done_ += bytes;
        if (options_.progress) options_.progress(std::min(done_, total_), total_);
    }

    Executor &executor_;
    std::shared_ptr<const ModelSource> source_;
    const LoadOptions &options_;
    uint64_t total_, done_ = 0;
    std::shared_ptr<ConversionMemory> memory_ = std::make_shared<ConversionMemory>();
};

std::vector<Weight *> LayerWeights::matrices() const {
    std::vector<Weight *> all;
    const auto add = [&](const std::unique_ptr<Weight> &weight) {
        if (weight != nullptr) all.push_back(weight.get());
    };
    std::for_each(qkv.begin(), qkv.end(), add);
    add(attention_out);
    std::for_each(gate_up.begin(), gate_up.end(), add);
    add(down);
    add(router);
    std::for_each(expert_gate_up.begin(), expert_gate_up.end(), add);
    add(expert_down);
    add(shared_router);
    return all;
}

WeightBytes weight_bytes(const ModelSource &source, const LoadOptions &options) {
    const ModelConfig &c = source.config();
    const LayerRange part = options.part.value_or(LayerRange{0, c.layers});
    WeightBytes bytes;
    uint64_t loaded = 0; // by the last call of add()
    const auto add = [&](const WeightParts &weight) {
        loaded = 0;
        for (const WeightParts::Part &p : weight.parts) {
            const TensorInfo *tensor = source.find(p.tensor);
            if (tensor == nullptr) continue;
            bytes.stored += tensor->bytes;
            loaded += weight.as_f32 ? static_cast<uint64_t>(tensor->elements()) * sizeof(float)
                                    : loaded_bytes(*tensor, options.dtype, options.weight_dtypes);
        }
        bytes.loaded += loaded;
        if (weight.cols == 0) return;
        bytes.per_token += weight.experts == 0 ? loaded
                                               : loaded / static_cast<uint64_t>(c.experts.count) *
                                                     static_cast<uint64_t>(c.experts.used);
    };
    const ModelParts model = model_parts(c);
    const bool ends = part.end == c.layers, is_tied = model.output.empty();
    if (part.first == 0 || (ends && is_tied)) {
        add(model.embedding);
        if (!ends || !is_tied) bytes.per_token -= loaded; // a decode step reads one row
    }
    if (ends) {
        add(model.final_norm);
        add(model.output);
    }
    for (int64_t i = part.first; i < part.end; ++i) {
        const LayerParts layer = layer_parts(c, i);
        for (const WeightParts *weight : layer.all()) add(*weight);
    }
    return bytes;
}

ModelWeights::ModelWeights(Executor &executor, std::shared_ptr<const ModelSource> source,
                           const LoadOptions &wanted)
    : source_(std::move(source)) {
    LoadOptions options = wanted;
    options.weight_dtypes = executor.device().info().weight_dtypes;
    const ModelConfig &c = source_->config();
    part_ = options.part.value_or(LayerRange{0, c.layers});
    check_model_tensors(*source_); // checks all tensors before it reads the first one
    const WeightBytes bytes = weight_bytes(*source_, options);
    require_memory(bytes.loaded, source_->path(),
                   "free some memory, or set model.weights to a smaller type (q8_0, q4_0)",
                   options.memory ? *options.memory : memory_info());
    // A conversion that the user asked for is logged as info. A conversion that Keel needs is a
    // warning.
    for (const Conversion &conversion :
         source_->conversions(options.dtype, options.weight_dtypes)) {
        if (part_.first > 0) break; // an earlier part of the model has already logged it
        log().write(options.dtype == KEEL_DTYPE_NONE ? LogLevel::warn : LogLevel::info,
                    fmt::format("{}: {}", source_->path(), conversion_text(conversion)));
    }
    Loader load(executor, source_, options, bytes.stored);
    const ModelParts model = model_parts(c);
    const bool begins = part_.first == 0, ends = part_.end == c.layers;
    tied_output_ = ends && model.output.empty();
    if (begins || tied_output_) {
        embedding_ = load.matrix("embedding", model.embedding,
                                 (begins ? uint32_t{KEEL_USE_EMBED} : 0) |
                                     (tied_output_ ? uint32_t{KEEL_USE_MATMUL} : 0));
    }
    for (int64_t i = part_.first; i < part_.end; ++i)
        load.layer(layer_parts(c, i), fmt::format("layer {}: ", i), c.norm_offset,
                   layers_.emplace_back());
    if (!ends) return;
    // The norm's factor also scales the logits, because the output projection is linear.
    final_norm_ = load.vectors(model.final_norm, c.norm_offset, c.logit_scale);
    output_ = load.matrix("output", model.output);
}

uint64_t ModelWeights::bytes_per_token(const Device &device, uint32_t tokens) const {
    uint64_t bytes = has_output() ? (output_ ? *output_ : *embedding_).bytes(device) : 0;
    const Experts &e = config().experts;
    const double share =
        e.count == 0 ? 1 : static_cast<double>(e.used) / static_cast<double>(e.count);
    const double read = tokens == 1 ? share : 1 - std::pow(1 - share, tokens); // of the experts
    for (const LayerWeights &l : layers_) {
        for (const Weight *w : l.matrices()) {
            const auto all = w->bytes(device);
            bytes += w->experts() <= 1
                         ? all
                         : static_cast<uint64_t>(std::llround(static_cast<double>(all) * read));
        }
    }
    return bytes;
}

uint64_t ModelWeights::bytes(const Device &device) const {
    uint64_t bytes = 0;
    if (embedding_) bytes += embedding_->bytes(device);
    if (output_) bytes += output_->bytes(device);
    for (const LayerWeights &l : layers_) {
        for (const Weight *w : l.matrices()) bytes += w->bytes(device);
    }
    return bytes;
}

std::string ModelWeights::dtype_name() const {
    std::set<std::string> names;
    if (embedding_) names.insert(keel_dtype_name(embedding_->dtype()));
    if (output_) names.insert(keel_dtype_name(output_->dtype()));
    for (const LayerWeights &l : layers_) {
        for (const Weight *w : l.matrices())
            if (w != l.router.get() && w != l.shared_router.get()) // these are always f32
                names.insert(keel_dtype_name(w->dtype()));
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace keel
