#pragma once

#include "graph/graph.hpp"
#include "kv/store/kv_cache.hpp"
#include "ops/executor.hpp"
#include "support/wrapping_backend.hpp"

#include <memory>
#include <string>
#include <vector>

namespace keel::test {

// A whole decoder on a random model of two layers, written at test time: what the device layer
// exists for.
class MiniPipeline {
  public:
    explicit MiniPipeline(std::shared_ptr<Device> device, Executor::Options options = {});

    // Greedy text after a prompt of five tokens. Begins with an empty cache.
    std::vector<int32_t> generate(int tokens = 6);
    // One decode step with `id`; the token that follows.
    int32_t step(int32_t id);
    void prefill();
    std::vector<float> logits() const {
        return graph.next().logits(1).read<float>();
    } // of the last step

    Executor executor;
    ModelWeights weights;
    KvShape shape;
    KvTemplate kv_template;
    Graph graph;
    KvCache cache;

  private:
    KvShape shape_of(const ModelConfig &config) const;
    int32_t position_ = 0;
};

// What the reference alone generates.
const std::vector<int32_t> &expected_tokens();
const std::vector<float> &expected_logits();

} // namespace keel::test
