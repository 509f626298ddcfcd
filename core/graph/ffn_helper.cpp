#include "graph/ffn_helper.hpp"

#include "base/error.hpp"
#include "device/device.hpp"
#include "graph/graph_args.hpp"
#include "numbers/convert.hpp"

namespace keel {
namespace {

// Elements of one type as another.
void convert(keel_dtype from, const std::byte *src, keel_dtype to, std::vector<std::byte> &dst, size_t count,
             std::vector<float> &floats) {
    dst.resize(keel_dtype_row_bytes(to, count));
    if (from == to) {
        std::copy_n(src, dst.size(), dst.data());
        return;
    }
    floats.resize(count);
    convert_to_f32(from, src, floats.data(), count);
    convert_from_f32(to, floats.data(), dst.data(), count);
}

} // namespace

FfnHelper::FfnHelper(Executor &executor, ModelWeights &weights, uint32_t max_tokens)
    : executor_(executor), weights_(weights), config_(weights.config()), max_tokens_(max_tokens) {
    make_workspace(false);
    for (size_t i = 0; i < static_cast<size_t>(weights_.part().count()); ++i) {
        decode_.push_back(plan(i, 1, "decode"));
        if (max_tokens_ > 1) prefill_.push_back(plan(i, max_tokens_, "prefill"));
    }
    make_workspace(true);
    thread_ = std::thread([this] { serve(); });
}

FfnHelper::~FfnHelper() {
    abandon();
    state_.store(leaving);
    state_.notify_all();
    thread_.join();
}

void FfnHelper::make_workspace(bool with_memory) {
    Device &device = executor_.device();
    const keel_dtype A = device.info().activation_dtype;
    const int64_t m = max_tokens_, n = weights_.ffn_size();
    const auto make = [&](keel_dtype dtype, int64_t columns) {
        return with_memory ? Tensor::allocate(device, dtype, {m, columns}, executor_.placement())
                           : Tensor::shape(dtype, {m, columns});
    };
    h_ = make(A, config_.hidden_size);
    gate_up_ = make(A, 2 * n);
    gate_ = gate_up_.columns(0, n);
    up_ = gate_up_.columns(n, n);
    act_ = make(A, n);
    out_ = make(KEEL_DTYPE_F32, config_.hidden_size);
}

keel_matmul_args FfnHelper::matmul_args(const Tensor &x, const Tensor &bias, const Tensor &out) const {
    keel_matmul_args a = {KEEL_HEADER(keel_matmul_args)};
    a.features = bias.empty() ? 0 : KEEL_MATMUL_BIAS;
    a.x = x.c();
    a.bias = bias.c();
    a.out = out.c();
    return a;
}

FfnHelper::LayerOps FfnHelper::plan(size_t layer, uint32_t m, const char *kind) {
    LayerWeights &w = weights_.layer(layer);
    const auto label = [&](const char *name) {
        return fmt::format("{} layer {}: {} (split)", kind,
                           layer + static_cast<size_t>(weights_.part().first), name);
    };
    const Tensor h = h_.rows(0, m), gate_up = gate_up_.rows(0, m), gate = gate_.rows(0, m),
                 up = up_.rows(0, m), act = act_.rows(0, m), out = out_.rows(0, m);
    keel_gate_args gates = {KEEL_HEADER(keel_gate_args)};
    gates.features = config_.activation == Activation::gelu_tanh ? KEEL_GELU_TANH : 0;
    gates.gate = gate.c();
    gates.up = up.c();
    gates.out = act.c();
    LayerOps ops;
    for_each_part(w.gate_up, w.gate_up_bias, gate_up,
                  [&](size_t i, Weight &part, const Tensor &bias, const Tensor &y) {
                      const std::string name = i == 0 ? "gate up" : fmt::format("gate up, part {}", i + 1);
                      ops.gate_up.push_back(executor_.plan(KEEL_OP_MATMUL, matmul_args(h, bias, y),
                                                           label(name.c_str()), &part));
                  });
    ops.activation =
        executor_.plan(config_.activation == Activation::silu ? KEEL_OP_SILU_MUL : KEEL_OP_GELU_MUL, gates,
                       label("activation"));
    ops.down = executor_.plan(KEEL_OP_MATMUL, matmul_args(act, {}, out), label("down"), w.down.get());
    return ops;
}

// The thread's life.
void FfnHelper::serve() {
    for (;;) {
        uint32_t now = state_.load(std::memory_order_acquire);
        while (now != asked && now != leaving) {
            state_.wait(now, std::memory_order_acquire);
            now = state_.load(std::memory_order_acquire);
        }
        if (now == leaving) return;
        try {
            compute();
        } catch (...) {
            error_ = std::current_exception();
        }
        state_.store(done, std::memory_order_release);
        state_.notify_all();
    }
}

void FfnHelper::compute() {
    LayerWeights &w = weights_.layer(layer_);
    LayerOps &ops = m_ == 1 ? decode_[layer_] : prefill_[layer_];
    const Tensor h = h_.rows(0, m_), gate_up = gate_up_.rows(0, m_), gate = gate_.rows(0, m_),
                 up = up_.rows(0, m_), act = act_.rows(0, m_), out = out_.rows(0, m_);
    keel_gate_args gates = {KEEL_HEADER(keel_gate_args)};
    gates.features = config_.activation == Activation::gelu_tanh ? KEEL_GELU_TANH : 0;
    gates.gate = gate.c();
    gates.up = up.c();
    gates.out = act.c();
    h.write(input_.data());
    for_each_part(w.gate_up, w.gate_up_bias, gate_up,
                  [&](size_t i, Weight &, const Tensor &bias, const Tensor &y) {
                      executor_.run(*ops.gate_up[i], matmul_args(h, bias, y));
                  });
    executor_.run(*ops.activation, gates);
    executor_.run(*ops.down, matmul_args(act, {}, out));
    output_.resize(out.bytes());
    out.read(output_.data());
}

// Until the thread has nothing to do; what it failed with is forgotten.
void FfnHelper::abandon() noexcept {
    uint32_t now = state_.load(std::memory_order_acquire);
    while (now == asked) {
        state_.wait(now, std::memory_order_acquire);
        now = state_.load(std::memory_order_acquire);
    }
    error_ = nullptr;
    state_.store(idle, std::memory_order_release);
}

void FfnHelper::start(size_t layer, const Tensor &h) {
    abandon();
    layer_ = layer;
    m_ = static_cast<uint32_t>(h.dim(0));
    rows_.resize(h.bytes());
    h.read(rows_.data());
    const auto count = static_cast<size_t>(h.dim(0) * h.dim(1));
    convert(h.dtype(), rows_.data(), h_.dtype(), input_, count, floats_);
    crossed_ += rows_.size();
    state_.store(asked, std::memory_order_release);
    state_.notify_all();
}

void FfnHelper::finish(const Tensor &out) {
    uint32_t now = state_.load(std::memory_order_acquire);
    while (now == asked) {
        state_.wait(now, std::memory_order_acquire);
        now = state_.load(std::memory_order_acquire);
    }
    state_.store(idle, std::memory_order_release);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    crossed_ += output_.size();
    if (out.dtype() == KEEL_DTYPE_F32) return out.write(output_.data());
    convert(KEEL_DTYPE_F32, output_.data(), out.dtype(), rows_, static_cast<size_t>(out.dim(0) * out.dim(1)),
            floats_);
    out.write(rows_.data());
}

uint64_t FfnHelper::crossing_bytes_per_token(keel_dtype input) const {
    const auto width = static_cast<uint64_t>(config_.hidden_size);
    return static_cast<uint64_t>(weights_.part().count()) *
           (keel_dtype_row_bytes(input, width) + keel_dtype_row_bytes(KEEL_DTYPE_F32, width));
}

std::vector<const PlannedOp *> FfnHelper::listed(const std::vector<LayerOps> &layers) {
    std::vector<const PlannedOp *> all;
    for (const LayerOps &l : layers) {
        for (const OpHandle &part : l.gate_up)
            all.push_back(part.get());
        all.insert(all.end(), {l.activation.get(), l.down.get()});
    }
    return all;
}

std::vector<const PlannedOp *> FfnHelper::decode_ops() const {
    return listed(decode_);
}

std::vector<const PlannedOp *> FfnHelper::prefill_ops() const {
    return listed(prefill_);
}

} // namespace keel
