#include "eval/bench/op_times.hpp"

#include "eval/compare/tensor_values.hpp"
#include "ops/op_call.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>

namespace keel {
namespace {

double d(int64_t value) { return static_cast<double>(value); }

double elements(const keel_tensor &t) {
    double n = 1;
    for (uint32_t i = 0; i < t.rank; ++i) n *= d(t.shape[i]);
    return n;
}

double row_bytes(const keel_tensor &t) {
    return d(static_cast<int64_t>(keel_dtype_row_bytes(t.dtype, t.shape[t.rank - 1])));
}

double tensor_bytes(const keel_tensor &t) {
    return t.rank == 0 || t.shape[t.rank - 1] == 0
               ? 0
               : elements(t) / d(t.shape[t.rank - 1]) * row_bytes(t);
}

// Returns the bytes of a weight on the device. If the op falls back to another device, returns the
// bytes of the weight's original form.
double weight_bytes(const Device &device, const Weight &weight) {
    return weight.is_ready(device) ? d(static_cast<int64_t>(weight.bytes(device)))
                                   : tensor_bytes(*weight.shape());
}

// The K and V data that attention reads: the slots in use.
struct Cache {
    // Counts only the slots from `begin` to `end`.
    Cache(Device &device, const keel_kv_view &view, int64_t begin = 0, int64_t end = INT64_MAX)
        : lengths(read_ints(device, *view.lengths)), key(row_bytes(*view.k)),
          value(row_bytes(*view.v)), key_size(d(view.k->shape[2])),
          value_size(d(view.v->shape[2])) {
        for (const int32_t length : lengths)
            slots += d(std::max<int64_t>(std::min<int64_t>(length, end) - begin, 0));
    }
    std::vector<int32_t> lengths;
    double key, value;           // bytes of one slot
    double key_size, value_size; // elements of one slot
    double slots = 0;            // slots in use of all heads together
};

// Returns the number of pairs of a query and a slot to which the query attends, over all heads. Of
// the m queries, only the queries from number `first` on count.
double pairs_seen(const Cache &cache, int64_t m, int64_t first, int64_t heads, bool is_causal,
                  int64_t window) {
    double pairs = 0;
    for (const int32_t length : cache.lengths) {
        for (int64_t i = first; i < m; ++i) {
            int64_t seen = is_causal ? std::max<int64_t>(length - m + i + 1, 0) : length;
            if (window > 0) seen = std::min(seen, window);
            pairs += d(seen);
        }
    }
    return pairs * d(heads) / std::max(d(std::ssize(cache.lengths)), 1.0);
}

void add_attention(Device &device, const keel_attention_args &a, OpWork &work) {
    const Cache cache(device, *a.kv);
    const int64_t m = a.q->shape[0], heads = a.q->shape[1];
    const bool is_causal = (a.features & KEEL_ATTENTION_CAUSAL) != 0;
    const int64_t window = (a.features & KEEL_ATTENTION_WINDOW) != 0 ? a.window : 0;
    work.flop +=
        2 * pairs_seen(cache, m, 0, heads, is_causal, window) * (cache.key_size + cache.value_size);
    // In a model with a window, attention does not read slots that are outside the windows of all
    // queries.
    for (const int32_t length : cache.lengths)
        work.bytes += d(window > 0 ? std::min<int64_t>(length, m - 1 + window) : length) *
                      (cache.key + cache.value);
    if ((a.features & KEEL_ATTENTION_SCORES) == 0) return;
    work.bytes += cache.slots * 4;
    // With one query, the scores are the probabilities that attention computes anyway. With several
    // queries, the queries and keys are multiplied again.
    const int64_t counted = a.scores->window == 0 ? m : std::min<int64_t>(a.scores->window, m);
    if (m > 1)
        work.flop +=
            2 * pairs_seen(cache, m, m - counted, heads, is_causal, window) * cache.key_size;
}

void add_scores(Device &device, const keel_attention_scores_args &a, OpWork &work) {
    const Cache cache(device, *a.kv);
    const int64_t m = a.q->shape[0], heads = a.q->shape[1],
                  counted = a.scores->window == 0 ? m : std::min<int64_t>(a.scores->window, m),
                  window = (a.features & KEEL_SCORES_WINDOW) != 0 ? a.window : 0;
    const bool is_causal = (a.features & KEEL_SCORES_CAUSAL) != 0;
    work.flop += 2 * pairs_seen(cache, m, m - counted, heads, is_causal, window) * cache.key_size;
    for (const int32_t length : cache.lengths)
        work.bytes +=
            d(window > 0 ? std::min<int64_t>(length, counted - 1 + window) : length) * cache.key;
    work.bytes += cache.slots * 4;
}

bool is_of_keys(keel_op op) {
    return op == KEEL_OP_KEY_PROJECT || op == KEEL_OP_KEY_SUM || op == KEEL_OP_VALUE_NORMS;
}

bool is_counted(keel_op op, const keel_op_args *args) {
    const bool ranges =
        op == KEEL_OP_ATTENTION_SCORES && (args->features & KEEL_SCORES_RANGES) != 0;
    return op != KEEL_OP_KV_GATHER && op != KEEL_OP_KV_REROTATE && !ranges;
}

} // namespace

OpWork op_work(Device &device, const PlannedOp &op, const keel_op_args *args) {
    OpWork work;
    if (!is_counted(op.op(), args)) return work;
    OpCall copy(op.op(), args);
    for (const OpCall::Operand &slot : copy.tensors()) {
        const std::string_view name = slot.name;
        if (name == "w" || name == "scores.out" || name.starts_with("kv.") ||
            name.starts_with("tables."))
            continue; // the switch below counts this tensor
        if (name == "out" && is_of_keys(op.op())) continue;
        work.bytes += tensor_bytes(slot.tensor) * (slot.access == OpCall::Access::in_out ? 2 : 1);
    }
    switch (op.op()) {
    case KEEL_OP_MATMUL: {
        const auto &a = copy.as<keel_matmul_args>();
        work.bytes +=
            op.weight() != nullptr ? weight_bytes(device, *op.weight()) : tensor_bytes(*a.w);
        work.flop += 2 * elements(*a.x) * d(a.out->shape[a.out->rank - 1]);
        break;
    }
    case KEEL_OP_EXPERT_MATMUL: { // reads only the experts that the rows choose
        const auto &a = copy.as<keel_expert_matmul_args>();
        std::vector<int32_t> index = read_ints(device, *a.index);
        work.flop += 2 * d(std::ssize(index)) * d(a.x->shape[2]) * d(a.out->shape[a.out->rank - 1]);
        std::sort(index.begin(), index.end());
        const auto chosen = std::unique(index.begin(), index.end()) - index.begin();
        const double all =
            op.weight() != nullptr ? weight_bytes(device, *op.weight()) : tensor_bytes(*a.w);
        work.bytes += all / d(a.experts) * d(chosen);
        break;
    }
    case KEEL_OP_EMBED: { // reads one row of the matrix for each id
        const auto &a = copy.as<keel_embed_args>();
        work.bytes +=
            elements(*a.ids) * row_bytes(op.weight() != nullptr ? *op.weight()->shape() : *a.w);
        break;
    }
    case KEEL_OP_ATTENTION: add_attention(device, copy.as<keel_attention_args>(), work); break;
    case KEEL_OP_ATTENTION_SCORES:
        add_scores(device, copy.as<keel_attention_scores_args>(), work);
        break;
    case KEEL_OP_QKV_PREPARE: {
        const auto &a = copy.as<keel_qkv_args>();
        work.bytes +=
            d(a.k->shape[0]) * d(a.kv->kv_heads) * (row_bytes(*a.kv->k) + row_bytes(*a.kv->v));
        break;
    }
    case KEEL_OP_KV_APPEND: {
        const auto &a = copy.as<keel_kv_append_args>();
        work.bytes +=
            d(a.k->shape[0]) * d(a.kv->kv_heads) * (row_bytes(*a.kv->k) + row_bytes(*a.kv->v));
        break;
    }
    case KEEL_OP_KEY_PROJECT:
    case KEEL_OP_KEY_SUM:
    case KEEL_OP_VALUE_NORMS: {
        const auto &a = copy.as<keel_keys_args>();
        const Cache cache(device, *a.kv, a.begin, a.end);
        work.bytes += cache.slots * (op.op() == KEEL_OP_VALUE_NORMS ? cache.value : cache.key);
        work.bytes += op.op() == KEEL_OP_KEY_SUM
                          ? tensor_bytes(*a.out)
                          : cache.slots * (a.out->rank == 3 ? row_bytes(*a.out) : 4);
        break;
    }
    default: break;
    }
    return work;
}

bool f32_peak_limits(const Device &device, const PlannedOp &op) {
    return device.device_info().type == KEEL_DEVICE_CPU && !op.kernel().ends_with(" fast");
}

OpTimes::OpTimes(Pipeline &pipeline) : pipeline_(pipeline) {
    pipeline.engines().set_observer(
        [this](Executor &executor, const PlannedOp &op, const keel_op_args *args, bool after) {
            if (!after) {
                begin_ = Clock::now();
                return;
            }
            executor.stream().wait();
            add(executor.device(), op, args,
                std::chrono::duration<double>(Clock::now() - begin_).count());
        });
}

OpTimes::~OpTimes() { pipeline_.engines().set_observer({}); }

void OpTimes::add(Device &device, const PlannedOp &op, const keel_op_args *args, double seconds) {
    const std::string_view part = op.part();
    auto total = std::find_if(totals_.begin(), totals_.end(), [&](const OpTotal &t) {
        return t.part == part && t.op == op_name(op.op()) && t.kernel == op.kernel();
    });
    if (total == totals_.end()) {
        totals_.push_back({std::string(part), op_name(op.op()), op.kernel()});
        total = totals_.end() - 1;
        total->f32_peak_limits = f32_peak_limits(device, op);
    }
    const OpWork work = op_work(device, op, args);
    ++total->calls;
    total->seconds += seconds;
    total->flop += work.flop;
    total->bytes += work.bytes;
}

} // namespace keel
