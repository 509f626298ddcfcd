#include "eval/compare/op_dump.hpp"

#include "ops/op_call.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t largest_tensor = uint64_t{64} << 20; // limit for the bytes of a tensor's file
constexpr uint64_t largest_weight = uint64_t{1} << 30;  // limit for the bytes of a weight's file

bool begins_with(std::string_view text, std::string_view start) {
    return text.substr(0, start.size()) == start;
}

// True for inputs that can be read after the op ran: the op does not write these tensors, or
// another function reads them.
bool is_late(std::string_view name) {
    return begins_with(name, "kv.") || begins_with(name, "to.") || begins_with(name, "tables.") ||
           name == "w";
}

template <typename Args> const Args &as(const keel_op_args *args) {
    return *reinterpret_cast<const Args *>(args);
}

// Returns the numbers among an op's args, for the ops of a model's graph.
std::vector<std::pair<std::string, double>> scalars_of(keel_op op, const keel_op_args *args) {
    const auto with_rope = [](std::vector<std::pair<std::string, double>> list,
                              const keel_rope_tables *tables) {
        if (tables == nullptr) return list;
        list.emplace_back("rope_mode", tables->mode);
        list.emplace_back("rope_rot", tables->rot);
        return list;
    };
    const auto with_scores = [](std::vector<std::pair<std::string, double>> list,
                                const keel_scores *scores) {
        if (scores == nullptr) return list;
        list.emplace_back("scores_window", scores->window);
        list.emplace_back("reduce_queries", scores->reduce_queries);
        list.emplace_back("reduce_group", scores->reduce_group);
        list.emplace_back("accumulate", scores->accumulate);
        return list;
    };
    const auto range = [](int64_t begin, int64_t end) {
        return std::vector<std::pair<std::string, double>>{{"begin", static_cast<double>(begin)},
                                                           {"end", static_cast<double>(end)}};
    };
    switch (op) {
    case KEEL_OP_EMBED: return {{"scale", as<keel_embed_args>(args).scale}};
    case KEEL_OP_RMS_NORM:
    case KEEL_OP_ADD_RMS_NORM:
    case KEEL_OP_LAYER_NORM: return {{"eps", as<keel_norm_args>(args).eps}};
    case KEEL_OP_ADD:
    case KEEL_OP_ADD_BIAS:
    case KEEL_OP_SCALE:
    case KEEL_OP_SCALED_ADD: return {{"factor", as<keel_elementwise_args>(args).factor}};
    case KEEL_OP_CHOOSE_EXPERTS: {
        const auto &a = as<keel_choose_experts_args>(args);
        return {{"scale", a.scale},
                {"groups", a.groups},
                {"groups_kept", a.groups_kept},
                {"group_top", a.group_top}};
    }
    case KEEL_OP_EXPERT_MATMUL:
        return {{"experts", static_cast<double>(as<keel_expert_matmul_args>(args).experts)}};
    case KEEL_OP_ROPE: return with_rope({}, as<keel_rope_args>(args).tables);
    case KEEL_OP_QKV_PREPARE:
        return with_rope({{"eps", as<keel_qkv_args>(args).eps}}, as<keel_qkv_args>(args).tables);
    case KEEL_OP_ATTENTION: {
        const auto &a = as<keel_attention_args>(args);
        return with_scores(
            {{"scale", a.scale}, {"softcap", a.softcap}, {"window", static_cast<double>(a.window)}},
            a.scores);
    }
    case KEEL_OP_ATTENTION_SCORES: {
        const auto &a = as<keel_attention_scores_args>(args);
        return with_scores(
            {{"scale", a.scale}, {"softcap", a.softcap}, {"window", static_cast<double>(a.window)}},
            a.scores);
    }
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: {
        const auto &a = as<keel_keys_args>(args);
        return with_rope(range(a.begin, a.end), a.tables);
    }
    case KEEL_OP_KV_REROTATE: {
        const auto &a = as<keel_kv_rerotate_args>(args);
        return with_rope(range(a.begin, a.end), a.tables);
    }
    case KEEL_OP_KV_GATHER: {
        const auto &a = as<keel_kv_gather_args>(args);
        const bool in_place = a.from->k->buffer == a.to->k->buffer &&
                              a.from->block_table->buffer == a.to->block_table->buffer &&
                              a.from->block_table->offset == a.to->block_table->offset;
        return {{"in_place", in_place ? 1 : 0}, {"sides", a.n_sides}};
    }
    default: return {};
    }
}

Weight *find_weight(Pipeline &pipeline, const Weight *wanted) {
    ModelWeights &w = pipeline.weights();
    for (Weight *candidate : {&w.embedding(), &w.output()}) {
        if (candidate == wanted) return candidate;
    }
    for (size_t i = 0; i < static_cast<size_t>(pipeline.model().layers); ++i) {
        LayerWeights &layer = w.layer(i);
        for (Weight *candidate : layer.matrices()) {
            if (candidate == wanted) return candidate;
        }
    }
    return nullptr;
}

void write_file(const std::filesystem::path &file, const void *data, size_t bytes) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(static_cast<const char *>(data), static_cast<std::streamsize>(bytes));
    out.close();
    if (!out) throw_error(ErrorKind::runtime, "{}: cannot write {} bytes", file.string(), bytes);
}

template <typename T> std::vector<std::byte> bytes_of(const std::vector<T> &values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

} // namespace

namespace {

// Returns the number of slots of each head that a compaction reads. The lengths in the view cannot
// be used, because these lengths can be the lengths before or after the compaction.
std::vector<int32_t> gathered_slots(Device &device, const keel_kv_gather_args &a) {
    std::vector<int32_t> slots = read_ints(device, *a.count);
    const std::vector<int32_t> index = read_ints(device, *a.index);
    const auto columns = static_cast<size_t>(a.index->shape[1]);
    for (size_t head = 0; head < slots.size(); ++head) {
        const auto n = static_cast<size_t>(std::clamp<int64_t>(slots[head], 0, a.index->shape[1]));
        slots[head] = n == 0 ? 0 : index[head * columns + n - 1] + 1;
    }
    return slots;
}

// True if the op reads rows of the cache and does not change them.
bool only_reads(keel_op op) {
    switch (op) {
    case KEEL_OP_ATTENTION:
    case KEEL_OP_ATTENTION_SCORES:
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: return true;
    default: return false;
    }
}

} // namespace

const keel_kv_view *cache_of(keel_op op, const keel_op_args *args) {
    switch (op) {
    case KEEL_OP_QKV_PREPARE: return as<keel_qkv_args>(args).kv;
    case KEEL_OP_ATTENTION: return as<keel_attention_args>(args).kv;
    case KEEL_OP_ATTENTION_SCORES: return as<keel_attention_scores_args>(args).kv;
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: return as<keel_keys_args>(args).kv;
    case KEEL_OP_KV_APPEND: return as<keel_kv_append_args>(args).kv;
    case KEEL_OP_KV_REROTATE: return as<keel_kv_rerotate_args>(args).kv;
    case KEEL_OP_KV_GATHER: return as<keel_kv_gather_args>(args).to;
    default: return nullptr;
    }
}

OpDump::OpDump(Device &device, const PlannedOp &op, const keel_op_args *args)
    : label_(op.label()), op_(op_name(op.op())), kernel_(op.kernel()), features_(args->features),
      scalars_(scalars_of(op.op(), args)) {
    const OpCall copy(op.op(), args);
    for (const OpCall::Operand &slot : copy.tensors()) {
        if (is_late(slot.name)) continue;
        if (slot.access != OpCall::Access::in) {
            const keel_tensor &t = slot.tensor;
            outputs_.push_back({slot.name, "out", t.dtype, {t.shape, t.shape + t.rank}, {}, false});
        }
        if (slot.access == OpCall::Access::out) continue;
        add(device, slot.tensor, slot.name, slot.access == OpCall::Access::in ? "in" : "in_out");
    }
    // The op changes the cache, so the rows of the cache must be read before the op runs.
    if (op.op() == KEEL_OP_KV_REROTATE) add_view(device, *as<keel_kv_rerotate_args>(args).kv, {});
    if (op.op() == KEEL_OP_KV_GATHER) {
        const auto &a = as<keel_kv_gather_args>(args);
        add_view(device, *a.from, gathered_slots(device, a));
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
    entries_.push_back(
        {values.name, role, KEEL_DTYPE_F32, values.shape, bytes_of(values.values), true});
}

void OpDump::add_shape(const keel_kv_view &view) {
    scalars_.emplace_back("kv_heads", view.kv_heads);
    scalars_.emplace_back("block_slots", view.block_slots);
    scalars_.emplace_back("head_dim", view.k->shape[2]);
    scalars_.emplace_back("v_head_dim", view.v->shape[2]);
    scalars_.emplace_back("key_dtype", view.k->dtype);
    scalars_.emplace_back("value_dtype", view.v->dtype);
}

// Adds the rows of the cache, head by head. Blocks are not saved, because a replay allocates new
// blocks.
void OpDump::add_view(Device &device, const keel_kv_view &view, std::vector<int32_t> lengths) {
    if (lengths.empty()) lengths = read_ints(device, *view.lengths);
    add_shape(view);
    entries_.push_back(
        {"kv.lengths", "in", KEEL_DTYPE_I32, {std::ssize(lengths)}, bytes_of(lengths), true});
    std::vector<SlotRange> ranges;
    uint64_t rows = 0;
    for (const int32_t length : lengths) {
        ranges.emplace_back(0, length);
        rows += static_cast<uint64_t>(std::max(length, 0));
    }
    for (const bool keys : {true, false}) {
        const keel_tensor &arena = keys ? *view.k : *view.v;
        Entry entry{keys ? "kv.k" : "kv.v", "in", KEEL_DTYPE_F32, {}, {}, false};
        entry.shape = {static_cast<int64_t>(rows), arena.shape[2]};
        if (rows * static_cast<uint64_t>(arena.shape[2]) * sizeof(float) <= largest_tensor) {
            const TensorValues values = read_kv(device, view, keys, ranges);
            entry.shape = values.shape;
            entry.bytes = bytes_of(values.values);
            entry.present = true;
        }
        entries_.push_back(std::move(entry));
    }
    Entry positions{"kv.positions", "in", KEEL_DTYPE_I32, {}, {}, true};
    const std::vector<int32_t> all = read_ints(device, *view.positions);
    const auto slots = static_cast<size_t>(view.positions->shape[1]);
    std::vector<int32_t> used;
    for (size_t head = 0; head < lengths.size(); ++head) {
        const auto row = all.begin() + static_cast<std::ptrdiff_t>(head * slots);
        used.insert(used.end(), row,
                    row + std::min<int64_t>(lengths[head], view.positions->shape[1]));
    }
    positions.shape = {std::ssize(used)};
    positions.bytes = bytes_of(used);
    entries_.push_back(std::move(positions));
}

// Adds the weight in its own dtype. With a different dtype, the replay would run a different
// kernel.
void OpDump::add_weight(Pipeline &pipeline, const PlannedOp &op) {
    const Weight *weight = find_weight(pipeline, op.weight());
    if (weight == nullptr) return;
    Entry entry{"weight", "in", weight->dtype(), {weight->rows(), weight->cols()}, {}, false};
    const uint64_t row =
        keel_dtype_row_bytes(weight->dtype(), static_cast<uint64_t>(weight->cols()));
    if (static_cast<uint64_t>(weight->rows()) <= largest_weight / std::max<uint64_t>(row, 1)) {
        entry.bytes = weight->joined();
        entry.present = true;
    }
    scalars_.emplace_back("weight_dtype", weight->dtype());
    entries_.push_back(std::move(entry));
}

void OpDump::complete(Pipeline &pipeline, const PlannedOp &op, const keel_op_args *args) {
    Device &device = pipeline.device();
    const OpCall copy(op.op(), args);
    for (const OpCall::Operand &slot : copy.tensors()) {
        if (begins_with(slot.name, "tables.")) add(device, slot.tensor, slot.name, "in");
    }
    const keel_kv_view *view = cache_of(op.op(), args);
    if (op.op() == KEEL_OP_QKV_PREPARE || op.op() == KEEL_OP_KV_APPEND) {
        add(device, *view->lengths, "kv.lengths", "in");
        add_shape(*view);
    } else if (only_reads(op.op())) {
        add_view(device, *view, {});
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
    for (const auto &[name, value] : scalars_) json["scalars"][name] = value;
    json.update(more);
    json["tensors"] = Json::array();
    for (const Entry &entry : entries_) {
        const std::string file = fmt::format("{}.{}.bin", entry.role, entry.name);
        std::vector<uint64_t> strides(entry.shape.size());
        uint64_t stride =
            entry.shape.empty()
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
        json["outputs"].push_back({{"name", entry.name},
                                   {"dtype", keel_dtype_name(entry.dtype)},
                                   {"shape", entry.shape}});
    const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    write_file(folder / "op.json", text.data(), text.size());
}

} // namespace keel
