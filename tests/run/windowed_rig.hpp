// Models with attention windows that are made when the test runs: miniatures of tests/golden with
// the tokenizer of models/tiny. The cache treats each of their shapes differently.
#pragma once

#include "run/generate.hpp"
#include "support/arch_miniature.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include <string>
#include <vector>

namespace keel::test {

// Returns a model with `layers` layers, which repeat the layers of the miniature.
inline Miniature with_layers(Miniature m, int64_t layers) {
    const int64_t own = m.config.at("num_hidden_layers");
    const std::string prefix = "model.layers.";
    std::vector<Miniature::Tensor> more;
    for (const Miniature::Tensor &t : m.tensors) {
        if (!t.name.starts_with(prefix)) continue;
        const int64_t layer = std::stoll(t.name.substr(prefix.size()));
        const std::string rest = t.name.substr(t.name.find('.', prefix.size()));
        for (int64_t l = layer + own; l < layers; l += own) {
            more.push_back(t);
            more.back().name = prefix + std::to_string(l) + rest;
        }
    }
    m.tensors.insert(m.tensors.end(), more.begin(), more.end());
    m.config["num_hidden_layers"] = layers;
    return m;
}

// Returns the model with another number of KV heads, and with another size of all heads.
inline Miniature with_heads(Miniature m, int64_t kv_heads, int64_t head_dim) {
    const int64_t heads = m.config.at("num_attention_heads");
    m.config["num_key_value_heads"] = kv_heads;
    m.config["head_dim"] = head_dim;
    for (Miniature::Tensor &t : m.tensors) {
        const auto is = [&](const char *part) { return t.name.find(part) != std::string::npos; };
        if (is("q_proj")) t.shape[0] = heads * head_dim;
        if (is("k_proj") || is("v_proj")) t.shape[0] = kv_heads * head_dim;
        if (is("o_proj.weight")) t.shape[1] = heads * head_dim;
        if (is("q_norm") || is("k_norm")) t.shape[0] = head_dim;
    }
    return m;
}

// Returns the model with the vocabulary size of models/tiny, so that its tokenizer fits.
inline Miniature with_tiny_vocabulary(Miniature m, int64_t vocabulary) {
    m.config["vocab_size"] = vocabulary;
    for (Miniature::Tensor &t : m.tensors) {
        if (t.name.find("embed_tokens") != std::string::npos ||
            t.name.find("lm_head") != std::string::npos)
            t.shape[0] = vocabulary;
    }
    return m;
}

// The shapes in the table of docs/reference/models.md. All windows are 40 tokens.
//   llama    no windows
//   gemma3   6 layers, of which 2 see all tokens; 1 KV head of 256 elements
//   gemma2   4 layers, of which 2 see all tokens; soft-capped attention
//   mistral  2 layers, all with a window
inline Miniature windowed_model(const std::string &shape) {
    Miniature m;
    if (shape == "llama") m = read_miniature("llama_biases");
    if (shape == "gemma3") m = with_heads(with_layers(read_miniature("gemma3"), 6), 1, 256);
    if (shape == "gemma2") m = with_layers(read_miniature("gemma2"), 4);
    if (shape == "mistral") m = read_miniature("mistral");
    if (m.config.contains("sliding_window")) m.config["sliding_window"] = 40;
    m.config["max_position_embeddings"] = 4096;
    return with_tiny_vocabulary(std::move(m), 4096);
}

// Returns the folder of the model, which all tests of this program share.
inline const std::filesystem::path &windowed_folder(const std::string &shape) {
    static std::map<std::string, std::unique_ptr<TempFolder>> made;
    std::unique_ptr<TempFolder> &folder = made[shape];
    if (!folder) {
        folder = std::make_unique<TempFolder>();
        write_miniature(folder->path(), windowed_model(shape));
        const std::filesystem::path tiny = std::string(KEEL_SOURCE_DIR) + "/models/tiny";
        for (const char *file : {"tokenizer.json", "tokenizer_config.json"}) {
            if (std::filesystem::exists(tiny / file))
                std::filesystem::copy_file(tiny / file, folder->path() / file);
        }
    }
    return folder->path();
}

using Sets = std::vector<std::string>;

inline Sets windowed_sets(const std::string &shape, const std::string &backend, Sets more = {}) {
    Sets sets{"model.path=" + windowed_folder(shape).string(),
              "model.weights=f32",
              "kv.dtype=f32",
              "strict=true",
              "backend.plugin=" + backend,
              "sampling.temperature=0"};
    if (backend == "cpu") sets.emplace_back("backend.params.compute=exact");
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
}

// Returns n tokens of a text without repetitions.
inline std::vector<int32_t> some_tokens(int64_t n) {
    std::vector<int32_t> ids;
    uint32_t state = 12345;
    for (int64_t i = 0; i < n; ++i) {
        state = state * 1664525U + 1013904223U;
        ids.push_back(static_cast<int32_t>(10 + (state >> 16) % 180));
    }
    return ids;
}

// The same model with a single cache that keeps all tokens in all layers.
class UncutRun {
  public:
    explicit UncutRun(Pipeline &pipeline) : pipeline_(pipeline) {
        KvShape shape = pipeline.kv_shape();
        shape.layers = static_cast<uint32_t>(pipeline.model().layers);
        shape.window = 0;
        shape.max_bytes = 0;
        cache_ = std::make_unique<KvCache>(pipeline.executor(), shape, pipeline.placement());
    }
    // Reads tokens in one step. Returns the logits of the last token.
    std::vector<float> step(std::span<const int32_t> ids) {
        std::vector<int32_t> positions(ids.size());
        std::iota(positions.begin(), positions.end(), static_cast<int32_t>(cache_->max_length()));
        cache_->append(positions, std::ssize(ids));
        pipeline_.graph().forward(
            {.positions = positions, .kv = cache_->views(), .ids = ids, .logit_rows = 1});
        std::vector<float> logits(static_cast<size_t>(pipeline_.model().vocab_size));
        pipeline_.graph().next().read_logits(1, logits.data());
        return logits;
    }

  private:
    Pipeline &pipeline_;
    std::unique_ptr<KvCache> cache_;
};

inline double worst_gap(std::span<const float> a, std::span<const float> b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
    return worst;
}

// Feeds a session and the uncut run with the same steps: prompts of `chunks` tokens, then `decoded`
// tokens one by one. Returns the largest difference of the logits.
inline double gap_to_uncut(Session &session, UncutRun &uncut, const std::vector<size_t> &chunks,
                           int64_t decoded) {
    const auto prompt = std::accumulate(chunks.begin(), chunks.end(), size_t{0});
    const std::vector<int32_t> ids = some_tokens(static_cast<int64_t>(prompt) + decoded);
    double worst = 0;
    size_t done = 0;
    for (const size_t n : chunks) {
        const auto some = std::span(ids).subspan(done, n);
        session.prefill(some, false);
        const std::vector<float> mine(session.logits().begin(), session.logits().end());
        worst = std::max(worst, worst_gap(mine, uncut.step(some)));
        done += n;
    }
    for (; done < ids.size(); ++done) {
        session.decode(ids[done]);
        const std::vector<float> mine(session.logits().begin(), session.logits().end());
        worst = std::max(worst, worst_gap(mine, uncut.step(std::span(ids).subspan(done, 1))));
    }
    return worst;
}

} // namespace keel::test
