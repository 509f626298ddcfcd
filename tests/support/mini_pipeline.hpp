#pragma once

#include "graph/graph.hpp"
#include "kv/store/kv_cache.hpp"
#include "ops/executor.hpp"
#include "support/wrapping_backend.hpp"

#include <memory>
#include <string>
#include <vector>

namespace keel::test {

// A complete decoder on a random model of two layers that is written when the test runs. It uses
// the device layer as Keel does.
class MiniPipeline {
  public:
    explicit MiniPipeline(std::shared_ptr<Device> device, Executor::Options options = {});

    // Generates greedy text after a prompt of five tokens, with an empty cache.
    std::vector<int32_t> generate(int tokens = 6);
    // Runs one decode step with `id`. Returns the next token.
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

// Returns the tokens that the reference backend generates alone.
const std::vector<int32_t> &expected_tokens();
const std::vector<float> &expected_logits();

} // namespace keel::test
