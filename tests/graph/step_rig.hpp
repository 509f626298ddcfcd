#pragma once

#include "graph/graph.hpp"
#include "kv/store/kv_cache.hpp"
#include "ops/executor.hpp"
#include "support/arch_miniature.hpp"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace keel::test {

// A tap that requests every by-product of every layer.
class WantsAll final : public StepTap {
  public:
    WantsAll(Device &device, const ModelConfig &config, int64_t tokens, int64_t slots);
    static TapForms forms() { return {true, true, true}; }
    Places places(uint32_t layer) override;
    void after_attention(uint32_t layer, const Tensor &q) override;

  private:
    Tensor queries_, unrotated_, sums_;
    keel_scores scores_ = {KEEL_HEADER(keel_scores)};
    bool one_token_;
};

// A miniature model on the reference backend, with three sequences. It runs steps of every form and
// records their ops.
class StepRig {
  public:
    static constexpr uint32_t sequences = 3;

    StepRig(const std::filesystem::path &model, std::shared_ptr<Device> device,
            std::optional<LayerRange> part = {})
        : StepRig(open_model_source(model), std::move(device), part) {}
    StepRig(std::shared_ptr<const ModelSource> model, std::shared_ptr<Device> device,
            std::optional<LayerRange> part = {});

    // Returns one line for each op that `step` runs. The line has the label, the op, the features,
    // and for each tensor its shape, its offset and the number of its buffer.
    template <typename Step> std::vector<std::string> ops_of(const Step &step) {
        watch();
        step();
        return stop();
    }
    // The tags of the ops of the last ops_of() call.
    const std::vector<OpTag> &tags() const { return tags_; }

    void prefill(uint32_t logit_rows, bool tapped = false); // five tokens of sequence 0
    void decode(bool tapped = false);                       // one token of sequence 0
    // one token of each sequence; the tap is on the second sequence
    void decode_batch(bool tapped = false);
    // The logits of the last two tokens of a prefill, then those of decode_batch().
    std::vector<float> logits();

    // Makes slots for tokens. Returns the positions of the tokens.
    std::vector<int32_t> append(size_t sequence, int64_t tokens);

    Executor executor;
    ModelWeights weights;
    KvShape shape;
    KvTemplate kv_template;
    Graph graph;
    std::array<std::unique_ptr<KvCache>, sequences> caches;

  private:
    // `tapped` is the index of the segment that has a tap.
    void forward(std::vector<Segment> segments, std::optional<size_t> tapped);
    void watch();
    std::vector<std::string> stop();

    std::array<int32_t, sequences> lengths_{};
    std::vector<std::string> lines_;
    std::vector<OpTag> tags_;                  // tags of the recorded lines
    std::vector<const keel_buffer *> buffers_; // in the order of their first use
};

// Returns the folder of a miniature model, which is written once. If `mixed` is true, the value
// projection has another dtype.
std::filesystem::path miniature_folder(const std::string &name, bool mixed);

} // namespace keel::test
