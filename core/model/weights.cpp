#include "model/weights.hpp"

#include "base/convert.hpp"
#include "base/error.hpp"
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

    // Rows of several tensors one after the other: {name, rows}, all with `cols` columns.
    std::unique_ptr<Weight> matrix(const std::string &name,
                                   const std::vector<std::pair<std::string, int64_t>> &parts, int64_t cols,
                                   uint32_t use = KEEL_USE_MATMUL) {
        std::vector<const TensorInfo *> tensors;
        keel_dtype dtype = options_.dtype;
        bool mixed = false;
        for (const auto &[part, rows] : parts) {
            tensors.push_back(&source_->expect(part, {rows, cols}));
            mixed = mixed || tensors.back()->dtype != tensors.front()->dtype;
        }
        // Parts that were stored in different types can be joined only in one.
        if (dtype == KEEL_DTYPE_NONE) dtype = mixed ? keel_dtype{KEEL_DTYPE_F32} : tensors.front()->dtype;
        int64_t rows = 0;
        for (const auto &part : parts)
            rows += part.second;
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
        const bool in_place = weight->sources_needed() && dtype == tensors.front()->dtype;
        for (const TensorInfo *tensor : tensors) {
            if (!in_place) source_->drop(*tensor);
            advance(tensor->bytes);
        }
        return weight;
    }

    Tensor vector(const std::string &name, int64_t n) { return vectors({{name, n}}); }

    // Short f32 vectors, one after the other in one tensor.
    Tensor vectors(const std::vector<std::pair<std::string, int64_t>> &parts) {
        std::vector<float> values;
        for (const auto &[name, n] : parts) {
            const TensorInfo &tensor = source_->expect(name, {n});
            const size_t at = values.size();
            values.resize(at + static_cast<size_t>(n));
            convert_to_f32(tensor.dtype, source_->bytes(tensor).data(), values.data() + at,
                           static_cast<size_t>(n));
            advance(tensor.bytes);
        }
        Tensor out = Tensor::allocate(executor_.device(), KEEL_DTYPE_F32,
                                      {static_cast<int64_t>(values.size())}, executor_.placement());
        out.write(values.data());
        return out;
    }

  private:
    // The tensor in place in its mapping, or converted into memory of its own.
    static WeightSource take(const std::shared_ptr<const ModelSource> &source, const TensorInfo &tensor,
                             keel_dtype dtype, const ParallelFor &parallel) {
        const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
        const std::span<const std::byte> bytes = source->bytes(tensor);
        const MappedFile &file = source->file(tensor);
        if (dtype == tensor.dtype) {
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
        convert_rows(tensor.dtype, bytes.data(), dtype, memory->data(), static_cast<size_t>(rows),
                     static_cast<size_t>(cols), what, parallel);
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
    for (const TensorInfo &tensor : source.tensors()) {
        const bool converted = dtype != KEEL_DTYPE_NONE && tensor.shape.size() == 2;
        bytes += converted ? static_cast<uint64_t>(tensor.elements()) / keel_dtype_block(dtype) *
                                 keel_dtype_bytes(dtype)
                           : tensor.bytes;
    }
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
    Loader load(executor, source_, options);
    embedding_ = load.matrix("embedding", {{"model.embed_tokens.weight", c.vocab_size}}, c.hidden_size,
                             KEEL_USE_EMBED | (c.tied_embeddings ? uint32_t{KEEL_USE_MATMUL} : 0));
    for (int64_t i = 0; i < c.layers; ++i) {
        const std::string in = fmt::format("model.layers.{}.", i), out = fmt::format("layer {}: ", i);
        const std::string q = in + "self_attn.q_proj.", k = in + "self_attn.k_proj.",
                          v = in + "self_attn.v_proj.";
        const std::string o = in + "self_attn.o_proj.", gate = in + "mlp.gate_proj.",
                          up = in + "mlp.up_proj.", down = in + "mlp.down_proj.";
        LayerWeights &l = layers_.emplace_back();
        l.attention_norm = load.vector(in + "input_layernorm.weight", c.hidden_size);
        l.qkv = load.matrix(
            out + "qkv",
            {{q + "weight", c.q_size()}, {k + "weight", c.kv_size()}, {v + "weight", c.kv_size()}},
            c.hidden_size);
        if (c.attention_bias) {
            l.qkv_bias = load.vectors(
                {{q + "bias", c.q_size()}, {k + "bias", c.kv_size()}, {v + "bias", c.kv_size()}});
            l.attention_out_bias = load.vector(o + "bias", c.hidden_size);
        }
        l.attention_out = load.matrix(out + "attention_out", {{o + "weight", c.hidden_size}}, c.q_size());
        l.ffn_norm = load.vector(in + "post_attention_layernorm.weight", c.hidden_size);
        l.gate_up = load.matrix(
            out + "gate_up", {{gate + "weight", c.intermediate_size}, {up + "weight", c.intermediate_size}},
            c.hidden_size);
        l.down = load.matrix(out + "down", {{down + "weight", c.hidden_size}}, c.intermediate_size);
        if (c.mlp_bias) {
            l.gate_up_bias =
                load.vectors({{gate + "bias", c.intermediate_size}, {up + "bias", c.intermediate_size}});
            l.down_bias = load.vector(down + "bias", c.hidden_size);
        }
    }
    final_norm_ = load.vector("model.norm.weight", c.hidden_size);
    if (!c.tied_embeddings)
        output_ = load.matrix("output", {{"lm_head.weight", c.vocab_size}}, c.hidden_size);
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
