#include "eval/replay/stage.hpp"

#include "numbers/convert.hpp"
#include "ops/op_table.hpp"

#include <algorithm>
#include <cstring>

namespace keel {
namespace {

std::vector<std::byte> in_dtype(keel_dtype dtype, const std::vector<float> &values) {
    std::vector<std::byte> bytes(values.size() / keel_dtype_block(dtype) * keel_dtype_bytes(dtype));
    if (!bytes.empty()) convert_from_f32(dtype, values.data(), bytes.data(), values.size());
    return bytes;
}

} // namespace

void misfit(const SavedOp &saved, const std::string &what) {
    throw_error(ErrorKind::input, "{}: {}: {}", saved.file.string(), op_name(saved.op), what);
}

keel_dtype saved_dtype(const SavedOp &saved, const char *name) {
    const double number = saved.scalar(name, 0, 1e9);
    for (const keel_dtype type :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0,
          KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K}) {
        if (number == static_cast<double>(type)) return type;
    }
    throw_error(ErrorKind::input, "{}: scalar '{}': expected the number of a dtype, found {}",
                saved.file.string(), name, number);
}

SavedWeight saved_weight(const SavedOp &saved) {
    SavedWeight w;
    if (saved.op != KEEL_OP_MATMUL && saved.op != KEEL_OP_EMBED &&
        saved.op != KEEL_OP_EXPERT_MATMUL)
        return w;
    const SavedTensor &t = saved.need("in", "weight");
    w.dtype = saved_dtype(saved, "weight_dtype");
    if ((t.dtype != w.dtype && t.dtype != KEEL_DTYPE_F32) || t.shape.size() != 2)
        misfit(saved,
               fmt::format("weight: expected shape [n, k] in {} or f32", keel_dtype_name(w.dtype)));
    w.rows = t.shape[0];
    w.cols = t.shape[1];
    if (t.dtype == w.dtype) {
        w.bytes = t.bytes;
        return w;
    }
    // Earlier versions of Keel saved the values as f32.
    const std::vector<float> values = t.floats();
    if (w.cols % keel_dtype_block(w.dtype) == 0 && keel_dtype_weights_only(w.dtype) == 0) {
        w.bytes = in_dtype(w.dtype, values);
        std::vector<float> back(values.size());
        convert_to_f32(w.dtype, w.bytes.data(), back.data(), back.size());
        if (back == values) return w;
    }
    w.as_f32 = true;
    w.dtype = KEEL_DTYPE_F32;
    w.bytes = t.bytes;
    return w;
}

OpStage::OpStage(const SavedOp &saved, const SavedWeight &weight, std::shared_ptr<Device> device)
    : saved_(saved), saved_weight_(weight), device_(std::move(device)),
      executor_(device_, Executor::Options{true, nullptr, {}}) {
    if (weight.dtype != KEEL_DTYPE_NONE) {
        const SavedTensor &x = saved.need("in", saved.op == KEEL_OP_EMBED ? "ids" : "x");
        const bool has_experts = saved.op == KEEL_OP_EXPERT_MATMUL;
        const int64_t experts = has_experts ? whole("experts") : 1;
        if (experts < 1 || experts > weight.rows || weight.rows % experts != 0)
            misfit(saved_, fmt::format("experts: expected a divisor of the weight's {} rows, found "
                                       "{}",
                                       weight.rows, experts));
        WeightSource source;
        // The caller keeps the weight alive.
        source.keep_alive = std::shared_ptr<const void>(&weight, [](const void *) {});
        source.mapping = weight.bytes.data();
        source.mapping_bytes = weight.bytes.size();
        source.dtype = weight.dtype;
        source.rows = weight.rows / experts;
        source.cols = weight.cols;
        const uint64_t bytes =
            static_cast<uint64_t>(source.rows) *
            keel_dtype_row_bytes(source.dtype, static_cast<uint64_t>(source.cols));
        std::vector<WeightSource> sources(static_cast<size_t>(experts), source);
        for (size_t i = 0; i < sources.size(); ++i) sources[i].offset = i * bytes;
        const uint32_t use = has_experts                 ? KEEL_USE_EXPERTS
                             : saved.op == KEEL_OP_EMBED ? KEEL_USE_EMBED
                                                         : KEEL_USE_MATMUL;
        const auto m =
            static_cast<uint32_t>(std::clamp<int64_t>(x.shape.empty() ? 1 : x.shape[0], 1, 65536));
        weight_ = std::make_unique<Weight>(
            "saved", weight.dtype, weight.rows, weight.cols, [sources] { return sources; },
            KEEL_JOIN_ROWS, use, m, has_experts ? static_cast<uint32_t>(experts) : 0);
    }
    build();
}

OpStage::~OpStage() = default;

Tensor OpStage::make(keel_dtype dtype, const std::vector<int64_t> &s,
                     const std::vector<std::byte> &bytes) {
    Tensor t = s.size() == 1   ? Tensor::allocate(*device_, dtype, {s[0]})
               : s.size() == 2 ? Tensor::allocate(*device_, dtype, {s[0], s[1]})
               : s.size() == 3 ? Tensor::allocate(*device_, dtype, {s[0], s[1], s[2]})
                               : Tensor::allocate(*device_, dtype, {s[0], s[1], s[2], s[3]});
    if (!bytes.empty()) t.write(bytes.data());
    return t;
}

const keel_tensor *OpStage::input(const char *name, bool is_needed) {
    const SavedTensor *t = saved_.find("in", name);
    if (t == nullptr) t = saved_.find("in_out", name);
    if (t == nullptr && !is_needed) return nullptr;
    if (t == nullptr || !t->present) t = &saved_.need("in", name);
    tensors_.push_back(make(t->dtype, t->shape, t->bytes));
    return tensors_.back().c();
}

// Returns an output tensor of the op. If the op also reads this tensor, the tensor gets the saved
// old values.
const keel_tensor *OpStage::output(const char *name, bool is_needed) {
    if (saved_.find("in_out", name) != nullptr) return input(name);
    const auto found = std::find_if(saved_.outputs.begin(), saved_.outputs.end(),
                                    [&](const SavedOutput &o) { return o.name == name; });
    if (found == saved_.outputs.end()) {
        if (is_needed) misfit(saved_, fmt::format("'outputs': expected '{}', found none", name));
        return nullptr;
    }
    tensors_.push_back(make(found->dtype, found->shape, {}));
    return tensors_.back().c();
}

const keel_rope_tables *OpStage::tables() {
    tables_.cos = input("tables.cos");
    tables_.sin = input("tables.sin");
    tables_.mode = static_cast<keel_rope_mode>(saved_.scalar("rope_mode", 0, 16));
    tables_.rot = static_cast<uint32_t>(saved_.scalar("rope_rot", 0, 65536));
    return &tables_;
}

const keel_scores *OpStage::scores() {
    scores_.out = output("scores.out");
    scores_.window = static_cast<uint32_t>(saved_.scalar("scores_window", 0, 4e9));
    scores_.reduce_queries = static_cast<keel_reduce>(saved_.scalar("reduce_queries", 0, 16));
    scores_.reduce_group = static_cast<keel_reduce>(saved_.scalar("reduce_group", 0, 16));
    scores_.accumulate = static_cast<uint32_t>(saved_.scalar("accumulate", 0, 1));
    return &scores_;
}

std::vector<OpOutput> OpStage::run() {
    auto *args = reinterpret_cast<keel_op_args *>(storage_.data());
    // Planning needs only the shapes, and planning can change the args. So the plan function gets a
    // copy of the args.
    std::vector<std::byte> copy = storage_;
    OpHandle op;
    const auto plan = [&]<typename Args>(Args *of) {
        op = executor_.plan(saved_.op, *of, {.role = Role::replay}, weight_.get());
    };
    switch (saved_.op) {
#define KEEL_X(ID, slot, Args)                                                                     \
    case KEEL_OP_##ID: plan(reinterpret_cast<Args *>(copy.data())); break;
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default: break;
    }
    kernel_ = op->kernel();
    executor_.run_any(*op, args);
    executor_.stream().wait();
    return read_outputs(*device_, saved_.op, args);
}

} // namespace keel
