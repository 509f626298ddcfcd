#include "model/weights.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "model/model_tensors.hpp"
#include "platform/memory.hpp"

#include <array>
#include <cstring>
#include <set>

namespace keel {

// Takes tensors out of the source one after the other, in the order of the layers.
class ModelWeights::Loader {
  public:
    Loader(Executor &executor, std::shared_ptr<const ModelSource> source, const LoadOptions &options)
        : executor_(executor), source_(std::move(source)), options_(options) {}

    // Rows of several matrices one after the other; none if the model has no such weight.
    std::unique_ptr<Weight> matrix(const std::string &name, const WeightParts &weight_parts,
                                   uint32_t use = KEEL_USE_MATMUL) {
        if (weight_parts.empty()) return nullptr;
        const int64_t cols = weight_parts.cols;
        std::vector<const TensorInfo *> tensors;
        keel_dtype dtype = options_.dtype;
        int64_t rows = 0;
        for (const WeightParts::Part &part : weight_parts.parts) {
            rows += part.rows;
            tensors.push_back(&source_->expect(part.tensor, {part.rows, cols}));
        }
        if (dtype == KEEL_DTYPE_NONE) dtype = joined_dtype(name, tensors);
        const auto make = [source = source_, tensors, dtype, parallel = options_.parallel] {
            std::vector<WeightSource> sources;
            for (const TensorInfo *tensor : tensors)
                sources.push_back(take(source, *tensor, dtype, parallel));
            return sources;
        };
        auto weight =
            std::make_unique<Weight>(name, dtype, rows, cols, make, KEEL_JOIN_ROWS, use, options_.max_m);
        weight->prepare(executor_.device());
        // Pages of the file that nobody reads in place go back to the system.
        for (const TensorInfo *tensor : tensors) {
            if (!weight->sources_needed() || !source_->in_place(*tensor, dtype)) source_->drop(*tensor);
            advance(tensor->bytes);
        }
        return weight;
    }

    // Short f32 vectors, one after the other in one tensor, `offset` added to each element; empty if the model has no such weight.
    Tensor vectors(const WeightParts &weight_parts, double offset = 0) {
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
            for (float &value : values)
                value += static_cast<float>(offset);
        }
        Tensor out = Tensor::allocate(executor_.device(), KEEL_DTYPE_F32,
                                      {static_cast<int64_t>(values.size())}, executor_.placement());
        out.write(values.data());
        return out;
    }

  private:
    // Parts that were stored in different types can be joined only in one: f32, which holds all of them, or q8_0 for parts that are all
    // in blocks already.
    static keel_dtype joined_dtype(const std::string &name, const std::vector<const TensorInfo *> &tensors) {
        const keel_dtype first = tensors.front()->compute_dtype();
        bool mixed = false, blocks = true;
        for (const TensorInfo *tensor : tensors) {
            mixed = mixed || tensor->compute_dtype() != first;
            blocks = blocks && keel_dtype_block(tensor->compute_dtype()) > 1;
        }
        if (!mixed) return first;
        const keel_dtype joined = blocks ? KEEL_DTYPE_Q8_0 : KEEL_DTYPE_F32;
        log().warn("{}: its parts are stored in different types; it is held as {}", name,
                   keel_dtype_name(joined));
        return joined;
    }

    // The tensor in place in its mapping, or converted into memory of its own.
    static WeightSource take(const std::shared_ptr<const ModelSource> &source, const TensorInfo &tensor,
                             keel_dtype dtype, const ParallelFor &parallel) {
        const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
        const MappedFile &file = source->file(tensor);
        if (source->in_place(tensor, dtype)) {
            return {source, file.bytes().data(), file.size(), tensor.offset, dtype, rows, cols};
        }
        const std::string what = fmt::format("{}: {}", file.path(), tensor.name);
        if (cols % keel_dtype_block(dtype) != 0) {
            throw_error(ErrorKind::input, "{}: rows of {} elements cannot be {}: not a multiple of {}", what,
                        cols, keel_dtype_name(dtype), keel_dtype_block(dtype));
        }
        const uint64_t size =
            static_cast<uint64_t>(rows) * keel_dtype_row_bytes(dtype, static_cast<uint64_t>(cols));
        auto memory = std::make_shared<PageBuffer>(size, what);
        source->convert(tensor, dtype, memory->data(), parallel);
        const void *data = memory->data();
        return {std::shared_ptr<const void>(memory, data), data, size, 0, dtype, rows, cols};
    }

    void advance(uint64_t bytes) {
        done_ += bytes;
        if (options_.progress)
            options_.progress(std::min(done_, source_->total_bytes()), source_->total_bytes());
    }

    Executor &executor_;
    std::shared_ptr<const ModelSource> source_;
    const LoadOptions &options_;
    uint64_t done_ = 0;
};

namespace {

// What the weights will take at most: the stored matrices once more in the backend's layout, or in the dtype asked for.
uint64_t memory_needed(const ModelSource &source, keel_dtype dtype) {
    uint64_t bytes = 0;
    for (const TensorInfo &tensor : source.tensors())
        bytes += loaded_bytes(tensor, dtype);
    return bytes;
}

} // namespace

ModelWeights::ModelWeights(Executor &executor, std::shared_ptr<const ModelSource> source,
                           const LoadOptions &options)
    : source_(std::move(source)) {
    const ModelConfig &c = source_->config();
    check_model_tensors(*source_); // all of them before the first is read
    require_memory(memory_needed(*source_, options.dtype), source_->path(),
                   "free some, or set model.weights to a smaller type (q8_0, q4_0)", memory_info());
    // What the user asked for needs no warning, what Keel cannot do does.
    for (const Conversion &conversion : source_->conversions(options.dtype)) {
        log().log(options.dtype == KEEL_DTYPE_NONE ? spdlog::level::warn : spdlog::level::info, "{}: {}",
                  source_->path(), conversion_text(conversion));
    }
    Loader load(executor, source_, options);
    const auto norm = [&](const WeightParts &parts) { return load.vectors(parts, c.norm_offset); };
    const ModelParts model = model_parts(c);
    embedding_ = load.matrix("embedding", model.embedding,
                             KEEL_USE_EMBED | (c.tied_embeddings ? uint32_t{KEEL_USE_MATMUL} : 0));
    for (int64_t i = 0; i < c.layers; ++i) {
        const LayerParts parts = layer_parts(c, i);
        const std::string name = fmt::format("layer {}: ", i);
        LayerWeights &l = layers_.emplace_back();
        l.attention_norm = norm(parts.attention_norm);
        l.qkv = load.matrix(name + "qkv", parts.qkv);
        l.qkv_bias = load.vectors(parts.qkv_bias);
        l.q_norm = norm(parts.q_norm);
        l.k_norm = norm(parts.k_norm);
        l.attention_out = load.matrix(name + "attention_out", parts.attention_out);
        l.attention_out_bias = load.vectors(parts.attention_out_bias);
        l.post_attention_norm = norm(parts.post_attention_norm);
        l.ffn_norm = norm(parts.ffn_norm);
        l.gate_up = load.matrix(name + "gate_up", parts.gate_up);
        l.gate_up_bias = load.vectors(parts.gate_up_bias);
        l.down = load.matrix(name + "down", parts.down);
        l.down_bias = load.vectors(parts.down_bias);
        l.post_ffn_norm = norm(parts.post_ffn_norm);
    }
    final_norm_ = norm(model.final_norm);
    output_ = load.matrix("output", model.output);
}

uint64_t ModelWeights::bytes_per_token(const Device &device) const {
    uint64_t bytes = (output_ ? *output_ : *embedding_).bytes(device);
    for (const LayerWeights &l : layers_) {
        for (const Weight *w : {l.qkv.get(), l.attention_out.get(), l.gate_up.get(), l.down.get()})
            bytes += w->bytes(device);
    }
    return bytes;
}

uint64_t ModelWeights::bytes(const Device &device) const {
    return bytes_per_token(device) + (output_ ? embedding_->bytes(device) : 0);
}

std::string ModelWeights::dtype_name() const {
    std::set<std::string> names{keel_dtype_name(embedding_->dtype())};
    for (const LayerWeights &l : layers_) {
        for (const Weight *w : {l.qkv.get(), l.attention_out.get(), l.gate_up.get(), l.down.get()})
            names.insert(keel_dtype_name(w->dtype()));
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace keel
