#include "support/mini_pipeline.hpp"

#include "support/temp_folder.hpp"
#include "support/tiny_writer.hpp"

#include <numeric>

namespace keel::test {
namespace {

std::shared_ptr<const ModelSource> mini_source() {
    static const TempFolder folder;
    static const std::shared_ptr<const ModelSource> source = [] {
        MiniLlama model;
        model.hidden = 32;
        model.intermediate = 48;
        model.vocab = 96;
        model.attention_bias = true;
        model.std_dev = 0.3;
        make_mini_llama(folder.path(), model);
        return open_model_source(folder.path());
    }();
    return source;
}

LoadOptions load_options() {
    LoadOptions options;
    options.max_m = 8;
    return options;
}

GraphOptions graph_options(const keel_kv_view *kv) {
    GraphOptions options;
    options.max_tokens = 8;
    options.kv = kv;
    options.rope_rows = 64;
    return options;
}

struct Expected {
    std::vector<int32_t> tokens;
    std::vector<float> logits;
};

const Expected &expected() {
    static const Expected e = [] {
        MiniPipeline p(Device::open_reference(std::make_shared<HostServices>(1)));
        Expected made;
        made.tokens = p.generate();
        made.logits = p.logits();
        return made;
    }();
    return e;
}

} // namespace

KvShape MiniPipeline::shape_of(const ModelConfig &c) const {
    KvShape s;
    s.layers = static_cast<uint32_t>(c.layers);
    s.heads = static_cast<uint32_t>(c.heads);
    s.kv_heads = static_cast<uint32_t>(c.kv_heads);
    s.head_dim = static_cast<uint32_t>(c.head_dim);
    s.key_dtype = s.value_dtype = KEEL_DTYPE_F32;
    s.block_slots = 4;
    s.max_slots = 32;
    return s;
}

MiniPipeline::MiniPipeline(std::shared_ptr<Device> device, Executor::Options options)
    : executor(std::move(device), std::move(options)),
      weights(executor, mini_source(), load_options()), shape(shape_of(weights.config())),
      kv_template(shape), graph(executor, weights, graph_options(kv_template.view())),
      cache(executor, shape, executor.placement()) {}

void MiniPipeline::prefill() {
    cache.clear();
    const std::vector<int32_t> ids = {7, 3, 90, 41, 12};
    std::vector<int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    cache.append(positions, static_cast<int64_t>(ids.size()));
    graph.forward({.positions = positions, .kv = cache.views(), .ids = ids, .logit_rows = 1});
    position_ = static_cast<int32_t>(ids.size());
}

int32_t MiniPipeline::step(int32_t id) {
    const std::vector<int32_t> position = {position_++};
    cache.append(position, 1);
    graph.forward({.positions = position, .kv = cache.views(), .ids = {&id, 1}, .logit_rows = 1});
    graph.next().queue_argmax();
    return graph.next().ids().read<int32_t>().front();
}

std::vector<int32_t> MiniPipeline::generate(int tokens) {
    prefill();
    graph.next().queue_argmax();
    std::vector<int32_t> out = graph.next().ids().read<int32_t>();
    while (static_cast<int>(out.size()) < tokens) out.push_back(step(out.back()));
    return out;
}

const std::vector<int32_t> &expected_tokens() { return expected().tokens; }
const std::vector<float> &expected_logits() { return expected().logits; }

} // namespace keel::test
