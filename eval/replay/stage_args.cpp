#include "eval/replay/stage.hpp"
#include "ops/op_table.hpp"

#include <algorithm>

namespace keel {

template <typename Args> Args &OpStage::args() {
    storage_.assign(sizeof(Args), std::byte{0});
    auto &a = *reinterpret_cast<Args *>(storage_.data());
    a.h = KEEL_HEADER(Args);
    a.features = saved_.features;
    return a;
}

float OpStage::number(const char *name) const {
    constexpr double large = 1e30;
    return static_cast<float>(saved_.scalar(name, -large, large));
}

int64_t OpStage::whole(const char *name) const {
    return static_cast<int64_t>(saved_.scalar(name, 0, 1e15));
}

// Fills in the op's args with the saved tensors that have the matching names.
void OpStage::build() {
    if (!build_plain() && !build_on_cache()) misfit(saved_, "this op cannot be replayed");
    check_indices();
}

bool OpStage::build_plain() {
    switch (saved_.op) {
    case KEEL_OP_MATMUL: {
        auto &a = args<keel_matmul_args>();
        a.x = input("x");
        a.bias = has(KEEL_MATMUL_BIAS) ? input("bias") : nullptr;
        a.out = output("out");
        return true;
    }
    case KEEL_OP_EMBED: {
        auto &a = args<keel_embed_args>();
        a.ids = input("ids");
        a.out = output("out");
        a.scale = number("scale");
        return true;
    }
    case KEEL_OP_CHOOSE_EXPERTS: {
        auto &a = args<keel_choose_experts_args>();
        a.logits = input("logits");
        a.bias = input("bias", false);
        a.index = output("index");
        a.weights = output("weights");
        a.scale = number("scale");
        a.groups = static_cast<uint32_t>(whole("groups"));
        a.groups_kept = static_cast<uint32_t>(whole("groups_kept"));
        a.group_top = static_cast<uint32_t>(whole("group_top"));
        return true;
    }
    case KEEL_OP_EXPERT_MATMUL: {
        auto &a = args<keel_expert_matmul_args>();
        a.x = input("x");
        a.index = input("index");
        a.weights = input("weights", false);
        a.out = output("out");
        a.experts = whole("experts");
        return true;
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
        return true;
    }
    case KEEL_OP_SILU_MUL:
    case KEEL_OP_GELU_MUL: {
        auto &a = args<keel_gate_args>();
        a.gate = input("gate");
        a.up = input("up", false);
        a.out = output("out");
        return true;
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
        return true;
    }
    case KEEL_OP_SOFTMAX:
    case KEEL_OP_CAST:
    case KEEL_OP_COPY:
    case KEEL_OP_TRANSPOSE:
    case KEEL_OP_ZERO: {
        auto &a = args<keel_move_args>();
        if (saved_.op != KEEL_OP_ZERO) a.x = input("x");
        a.out = output("out");
        return true;
    }
    case KEEL_OP_ARGMAX_ROWS:
    case KEEL_OP_TOP_K_ROWS: {
        auto &a = args<keel_rows_args>();
        a.x = input("x");
        if (saved_.op == KEEL_OP_TOP_K_ROWS)
            a.values = output("values", false); // NULL if argmax writes no values
        a.index = output("index");
        return true;
    }
    case KEEL_OP_ROPE: {
        auto &a = args<keel_rope_args>();
        a.x = input("x");
        a.positions = input("positions");
        a.tables = tables();
        a.out = output("out");
        return true;
    }
    case KEEL_OP_QUERY_STATS: {
        auto &a = args<keel_query_stats_args>();
        a.q = input("q");
        a.sum = output("sum");
        a.second = output("second", false);
        return true;
    }
    default: return false;
    }
}

bool OpStage::build_on_cache() {
    switch (saved_.op) {
    case KEEL_OP_QKV_PREPARE: {
        auto &a = args<keel_qkv_args>();
        a.q = input("q");
        a.k = input("k");
        a.v = input("v");
        a.positions = input("positions");
        a.tables = tables();
        a.q_norm = input("q_norm", false);
        a.k_norm = input("k_norm", false);
        a.kv = cache(view_, Rows::none);
        a.q_out = output("q_out");
        a.q_unrotated = output("q_unrotated", false);
        a.k_unrotated = output("k_unrotated", false);
        a.eps = number("eps");
        return true;
    }
    case KEEL_OP_ATTENTION: {
        auto &a = args<keel_attention_args>();
        a.q = input("q");
        a.kv = cache(view_, Rows::saved);
        a.out = output("out");
        a.q_positions = input("q_positions", false);
        a.lse = output("lse", false);
        a.scores = has(KEEL_ATTENTION_SCORES) ? scores() : nullptr;
        a.scale = number("scale");
        a.softcap = number("softcap");
        a.window = whole("window");
        return true;
    }
    case KEEL_OP_ATTENTION_SCORES: {
        auto &a = args<keel_attention_scores_args>();
        a.q = input("q");
        a.kv = cache(view_, Rows::saved);
        a.ranges = input("ranges", false);
        a.weights = input("weights", false);
        a.q_positions = input("q_positions", false);
        a.scores = scores();
        a.scale = number("scale");
        if (has(KEEL_SCORES_SOFTCAP)) a.softcap = number("softcap");
        if (has(KEEL_SCORES_WINDOW)) a.window = whole("window");
        return true;
    }
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: {
        auto &a = args<keel_keys_args>();
        a.kv = cache(view_, Rows::saved);
        a.tables =
            saved_.op == KEEL_OP_KEY_PROJECT && has(KEEL_KEYS_UNROTATED) ? tables() : nullptr;
        a.projection = input("projection", false);
        a.out = output("out");
        a.begin = whole("begin");
        a.end = whole("end");
        return true;
    }
    case KEEL_OP_KV_APPEND: {
        auto &a = args<keel_kv_append_args>();
        a.k = input("k");
        a.v = input("v");
        a.positions = input("positions");
        a.kv = cache(view_, Rows::none);
        return true;
    }
    case KEEL_OP_KV_REROTATE: {
        auto &a = args<keel_kv_rerotate_args>();
        a.kv = cache(view_, Rows::saved);
        a.tables = tables();
        a.row = input("row");
        a.new_positions = input("new_positions");
        a.source = has(KEEL_REROTATE_SOURCE) ? input("source") : nullptr;
        a.begin = whole("begin");
        a.end = whole("end");
        return true;
    }
    case KEEL_OP_KV_GATHER: build_gather(); return true;
    default: return false;
    }
}

void OpStage::build_gather() {
    auto &a = args<keel_kv_gather_args>();
    a.from = cache(view_, Rows::saved);
    // In a fork, the op writes to one set of blocks and reads from another set of blocks.
    a.to = saved_.scalar("in_place", 0, 1) != 0 ? a.from : cache(to_, Rows::none);
    a.index = input("index");
    a.count = input("count");
    const auto sides = static_cast<uint32_t>(saved_.scalar("sides", 0, 16));
    for (uint32_t i = 0; i < sides; ++i)
        sides_.push_back(output(fmt::format("side.{}", i).c_str()));
    a.sides = sides_.data();
    a.n_sides = sides;
}

// Checks values that a backend does not have to check: positions below 0 (positions are row numbers
// of tables), slots outside the cache, and overlapping ranges.
void OpStage::check_indices() const {
    const auto ints = [&](const char *name) {
        const SavedTensor &t = saved_.need("in", name);
        if (t.dtype != KEEL_DTYPE_I32) misfit(saved_, fmt::format("{}: expected i32", name));
        return t.ints();
    };
    for (const char *name : {"positions", "kv.positions"}) {
        if (saved_.find("in", name) == nullptr) continue;
        if (name[0] == 'k' && saved_.op != KEEL_OP_KEY_PROJECT)
            continue; // this op only stores or subtracts positions, so any position is allowed
        for (const int32_t p : ints(name)) {
            if (p < 0) misfit(saved_, fmt::format("positions: expected 0 or more, found {}", p));
        }
    }
    if (saved_.op == KEEL_OP_ATTENTION_SCORES && saved_.find("in", "ranges") != nullptr) {
        std::vector<int32_t> ranges = ints("ranges");
        std::vector<std::pair<int32_t, int32_t>> sorted;
        for (size_t i = 0; i + 1 < ranges.size(); i += 2) {
            if (ranges[i] < 0 || ranges[i + 1] < ranges[i])
                misfit(saved_, fmt::format("ranges: found the invalid range from {} to {}",
                                           ranges[i], ranges[i + 1]));
            if (ranges[i] < ranges[i + 1]) sorted.emplace_back(ranges[i], ranges[i + 1]);
        }
        std::sort(sorted.begin(), sorted.end());
        for (size_t i = 1; i < sorted.size(); ++i) {
            if (sorted[i].first < sorted[i - 1].second)
                misfit(saved_, "ranges: expected separate ranges, found two that overlap");
        }
    }
    if (saved_.op != KEEL_OP_KV_GATHER) return;
    const std::vector<int32_t> lengths = ints("kv.lengths"), count = ints("count"),
                               index = ints("index");
    const SavedTensor &lists = saved_.need("in", "index");
    const size_t columns = lists.shape.size() == 2 ? static_cast<size_t>(lists.shape[1]) : 0;
    if (lists.shape.size() != 2 || count.size() != lengths.size() ||
        index.size() != columns * count.size())
        misfit(saved_, "index and count: expected i32 [kv_heads, n] and i32 [kv_heads]");
    for (size_t head = 0; head < count.size(); ++head) {
        if (count[head] < 0 || static_cast<size_t>(count[head]) > columns)
            misfit(saved_, fmt::format("count: found {}, expected 0 to {}", count[head], columns));
        int32_t before = -1;
        for (size_t j = 0; j < static_cast<size_t>(count[head]); ++j) {
            const int32_t slot = index[head * columns + j];
            if (slot <= before || slot >= lengths[head])
                misfit(saved_,
                       fmt::format(
                           "index: found slot {} after slot {}; expected rising slots below {}",
                           slot, before, lengths[head]));
            before = slot;
        }
    }
}

} // namespace keel
