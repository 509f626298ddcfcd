#include "eval/op_stage.hpp"

#include "base/convert.hpp"
#include "device/op_args.hpp"

#include <algorithm>
#include <cstring>

namespace keel {
namespace {

constexpr int64_t most_slots = int64_t{1} << 22;

keel_dtype dtype_of(double number, const SavedOp &saved, const char *name) {
    for (const keel_dtype type :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        if (number == static_cast<double>(type)) return type;
    }
    throw_error(ErrorKind::input, "{}: scalar '{}': {} is no dtype that can be repeated", saved.file.string(),
                name, number);
}

std::vector<std::byte> in_dtype(keel_dtype dtype, const std::vector<float> &values) {
    std::vector<std::byte> bytes(values.size() / keel_dtype_block(dtype) * keel_dtype_bytes(dtype));
    if (!bytes.empty()) convert_from_f32(dtype, values.data(), bytes.data(), values.size());
    return bytes;
}

[[noreturn]] void misfit(const SavedOp &saved, const std::string &what) {
    throw_error(ErrorKind::input, "{}: {}: {}", saved.file.string(), op_name(saved.op), what);
}

} // namespace

SavedWeight saved_weight(const SavedOp &saved) {
    SavedWeight w;
    if (saved.op != KEEL_OP_MATMUL && saved.op != KEEL_OP_EMBED) return w;
    const SavedTensor &t = saved.need("in", "weight");
    if (t.dtype != KEEL_DTYPE_F32 || t.shape.size() != 2) misfit(saved, "expected f32 [n, k] for its weight");
    w.rows = t.shape[0];
    w.cols = t.shape[1];
    w.dtype = dtype_of(saved.scalar("weight_dtype", 0, 1e9), saved, "weight_dtype");
    const std::vector<float> values = t.floats();
    if (w.cols % keel_dtype_block(w.dtype) == 0) {
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
        WeightSource source;
        source.keep_alive = std::shared_ptr<const void>(&weight, [](const void *) {}); // it outlives this
        source.mapping = weight.bytes.data();
        source.mapping_bytes = weight.bytes.size();
        source.dtype = weight.dtype;
        source.rows = weight.rows;
        source.cols = weight.cols;
        const auto m = static_cast<uint32_t>(std::clamp<int64_t>(x.shape.empty() ? 1 : x.shape[0], 1, 65536));
        weight_ = std::make_unique<Weight>(
            "saved", weight.dtype, weight.rows, weight.cols,
            [source] { return std::vector<WeightSource>{source}; }, KEEL_JOIN_ROWS,
            saved.op == KEEL_OP_EMBED ? KEEL_USE_EMBED : KEEL_USE_MATMUL, m);
    }
    build();
}

OpStage::~OpStage() = default;

Tensor OpStage::make(keel_dtype dtype, const std::vector<int64_t> &s, const std::vector<std::byte> &bytes) {
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

// A tensor of what the op wrote, with what stood in it before if the op reads that.
const keel_tensor *OpStage::output(const char *name, bool is_needed) {
    if (saved_.find("in_out", name) != nullptr) return input(name);
    const auto found = std::find_if(saved_.outputs.begin(), saved_.outputs.end(),
                                    [&](const SavedOutput &o) { return o.name == name; });
    if (found == saved_.outputs.end()) {
        if (is_needed) misfit(saved_, fmt::format("'outputs' has no '{}'", name));
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

// Blocks one after the other, each head its own; rows as they were saved, or empty where the op writes them.
const keel_kv_view *OpStage::cache() {
    const SavedTensor &lengths = saved_.need("in", "kv.lengths");
    if (lengths.dtype != KEEL_DTYPE_I32 || lengths.shape.size() != 1)
        misfit(saved_, "expected i32 [kv_heads] for kv.lengths");
    const std::vector<int32_t> held = lengths.ints();
    const auto heads = static_cast<int64_t>(held.size());
    if (heads != static_cast<int64_t>(saved_.scalar("kv_heads", 1, 4096)))
        misfit(saved_, "kv.lengths and scalar 'kv_heads' differ");
    int64_t longest = 0;
    for (const int32_t length : held) {
        if (length < 0 || length > most_slots)
            misfit(saved_, fmt::format("a head's length of {}: expected 0 to {}", length, most_slots));
        longest = std::max<int64_t>(longest, length);
    }
    const int64_t slots = device_->info().kv_block_slots;
    const int64_t blocks = std::max<int64_t>((longest + slots - 1) / slots, 1);
    const auto head_dim = static_cast<int64_t>(saved_.scalar("head_dim", 1, 65536));
    const auto value_dim = static_cast<int64_t>(saved_.scalar("v_head_dim", 1, 65536));
    if (heads * blocks * slots * std::max(head_dim, value_dim) > int64_t{1} << 25)
        misfit(saved_, "its cache is larger than any that is saved");
    const keel_dtype key = dtype_of(saved_.scalar("key_dtype", 0, 1e9), saved_, "key_dtype");
    const keel_dtype value = dtype_of(saved_.scalar("value_dtype", 0, 1e9), saved_, "value_dtype");
    if (head_dim % keel_dtype_block(key) != 0 || value_dim % keel_dtype_block(value) != 0)
        misfit(saved_, "its head's size is no multiple of the cache dtype's block");
    std::vector<int32_t> table(static_cast<size_t>(heads * blocks));
    for (size_t i = 0; i < table.size(); ++i)
        table[i] = static_cast<int32_t>(i);
    const auto place = [&](Tensor t) {
        tensors_.push_back(std::move(t));
        return tensors_.back().c();
    };
    const auto bytes = [](const std::vector<int32_t> &values) {
        const auto *begin = reinterpret_cast<const std::byte *>(values.data());
        return std::vector<std::byte>(begin, begin + values.size() * sizeof(int32_t));
    };
    const auto zeros = [](keel_dtype dtype, int64_t n) {
        return std::vector<std::byte>(keel_dtype_row_bytes(dtype, static_cast<uint64_t>(n)));
    };
    view_.k =
        place(make(key, {heads * blocks, slots, head_dim}, zeros(key, heads * blocks * slots * head_dim)));
    view_.v = place(
        make(value, {heads * blocks, slots, value_dim}, zeros(value, heads * blocks * slots * value_dim)));
    view_.block_table = place(make(KEEL_DTYPE_I32, {heads, blocks}, bytes(table)));
    view_.lengths = place(make(KEEL_DTYPE_I32, {heads}, bytes(held)));
    view_.positions =
        place(make(KEEL_DTYPE_I32, {heads, blocks * slots}, zeros(KEEL_DTYPE_I32, heads * blocks * slots)));
    view_.block_slots = static_cast<uint32_t>(slots);
    view_.kv_heads = static_cast<uint32_t>(heads);
    view_.max_length = longest;
    if (saved_.op == KEEL_OP_ATTENTION) fill_cache(view_, held);
    return &view_;
}

void OpStage::fill_cache(const keel_kv_view &view, const std::vector<int32_t> &lengths) {
    int64_t total = 0;
    std::vector<std::pair<int64_t, int64_t>> rows;
    for (size_t head = 0; head < lengths.size(); ++head) {
        total += lengths[head];
        for (int64_t slot = 0; slot < lengths[head]; ++slot)
            rows.emplace_back(head, slot);
    }
    for (const bool keys : {true, false}) {
        const SavedTensor &t = saved_.need("in", keys ? "kv.k" : "kv.v");
        const int64_t inner = (keys ? view.k : view.v)->shape[2];
        if (t.dtype != KEEL_DTYPE_F32 || t.shape != std::vector<int64_t>{total, inner})
            misfit(saved_, fmt::format("expected f32 [{}, {}] for {}", total, inner, t.name));
        TensorValues values;
        values.shape = t.shape;
        values.rows = rows;
        values.values = t.floats();
        write_kv(*device_, view, keys, values);
    }
    const SavedTensor *positions = saved_.find("in", "kv.positions");
    if (positions == nullptr || !positions->present) return;
    if (positions->dtype != KEEL_DTYPE_I32 || positions->elements() != total)
        misfit(saved_, fmt::format("expected i32 [{}] for kv.positions", total));
    const std::vector<int32_t> given = positions->ints();
    std::vector<int32_t> placed(static_cast<size_t>(view.positions->shape[0] * view.positions->shape[1]));
    for (size_t i = 0; i < rows.size(); ++i)
        placed[static_cast<size_t>(rows[i].first * view.positions->shape[1] + rows[i].second)] = given[i];
    for (const Tensor &t : tensors_) {
        if (t.c() == view.positions) t.write(placed.data());
    }
}

template <typename Args>
Args &OpStage::args() {
    storage_.assign(sizeof(Args), std::byte{0});
    auto &a = *reinterpret_cast<Args *>(storage_.data());
    a.h = KEEL_HEADER(Args);
    a.features = saved_.features;
    return a;
}

// Fills in the op's args by name, as they were saved.
void OpStage::build() {
    const uint64_t features = saved_.features;
    const auto number = [&](const char *name) {
        constexpr double large = 1e30;
        return static_cast<float>(saved_.scalar(name, -large, large));
    };
    switch (saved_.op) {
    case KEEL_OP_MATMUL: {
        auto &a = args<keel_matmul_args>();
        a.x = input("x");
        a.bias = (features & KEEL_MATMUL_BIAS) != 0 ? input("bias") : nullptr;
        a.out = output("out");
        break;
    }
    case KEEL_OP_EMBED: {
        auto &a = args<keel_embed_args>();
        a.ids = input("ids");
        a.out = output("out");
        a.scale = number("scale");
        break;
    }
    case KEEL_OP_RMS_NORM:
    case KEEL_OP_ADD_RMS_NORM:
    case KEEL_OP_LAYER_NORM: {
        auto &a = args<keel_norm_args>();
        a.x = input("x");
        a.residual = saved_.op == KEEL_OP_ADD_RMS_NORM ? output("residual") : nullptr;
        a.weight = input("weight");
        a.bias = input("bias", false);
        a.out = output("out");
        a.eps = number("eps");
        break;
    }
    case KEEL_OP_SILU_MUL:
    case KEEL_OP_GELU_MUL: {
        auto &a = args<keel_gate_args>();
        a.gate = input("gate");
        a.up = input("up", false);
        a.out = output("out");
        break;
    }
    case KEEL_OP_ADD:
    case KEEL_OP_ADD_BIAS:
    case KEEL_OP_SCALE:
    case KEEL_OP_SCALED_ADD: {
        auto &a = args<keel_elementwise_args>();
        a.a = input("a");
        a.b = input("b", false);
        a.out = output("out");
        a.factor = number("factor");
        break;
    }
    case KEEL_OP_SOFTMAX:
    case KEEL_OP_CAST:
    case KEEL_OP_COPY:
    case KEEL_OP_TRANSPOSE: {
        auto &a = args<keel_move_args>();
        a.x = input("x");
        a.out = output("out");
        break;
    }
    case KEEL_OP_ARGMAX_ROWS:
    case KEEL_OP_TOP_K_ROWS: {
        auto &a = args<keel_rows_args>();
        a.x = input("x");
        if (saved_.op == KEEL_OP_TOP_K_ROWS) a.values = output("values", false); // argmax writes none
        a.index = output("index");
        break;
    }
    case KEEL_OP_ROPE: {
        auto &a = args<keel_rope_args>();
        a.x = input("x");
        a.positions = input("positions");
        a.tables = tables();
        a.out = output("out");
        break;
    }
    case KEEL_OP_QKV_PREPARE: {
        auto &a = args<keel_qkv_args>();
        a.q = input("q");
        a.k = input("k");
        a.v = input("v");
        a.positions = input("positions");
        a.tables = tables();
        a.q_norm = input("q_norm", false);
        a.k_norm = input("k_norm", false);
        a.kv = cache();
        a.q_out = output("q_out");
        a.q_unrotated = output("q_unrotated", false);
        a.k_unrotated = output("k_unrotated", false);
        a.eps = number("eps");
        break;
    }
    case KEEL_OP_ATTENTION: {
        if ((features & KEEL_ATTENTION_SCORES) != 0)
            misfit(saved_, "attention that also gives scores cannot be repeated");
        auto &a = args<keel_attention_args>();
        a.q = input("q");
        a.kv = cache();
        a.out = output("out");
        a.q_positions = input("q_positions", false);
        a.lse = output("lse", false);
        a.scale = number("scale");
        a.softcap = number("softcap");
        a.window = static_cast<int64_t>(saved_.scalar("window", 0, 1e15));
        break;
    }
    case KEEL_OP_KV_APPEND: {
        auto &a = args<keel_kv_append_args>();
        a.k = input("k");
        a.v = input("v");
        a.positions = input("positions");
        a.kv = cache();
        break;
    }
    default:
        misfit(saved_, "this op cannot be repeated: a save does not hold the cache that it changes or reads; "
                       "`keel compare --steps` makes it happen again");
    }
    // Positions are rows of tables: a backend need not expect any below 0.
    if (const SavedTensor *positions = saved_.find("in", "positions")) {
        if (positions->dtype != KEEL_DTYPE_I32) misfit(saved_, "expected i32 for positions");
        for (const int32_t p : positions->ints()) {
            if (p < 0) misfit(saved_, fmt::format("a position of {}", p));
        }
    }
}

std::vector<OpOutput> OpStage::run() {
    auto *args = reinterpret_cast<keel_op_args *>(storage_.data());
    // A plan looks at shapes; what it would keep of the args is copied.
    std::vector<std::byte> copy = storage_;
    OpHandle op;
    const auto plan = [&]<typename Args>(Args *of) {
        op = executor_.plan(saved_.op, *of, "replay", weight_.get());
    };
    switch (saved_.op) {
#define KEEL_X(ID, slot, Args)                                                                               \
    case KEEL_OP_##ID:                                                                                       \
        plan(reinterpret_cast<Args *>(copy.data()));                                                         \
        break;
        KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    default:
        break;
    }
    kernel_ = op->kernel();
    executor_.run_any(*op, args);
    executor_.stream().wait();
    return read_outputs(*device_, saved_.op, args);
}

} // namespace keel
