#include "run/engine.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <set>

namespace keel {

uint32_t Engine::prefill_chunk() const {
    return static_cast<uint32_t>(
        std::min<int64_t>(device().info().prefill_chunk, kv_shape.max_slots));
}

bool uses_system_memory(const Device &device) {
    const keel_device_info &info = device.device_info();
    return info.type == KEEL_DEVICE_CPU || (info.flags & KEEL_DEVICE_UNIFIED) != 0;
}

MemoryInfo memory_of(const Device &device) {
    if (uses_system_memory(device)) return memory_info();
    const keel_device_info &info = device.device_info();
    const keel_mem_info own = device.mem_info();
    const uint64_t total = own.total != 0 ? own.total : info.total_bytes;
    const std::string name = fmt::format("device '{}'", info.name);
    if (own.free != 0) return {std::max(total, own.free), own.free, name};
    return {total, total - std::min(total, own.ours),
            name + ", which does not tell how much is free"};
}

uint64_t Engine::window_bytes() const {
    const KvShape &s = split.only_holds() ? kv_shape : windowed.shape;
    return s.bytes_of(windowed.slots) * kv_shape.sequences;
}

uint64_t Engine::held_window_bytes() const {
    const KvShape &main = policy_setup->shape();
    if (main.window > 0) return main.bytes_of(main.max_slots);
    return windowed.shape.bytes_of(most_window_slots(kv_shape.max_slots));
}

int64_t Engine::most_window_slots(int64_t context) const {
    const int64_t slots = windowed.shape.max_slots;
    return policy_setup->config().evicts ? slots : std::min(slots, context);
}

uint64_t Engine::bytes_per_token() const {
    return policy_setup->shape().window > 0 ? 0 : kv_shape.bytes_per_token();
}

uint64_t Engine::table_bytes(const ModelConfig &model, int64_t context) const {
    KvShape shape = kv_shape;
    shape.max_slots = context;
    const uint64_t windowed_books = windowed.shape.layers > 0 ? windowed.shape.book_bytes() : 0;
    return shape.book_bytes() + windowed_books +
           RopeTables::bytes(context, model.rot) * (model.has_two_ropes() ? 2 : 1);
}

void Engine::load(const std::shared_ptr<const ModelSource> &source, const LoadOptions &options,
                  uint32_t max_logit_rows, uint32_t batch) {
    const uint32_t chunk = prefill_chunk();
    weights = std::make_unique<ModelWeights>(*executor, source, options);
    KvShape largest = kv_shape;
    largest.max_slots = std::max(largest.max_slots, windowed.slots);
    largest.sequences = std::max(largest.sequences, windowed.shape.sequences);
    kv_template = std::make_unique<KvTemplate>(largest);
    GraphOptions g;
    g.max_tokens = chunk;
    g.max_logit_rows = std::min(max_logit_rows, chunk);
    g.kv = kv_template->view();
    g.taps = policy_setup->tap_forms();
    g.untapped = windowed.has_window;
    g.context = rope_context;
    g.rope_rows = std::max<int64_t>(kv_shape.max_slots, chunk);
    g.batch = batch;
    if (batch > 1) {
        batch_template = std::make_unique<BatchTemplate>(largest, batch);
        g.batch_kv = batch_template->view();
    }
    graph = std::make_unique<Graph>(*executor, *weights, g);
}

std::vector<const PlannedOp *> Engine::ops() const {
    std::vector<const PlannedOp *> all = graph->ops(StepForm::decode);
    for (const auto &more : {graph->ops(StepForm::prefill), graph->ops(StepForm::batch),
                             graph->taps().list(), policy_setup->ops()})
        all.insert(all.end(), more.begin(), more.end());
    std::set<const PlannedOp *> seen;
    std::erase_if(all, [&](const PlannedOp *op) { return !seen.insert(op).second; });
    return all;
}

} // namespace keel
