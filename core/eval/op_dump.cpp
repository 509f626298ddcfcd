#include "eval/op_dump.hpp"

#include "device/op_args.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t largest_tensor = uint64_t{64} << 20; // bytes of a file
constexpr int64_t largest_weight = int64_t{1} << 22;    // elements
constexpr int64_t identity_rows = 64;                   // of a weight's columns at a time

bool begins_with(std::string_view text, std::string_view start) {
    return text.substr(0, start.size()) == start;
}

bool is_late(std::string_view name) { // never written by the op, or read apart
    return begins_with(name, "kv.") || begins_with(name, "to.") || begins_with(name, "tables.") ||
           name == "w";
}

template <typename Args>
const Args &as(const keel_op_args *args) {
    return *reinterpret_cast<const Args *>(args);
}

// The members of an op's args that are numbers, for the ops that a graph has.
std::vector<std::pair<std::string, double>> scalars_of(keel_op op, const keel_op_args *args) {
    const auto with_rope = [](std::vector<std::pair<std::string, double>> list,
                              const keel_rope_tables *tables) {
        if (tables == nullptr) return list;
        list.emplace_back("rope_mode", tables->mode);
        list.emplace_back("rope_rot", tables->rot);
        return list;
    };
    switch (op) {
    case KEEL_OP_EMBED:
        return {{"scale", as<keel_embed_args>(args).scale}};
    case KEEL_OP_RMS_NORM:
    case KEEL_OP_ADD_RMS_NORM:
    case KEEL_OP_LAYER_NORM:
        return {{"eps", as<keel_norm_args>(args).eps}};
    case KEEL_OP_ADD:
    case KEEL_OP_ADD_BIAS:
    case KEEL_OP_SCALE:
    case KEEL_OP_SCALED_ADD:
        return {{"factor", as<keel_elementwise_args>(args).factor}};
    case KEEL_OP_ROPE:
        return with_rope({}, as<keel_rope_args>(args).tables);
    case KEEL_OP_QKV_PREPARE:
        return with_rope({{"eps", as<keel_qkv_args>(args).eps}}, as<keel_qkv_args>(args).tables);
    case KEEL_OP_ATTENTION: {
        const auto &a = as<keel_attention_args>(args);
        return {{"scale", a.scale}, {"softcap", a.softcap}, {"window", static_cast<double>(a.window)}};
    }
    default:
        return {};
    }
}

Weight *find_weight(Pipeline &pipeline, const Weight *wanted) {
    ModelWeights &w = pipeline.weights();
    for (Weight *candidate : {&w.embedding(), &w.output()}) {
        if (candidate == wanted) return candidate;
    }
    for (size_t i = 0; i < static_cast<size_t>(pipeline.model().layers); ++i) {
        LayerWeights &layer = w.layer(i);
        for (Weight *candidate :
             {layer.qkv.get(), layer.attention_out.get(), layer.gate_up.get(), layer.down.get()}) {
            if (candidate == wanted) return candidate;
        }
    }
    return nullptr;
}

// W's values, [rows, cols], through a product with the identity on the reference: a backend's own layout is nobody else's business.
std::vector<float> dequantized(Pipeline &pipeline, Weight &weight) {
    const std::shared_ptr<Device> reference = Device::open_reference(pipeline.device().host());
    weight.prepare(*reference);
    const int64_t n = weight.rows(), k = weight.cols();
    std::vector<float> values(static_cast<size_t>(n * k));
    for (int64_t begin = 0; begin < k; begin += identity_rows) {
        const int64_t m = std::min(identity_rows, k - begin);
        std::vector<float> identity(static_cast<size_t>(m * k));
        for (int64_t i = 0; i < m; ++i)
            identity[static_cast<size_t>(i * k + begin + i)] = 1;
        const Tensor x = Tensor::allocate(*reference, KEEL_DTYPE_F32, {m, k});
        const Tensor out = Tensor::allocate(*reference, KEEL_DTYPE_F32, {m, n});
        x.write(identity.data());
        keel_matmul_args args = {KEEL_HEADER(keel_matmul_args)};
        args.x = x.c();
        args.out = out.c();
        set_weight(KEEL_OP_MATMUL, reinterpret_cast<keel_op_args *>(&args), &weight, *reference);
        reference->check("matmul", [&] { return reference->table().matmul(reference->ctx(), &args); });
        reference->stream().op_queued("dequantize");
        const std::vector<float> columns = out.read<float>();
        for (int64_t i = 0; i < m; ++i) {
            for (int64_t row = 0; row < n; ++row)
                values[static_cast<size_t>(row * k + begin + i)] = columns[static_cast<size_t>(i * n + row)];
        }
    }
    return values;
}

void write_file(const std::filesystem::path &file, const void *data, size_t bytes) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(static_cast<const char *>(data), static_cast<std::streamsize>(bytes));
    out.close();
    if (!out) throw_error(ErrorKind::runtime, "{}: cannot write {} bytes", file.string(), bytes);
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T> &values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

} // namespace

const keel_kv_view *cache_of(keel_op op, const keel_op_args *args) {
    switch (op) {
    case KEEL_OP_QKV_PREPARE:
        return as<keel_qkv_args>(args).kv;
    case KEEL_OP_ATTENTION:
        return as<keel_attention_args>(args).kv;
    case KEEL_OP_ATTENTION_SCORES:
        return as<keel_attention_scores_args>(args).kv;
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS:
        return as<keel_keys_args>(args).kv;
    case KEEL_OP_KV_APPEND:
        return as<keel_kv_append_args>(args).kv;
    case KEEL_OP_KV_REROTATE:
        return as<keel_kv_rerotate_args>(args).kv;
    case KEEL_OP_KV_GATHER:
        return as<keel_kv_gather_args>(args).to;
    default:
        return nullptr;
    }
}

OpDump::OpDump(Device &device, const PlannedOp &op, const keel_op_args *args)
    : label_(op.label()), op_(op_name(op.op())), kernel_(op.kernel()), features_(args->features),
      scalars_(scalars_of(op.op(), args)) {
    const ArgsCopy copy(op.op(), args);
    for (const ArgsCopy::Slot &slot : copy.tensors()) {
        if (is_late(slot.name)) continue;
        if (slot.role != ArgsCopy::Role::in) {
            const keel_tensor &t = **slot.tensor;
            outputs_.push_back({slot.name, "out", t.dtype, {t.shape, t.shape + t.rank}, {}, false});
        }
        if (slot.role == ArgsCopy::Role::out) continue;
        add(device, **slot.tensor, slot.name, slot.role == ArgsCopy::Role::in ? "in" : "in_out");
    }
}

void OpDump::add(Device &device, const keel_tensor &tensor, const char *name, const char *role) {
    Entry entry;
    entry.name = name;
    entry.role = role;
    entry.dtype = tensor.dtype;
    entry.shape.assign(tensor.shape, tensor.shape + tensor.rank);
    entry.present = extent_bytes(tensor) <= largest_tensor;
    if (entry.present) entry.bytes = read_dense(device, tensor);
    entries_.push_back(std::move(entry));
}

void OpDump::add_values(const std::string &role, const TensorValues &values) {
    entries_.push_back({values.name, role, KEEL_DTYPE_F32, values.shape, bytes_of(values.values), true});
}

// The cache as heads of rows, the slots of a head one after the other; blocks are made anew by whoever reads it.
void OpDump::add_cache(Device &device, const keel_kv_view &view) {
    const std::vector<int32_t> lengths = read_ints(device, *view.lengths);
    std::vector<SlotRange> ranges;
    for (const int32_t length : lengths)
        ranges.emplace_back(0, length);
    for (const bool keys : {true, false}) {
        TensorValues rows = read_kv(device, view, keys, ranges);
        if (rows.values.size() * sizeof(float) > largest_tensor) rows.values.clear();
        Entry entry{rows.name, "in", KEEL_DTYPE_F32, rows.shape, bytes_of(rows.values), !rows.values.empty()};
        entries_.push_back(std::move(entry));
    }
    Entry positions{"kv.positions", "in", KEEL_DTYPE_I32, {}, {}, true};
    const std::vector<int32_t> all = read_ints(device, *view.positions);
    const auto slots = static_cast<size_t>(view.positions->shape[1]);
    std::vector<int32_t> used;
    for (size_t head = 0; head < lengths.size(); ++head) {
        const auto row = all.begin() + static_cast<std::ptrdiff_t>(head * slots);
        used.insert(used.end(), row, row + std::min<int64_t>(lengths[head], view.positions->shape[1]));
    }
    positions.shape = {std::ssize(used)};
    positions.bytes = bytes_of(used);
    entries_.push_back(std::move(positions));
}

void OpDump::add_weight(Pipeline &pipeline, const PlannedOp &op) {
    Weight *weight = find_weight(pipeline, op.weight());
    if (weight == nullptr) return;
    Entry entry{"weight", "in", KEEL_DTYPE_F32, {weight->rows(), weight->cols()}, {}, false};
    if (weight->rows() * weight->cols() <= largest_weight && (weight->use() & KEEL_USE_MATMUL) != 0) {
        entry.bytes = bytes_of(dequantized(pipeline, *weight));
        entry.present = true;
    }
    scalars_.emplace_back("weight_dtype", weight->dtype());
    entries_.push_back(std::move(entry));
}

void OpDump::complete(Pipeline &pipeline, const PlannedOp &op, const keel_op_args *args) {
    Device &device = pipeline.device();
    const ArgsCopy copy(op.op(), args);
    for (const ArgsCopy::Slot &slot : copy.tensors()) {
        if (begins_with(slot.name, "tables.")) add(device, **slot.tensor, slot.name, "in");
    }
    if (const keel_kv_view *view = cache_of(op.op(), args)) {
        add(device, *view->lengths, "kv.lengths", "in");
        scalars_.emplace_back("kv_heads", view->kv_heads);
        scalars_.emplace_back("block_slots", view->block_slots);
        scalars_.emplace_back("head_dim", view->k->shape[2]);
        scalars_.emplace_back("v_head_dim", view->v->shape[2]);
        scalars_.emplace_back("key_dtype", view->k->dtype);
        scalars_.emplace_back("value_dtype", view->v->dtype);
        const bool only_reads = op.op() == KEEL_OP_ATTENTION || op.op() == KEEL_OP_ATTENTION_SCORES;
        if (only_reads) add_cache(device, *view);
    }
    if (op.weight() != nullptr) add_weight(pipeline, op);
}

void OpDump::write(const std::filesystem::path &folder, const Json &more) const {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) throw_error(ErrorKind::runtime, "{}: {}", folder.string(), error.message());
    Json json = {{"format", "keel-op/1"}, {"op", op_},
                 {"label", label_},       {"kernel", kernel_},
                 {"features", features_}, {"scalars", Json::object()}};
    for (const auto &[name, value] : scalars_)
        json["scalars"][name] = value;
    json.update(more);
    json["tensors"] = Json::array();
    for (const Entry &entry : entries_) {
        const std::string file = fmt::format("{}.{}.bin", entry.role, entry.name);
        std::vector<uint64_t> strides(entry.shape.size());
        uint64_t stride = entry.shape.empty()
                              ? 0
                              : keel_dtype_row_bytes(entry.dtype, static_cast<uint64_t>(entry.shape.back()));
        for (size_t i = entry.shape.size(); i-- > 0;) {
            strides[i] = i + 1 == entry.shape.size() ? keel_dtype_bytes(entry.dtype) : stride;
            if (i + 1 < entry.shape.size()) stride *= static_cast<uint64_t>(entry.shape[i]);
        }
        json["tensors"].push_back({{"name", entry.name},
                                   {"role", entry.role},
                                   {"dtype", keel_dtype_name(entry.dtype)},
                                   {"shape", entry.shape},
                                   {"strides", strides},
                                   {"file", entry.present ? Json(file) : Json(nullptr)}});
        if (entry.present) write_file(folder / file, entry.bytes.data(), entry.bytes.size());
    }
    json["outputs"] = Json::array();
    for (const Entry &entry : outputs_)
        json["outputs"].push_back(
            {{"name", entry.name}, {"dtype", keel_dtype_name(entry.dtype)}, {"shape", entry.shape}});
    const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    write_file(folder / "op.json", text.data(), text.size());
}

} // namespace keel
