#include "graph/step_rig.hpp"

#include "support/temp_folder.hpp"

#include <algorithm>

namespace keel::test {
namespace {

KvShape shape_of(const ModelConfig &c) {
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

LoadOptions load_options(std::optional<LayerRange> part) {
    LoadOptions options;
    options.max_m = 8;
    options.part = part;
    return options;
}

GraphOptions graph_options(const keel_kv_view *kv, bool is_whole) {
    GraphOptions options;
    options.max_tokens = 8;
    options.max_logit_rows = 2;
    options.kv = kv;
    options.rope_rows = 64;
    options.taps = WantsAll::forms();
    options.batch = is_whole ? StepRig::sequences : 1;
    return options;
}

std::string tensor_text(const keel_tensor &t, size_t buffer) {
    std::string text = fmt::format("{}[", keel_dtype_name(t.dtype));
    for (uint32_t i = 0; i < t.rank; ++i)
        text += fmt::format("{}{}", i == 0 ? "" : ",", t.shape[i]);
    return text + fmt::format("]@{}+{}", buffer, t.offset);
}

} // namespace

WantsAll::WantsAll(Device &device, const ModelConfig &config, int64_t tokens, int64_t slots)
    : queries_(Tensor::allocate(device, KEEL_DTYPE_F32, {tokens, config.heads, config.head_dim})),
      unrotated_(Tensor::allocate(device, KEEL_DTYPE_F32, {tokens, config.heads, config.head_dim})),
      sums_(Tensor::allocate(device, KEEL_DTYPE_F32, {config.kv_heads, slots})),
      one_token_(tokens == 1) {
    scores_.out = sums_.c();
    scores_.reduce_queries = KEEL_REDUCE_SUM;
    scores_.reduce_group = KEEL_REDUCE_MEAN;
    sums_.write(std::vector<float>(sums_.bytes() / sizeof(float)).data());
}

StepTap::Places WantsAll::places(uint32_t) {
    return {one_token_ ? &queries_ : nullptr, &unrotated_, &scores_};
}

void WantsAll::after_attention(uint32_t, const Tensor &) {}

StepRig::StepRig(std::shared_ptr<const ModelSource> model, std::shared_ptr<Device> device,
                 std::optional<LayerRange> part)
    : executor(std::move(device), {}), weights(executor, std::move(model), load_options(part)),
      shape(shape_of(weights.config())), kv_template(shape),
      graph(executor, weights, graph_options(kv_template.view(), !part)) {
    for (auto &cache : caches)
        cache = std::make_unique<KvCache>(executor, shape, executor.placement());
}

std::vector<int32_t> StepRig::append(size_t sequence, int64_t tokens) {
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < tokens; ++i) positions.push_back(lengths_[sequence]++);
    caches[sequence]->append(positions, tokens);
    return positions;
}

void StepRig::watch() {
    lines_.clear();
    tags_.clear();
    buffers_.clear();
    executor.set_observer([this](const PlannedOp &op, const keel_op_args *args, bool after) {
        if (!after) return;
        std::string line =
            fmt::format("{}: {} {:#x}", op.label(), op_name(op.op()), args->features);
        const OpCall copy(op.op(), args);
        for (const OpCall::Operand &slot : copy.tensors()) {
            const std::string_view name = slot.name;
            if (name == "w" || name.starts_with("kv.")) continue;
            const keel_tensor &t = slot.tensor;
            auto known = std::find(buffers_.begin(), buffers_.end(), t.buffer);
            if (known == buffers_.end()) known = buffers_.insert(known, t.buffer);
            line += fmt::format(" {}={}", name,
                                tensor_text(t, static_cast<size_t>(known - buffers_.begin())));
        }
        lines_.push_back(std::move(line));
        tags_.push_back(op.tag());
    });
}

std::vector<std::string> StepRig::stop() {
    executor.set_observer({});
    return std::move(lines_);
}

void StepRig::forward(std::vector<Segment> segments, std::optional<size_t> tapped) {
    const size_t hidden = static_cast<size_t>(weights.config().hidden_size);
    Segment &last = segments.back();
    WantsAll tap(executor.device(), weights.config(), last.tokens(), shape.max_slots);
    if (tapped) {
        segments[*tapped].tap = &tap;
        segments[*tapped].tap_ops = &graph.taps();
    }
    const std::vector<float> residual(last.tokens() * hidden, 0.5F);
    if (!weights.has_embedding()) {
        last.ids = {};
        last.residual = residual;
    }
    graph.forward(segments);
}

void StepRig::prefill(uint32_t logit_rows, bool tapped) {
    const std::vector<int32_t> ids = {7, 3, 90, 41, 12}, positions = append(0, 5);
    forward(
        {{.positions = positions, .kv = caches[0]->views(), .ids = ids, .logit_rows = logit_rows}},
        tapped ? std::optional<size_t>(0) : std::nullopt);
}

std::vector<float> StepRig::logits() {
    prefill(2);
    std::vector<float> all = graph.next().logits(2).read<float>();
    decode_batch();
    const auto more = graph.next().logits(sequences).read<float>();
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

void StepRig::decode(bool tapped) {
    const std::vector<int32_t> ids = {12}, positions = append(0, 1);
    const uint32_t rows = weights.has_output() ? 1 : 0;
    forward({{.positions = positions, .kv = caches[0]->views(), .ids = ids, .logit_rows = rows}},
            tapped ? std::optional<size_t>(0) : std::nullopt);
    if (rows > 0) graph.next().queue_argmax();
}

void StepRig::decode_batch(bool tapped) {
    const std::vector<int32_t> ids = {12, 40, 5};
    std::vector<int32_t> positions;
    for (size_t i = 0; i < sequences; ++i) positions.push_back(append(i, 1).front());
    std::vector<Segment> segments;
    for (size_t i = 0; i < sequences; ++i)
        segments.push_back({.positions = {&positions[i], 1},
                            .kv = caches[i]->views(),
                            .ids = {&ids[i], 1},
                            .logit_rows = 1});
    forward(std::move(segments), tapped ? std::optional<size_t>(1) : std::nullopt);
    graph.next().queue_argmax(sequences);
}

std::filesystem::path miniature_folder(const std::string &name, bool mixed) {
    static const TempFolder folder;
    const std::filesystem::path path = folder.path() / (name + (mixed ? "_mixed" : ""));
    if (std::filesystem::exists(path)) return path;
    const Miniature m = read_miniature(name);
    std::filesystem::create_directories(path);
    write_file(path / "config.json", m.config.dump());
    std::vector<WrittenTensor> tensors;
    for (const Miniature::Tensor &t : m.tensors) {
        tensors.push_back(make_tensor(t));
        if (mixed && t.name.ends_with("v_proj.weight")) tensors.back().dtype = KEEL_DTYPE_F16;
    }
    write_safetensors(path / "model.safetensors", tensors);
    return path;
}

} // namespace keel::test
