#include "eval/compare/compare.hpp"

#include "eval/compare/judge.hpp"
#include "eval/scoring/logits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace keel {
namespace {

// Limit for the bytes of the outputs of one step. The host keeps the outputs of a step of the
// second pipeline in memory.
constexpr uint64_t record_bytes = uint64_t{256} << 20;
constexpr int64_t largest_chunk = 32; // limit for the tokens of a chunk

void require_same(const char *what, int64_t a, int64_t b) {
    if (a == b) return;
    throw_error(ErrorKind::input,
                "cannot compare the pipelines op by op: {} is {} in the first and {} in the "
                "second; use pipelines with the same model shape",
                what, a, b);
}

std::string value_text(const keel_param *p) {
    if (p == nullptr) return "nothing";
    if (p->s != nullptr) return p->s;
    return p->type == KEEL_PARAM_FLOAT ? fmt::format("{}", p->f) : fmt::format("{}", p->i);
}

// Throws Error(input) if the parameters of the policies differ. The policies would then keep
// different slots, so every op after an eviction would differ.
void check_policies(const PolicyBinding &a, const PolicyBinding &b) {
    const auto check = [](const char *section, const BoundPlugin &x, const BoundPlugin &y) {
        if (x.library == nullptr || x.library != y.library) return;
        for (const keel_param &p : x.params.rows()) {
            const std::string first = value_text(&p), second = value_text(y.params.find(p.key));
            if (first != second)
                throw_error(
                    ErrorKind::input,
                    "cannot compare the pipelines op by op: {}.params.{} is {} in the first and "
                    "{} in the second, so they would keep different slots; use equal values",
                    section, p.key, first, second);
        }
    };
    check("policy", a.policy, b.policy);
    check("policy.allocator", a.allocator, b.allocator);
}

void check_models(Pipeline &a, Pipeline &b) {
    const ModelConfig &m = a.model(), &n = b.model();
    require_same("the number of layers", m.layers, n.layers);
    require_same("the hidden size", m.hidden_size, n.hidden_size);
    require_same("the feed-forward size", m.intermediate_size, n.intermediate_size);
    require_same("the number of experts", m.experts.count, n.experts.count);
    require_same("the number of experts for each token", m.experts.used, n.experts.used);
    require_same("the size of an expert", m.experts.size, n.experts.size);
    require_same("the size of the shared expert", m.experts.shared_size, n.experts.shared_size);
    require_same("the number of heads", m.heads, n.heads);
    require_same("the number of KV heads", m.kv_heads, n.kv_heads);
    require_same("the head size", m.head_dim, n.head_dim);
    require_same("the vocabulary", m.vocab_size, n.vocab_size);
    if (*a.config().policy.plugin != *b.config().policy.plugin) {
        throw_error(ErrorKind::input,
                    "cannot compare the pipelines op by op: the first has policy {}, the second "
                    "{}; use one policy, or --set policy.plugin=none to compare without eviction",
                    *a.config().policy.plugin, *b.config().policy.plugin);
    }
    check_policies(a.policies().own(), b.policies().own());
}

void check_tokens(Pipeline &a, Pipeline &b, const CompareOptions &o) {
    if (o.prompt.empty())
        throw_error(ErrorKind::usage, "expected a prompt with at least one token, found none");
    if (o.steps < 0 || o.steps > 100000)
        throw_error(ErrorKind::usage, "steps: expected 0 to 100000, found {}", o.steps);
    if (o.bound && !(*o.bound >= 0))
        throw_error(ErrorKind::usage, "bound: expected 0 or more, found {}", *o.bound);
    for (const int32_t id : o.prompt) {
        if (id < 0 || id >= a.model().vocab_size)
            throw_error(ErrorKind::usage, "prompt: token {} is not in the vocabulary (0 to {})", id,
                        a.model().vocab_size - 1);
    }
    const auto needed = static_cast<int64_t>(o.prompt.size()) + o.steps;
    for (Pipeline *p : {&a, &b}) {
        if (p->policy_setup().keeps_all() && needed > p->context())
            throw_error(ErrorKind::usage,
                        "{} tokens and {} steps need a context of {}, but a pipeline has {}; use a "
                        "shorter prompt or fewer steps",
                        o.prompt.size(), o.steps, needed, p->context());
    }
}

int64_t chunk_tokens(Pipeline &a, Pipeline &b) {
    const ModelConfig &m = a.model();
    const auto per_layer = static_cast<uint64_t>(
        4 * m.hidden_size + 4 * (m.q_size() + m.kv_size()) + 3 * m.active_intermediate());
    const uint64_t per_token = per_layer * static_cast<uint64_t>(m.layers) * sizeof(float);
    const auto fits = static_cast<int64_t>(record_bytes / per_token);
    const int64_t planned = std::min<int64_t>(a.graph().max_tokens(), b.graph().max_tokens());
    return std::clamp<int64_t>(std::min(fits, largest_chunk), 1, planned);
}

double share(double squares, double scale) {
    return squares == 0 ? 0
           : scale > 0  ? std::sqrt(squares / scale)
                        : std::numeric_limits<double>::infinity();
}

std::string dtypes_of(Pipeline &p) {
    const std::string key = keel_dtype_name(p.kv_shape().key_dtype),
                      value = keel_dtype_name(p.kv_shape().value_dtype);
    return fmt::format("weights {}, KV {}", p.weights().dtype_name(),
                       key == value ? key : key + " and " + value);
}

// Compares the logits of one row: adds the KL divergence of the first pipeline from the second
// pipeline.
void add_logits(CompareLogits &sums, std::span<const float> a, std::span<const float> b) {
    for (size_t i = 0; i < a.size(); ++i)
        sums.max_difference =
            std::max(sums.max_difference, std::abs(static_cast<double>(a[i]) - b[i]));
    const RowDifference d = compare_rows(a, b, 0);
    sums.max_kl = std::max(sums.max_kl, d.kl);
    sums.mean_kl += (d.kl - sums.mean_kl) / static_cast<double>(++sums.rows);
    sums.same_top += d.same_top ? 1 : 0;
}

class Comparison {
  public:
    Comparison(Pipeline &a, Pipeline &b, const CompareOptions &options)
        : a_(a), b_(b), options_(options), judge_(a, b, options, report_), session_a_(a),
          session_b_(b) {
        // With `resync`, the first pipeline computes each op from the second pipeline's numbers. So
        // a separate session runs the first pipeline with the first pipeline's own numbers.
        if (options.resync) free_ = std::make_unique<Session>(a);
    }

    CompareReport run() {
        report_.dtypes_first = dtypes_of(a_);
        report_.dtypes_second = dtypes_of(b_);
        report_.is_across_dtypes = report_.dtypes_first != report_.dtypes_second;
        report_.first =
            fmt::format("{} ({})", a_.device().plugin(), a_.device().info().description);
        report_.second =
            fmt::format("{} ({})", b_.device().plugin(), b_.device().info().description);
        const std::span<const int32_t> prompt = options_.prompt;
        const auto total = static_cast<int64_t>(prompt.size());
        const int64_t chunk = chunk_tokens(a_, b_);
        for (int64_t done = 0; done < total;) {
            const int64_t n = std::min(chunk, total - done);
            const bool last = done + n == total;
            const auto ids = prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(n));
            const auto feed = [&](Session &s) { s.prefill(ids, last, last ? 1 : 0); };
            step(fmt::format("prefill of tokens {}..{}", done, done + n - 1), feed, last);
            done += n;
            progress(done, total + options_.steps);
        }
        for (int64_t i = 0; i < options_.steps; ++i) {
            const int32_t id = next_;
            const auto feed = [&](Session &s) {
                s.decode(id);
                (void)s.greedy(); // argmax is an op too, so argmax runs and is compared
            };
            step(fmt::format("decode of token {}", total + i), feed, true);
            progress(total + i + 1, total + options_.steps);
        }
        report_.tokens = static_cast<uint64_t>(total + options_.steps);
        return std::move(report_);
    }

  private:
    // First runs the step in the second pipeline and keeps the outputs of the ops. Then runs the
    // same step in the first pipeline and compares each op.
    template <typename Feed>
    void step(const std::string &name, const Feed &feed, bool with_logits) {
        judge_.begin_step(name);
        residuals_.clear();
        {
            const auto record = [this](const PlannedOp &op, const keel_op_args *args, bool after) {
                if (!after) return;
                judge_.record(op, args);
                if (const keel_tensor *x = residual_after(b_.model(), op, args))
                    residuals_.push_back(read_values(b_.device(), *x, {}).values);
            };
            const Executor::Watch watch(b_.executor(), record);
            feed(session_b_);
        }
        {
            const auto judge = [this](const PlannedOp &op, const keel_op_args *args, bool after) {
                after ? judge_.after(op, args) : judge_.before(op, args);
                if (after && !free_) add_layer(op, args);
            };
            const Executor::Watch watch(a_.executor(), judge);
            layer_ = 0;
            feed(session_a_);
        }
        judge_.end_step();
        for (Pipeline *p : {&a_, &b_}) {
            if (p->host().cancelled()) throw_error(ErrorKind::runtime, "cancelled");
        }
        if (free_) {
            const auto add = [this](const PlannedOp &op, const keel_op_args *args, bool after) {
                if (after) add_layer(op, args);
            };
            const Executor::Watch watch(a_.executor(), add);
            layer_ = 0;
            feed(*free_);
        }
        if (!with_logits) return;
        const std::span<const float> logits = session_b_.logits();
        add_logits(report_.logits, (free_ ? *free_ : session_a_).logits(), logits);
        next_ = most_likely(logits);
    }

    // After the last op of a layer, compares the residual streams of both pipelines.
    void add_layer(const PlannedOp &op, const keel_op_args *args) {
        const keel_tensor *x = residual_after(a_.model(), op, args);
        if (x == nullptr || layer_ >= residuals_.size()) return;
        const std::vector<float> a = read_values(a_.device(), *x, {}).values,
                                 &b = residuals_[layer_];
        if (report_.layers.size() <= layer_) report_.layers.resize(layer_ + 1);
        CompareLayer &sums = report_.layers[layer_++];
        sums.layer = op.tag().layer;
        for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
            const double d = static_cast<double>(a[i]) - b[i];
            if (!std::isfinite(d)) continue; // the comparison of the ops finds the cause
            sums.squares += d * d;
            sums.scale += static_cast<double>(b[i]) * b[i];
            sums.largest = std::max(sums.largest, std::abs(d));
        }
    }

    void progress(int64_t done, int64_t total) {
        if (options_.progress)
            options_.progress("compare", static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    }

    Pipeline &a_;
    Pipeline &b_;
    const CompareOptions &options_;
    CompareReport report_;
    OpJudge judge_;
    Session session_a_, session_b_;
    std::unique_ptr<Session> free_;
    // [layers] the residual streams of the second pipeline's step
    std::vector<std::vector<float>> residuals_;
    size_t layer_ = 0; // position of the first pipeline in residuals_
    int32_t next_ = 0; // most likely next token of the second pipeline
};

} // namespace

double CompareRow::relative() const { return share(squares, scale); }

double CompareLayer::relative() const { return share(squares, scale); }

CompareReport compare_pipelines(Pipeline &first, Pipeline &second, const CompareOptions &options) {
    check_models(first, second);
    check_tokens(first, second, options);
    return Comparison(first, second, options).run();
}

} // namespace keel
