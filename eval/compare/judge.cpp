#include "eval/compare/judge.hpp"

#include "eval/compare/op_error.hpp"
#include "ops/op_table.hpp"
#include "reference/reference.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

// True if the backend's parameter `compute` is "fast".
bool is_fast(const Pipeline &pipeline) {
    const pipeline::BackendSection &section = pipeline.config().backend;
    if (is_reference(*section.plugin)) return false;
    const BoundPlugin bound = bind_plugin(section, KEEL_PLUGIN_BACKEND);
    const keel_param *compute = bound.params.find("compute");
    return compute != nullptr && compute->s != nullptr && std::string_view(compute->s) == "fast";
}

keel_dtype weight_dtype(const PlannedOp &op) {
    constexpr keel_dtype none = KEEL_DTYPE_NONE;
    return op.weight() != nullptr ? op.weight()->dtype() : none;
}

// True if the op copies blocks of the cache: to a larger memory, or for a forked sequence. Ops that
// copy blocks are not compared, for two reasons: the device decides when memory grows, and the
// bytes after the last token of a block have old values. A wrong copy is found later, in the ops
// that read the cache.
bool moves_blocks(const PlannedOp &op) { return op.tag().role == Role::kv_block_copy; }

} // namespace

OpJudge::OpJudge(Pipeline &first, Pipeline &second, const CompareOptions &options,
                 CompareReport &report)
    : a_(first), b_(second), options_(options), report_(report),
      fast_(is_fast(first) || is_fast(second)) {}

void OpJudge::begin_step(const std::string &name) {
    step_ = name;
    records_.clear();
    next_ = 0;
    surplus_.clear();
}

void OpJudge::record(const PlannedOp &op, const keel_op_args *args) {
    if (moves_blocks(op)) return;
    records_.push_back({op.tag(), op.kernel(), op.op(), weight_dtype(op),
                        read_outputs(b_.device(), op.op(), args)});
}

void OpJudge::before(const PlannedOp &op, const keel_op_args *args) {
    if (options_.save && !report_.finding && !moves_blocks(op))
        inputs_ = std::make_unique<OpDump>(a_.device(), op, args);
}

void OpJudge::after(const PlannedOp &op, const keel_op_args *args) {
    if (moves_blocks(op)) return;
    // The first pipeline ran an additional op. end_step() reports the additional op. after() must
    // not report the additional op, for this reason: sometimes the first pipeline runs ops a second
    // time, to find the op whose numbers are not finite. Such a second pass ends with its own
    // error.
    if (next_ >= records_.size()) {
        if (surplus_.empty()) surplus_ = op.label();
        return;
    }
    Record &other = records_[next_++];
    if (other.tag != op.tag() || other.op != op.op()) mismatch(op.label(), label_text(other.tag));
    const std::vector<OpOutput> mine = read_outputs(a_.device(), op.op(), args);
    ++report_.ops;
    const Worst worst = judge(op, other, mine);
    note(op, other, mine, worst, args);
    if (options_.resync) write_outputs(a_.device(), op.op(), args, other.outputs);
    other.outputs.clear(); // frees memory early, because the records of a step are large
    inputs_.reset();
}

void OpJudge::end_step() {
    if (!surplus_.empty()) mismatch(surplus_, "");
    if (next_ < records_.size()) mismatch("", label_text(records_[next_].tag));
}

void OpJudge::mismatch(const std::string &mine, const std::string &theirs) const {
    throw_error(
        ErrorKind::input,
        "{}: the pipelines run different ops: the first has {}, the second {}; use the same "
        "model, policy and budget in both",
        step_, mine.empty() ? "no more ops" : "'" + mine + "'",
        theirs.empty() ? "no more" : "'" + theirs + "'");
}

OpDifference OpJudge::difference(const PlannedOp &op, const Record &other) const {
    OpDifference d;
    d.fast = fast_;
    d.weight_a = weight_dtype(op);
    d.weight_b = other.weight;
    d.kv_a = coarser(a_.kv_shape().key_dtype, a_.kv_shape().value_dtype);
    d.kv_b = coarser(b_.kv_shape().key_dtype, b_.kv_shape().value_dtype);
    return d;
}

OpJudge::Worst OpJudge::judge(const PlannedOp &op, const Record &other,
                              const std::vector<OpOutput> &mine) const {
    const OpDifference differs = difference(op, other);
    Worst worst;
    if (mine.size() != other.outputs.size())
        mismatch(op.label() + " with other outputs", label_text(other.tag));
    for (size_t i = 0; i < mine.size(); ++i) {
        const TensorValues &a = mine[i].values, &b = other.outputs[i].values;
        if (a.shape != b.shape || a.rows != b.rows || a.values.size() != b.values.size())
            mismatch(op.label() + " of another shape", label_text(other.tag));
        // An i32 output has indices, so the values of the output must be equal.
        const bool whole = a.dtype == KEEL_DTYPE_I32;
        const double bound =
            whole ? 0
            : options_.bound
                ? *options_.bound
                : op_bound(op.op(), differs, coarser(a.dtype, b.dtype), mine[i].is_kv_row);
        const OutputError e = output_error(mine[i], b, bound);
        if (e.ratio > worst.ratio) {
            worst.output = i;
            worst.element = e.element;
            worst.error = e.error;
            worst.bound = bound;
            worst.ratio = e.ratio;
        }
        worst.squares += e.squares;
        worst.scale += e.scale;
        // If the call has no error at all, `worst` has no bound yet.
        if (worst.bound == 0) worst.bound = bound;
    }
    return worst;
}

void OpJudge::note(const PlannedOp &op, const Record &other, const std::vector<OpOutput> &mine,
                   const Worst &worst, const keel_op_args *args) {
    const std::string part(op.part());
    const auto [found, is_new] = row_of_.try_emplace(part, report_.rows.size());
    if (is_new) {
        CompareRow fresh;
        fresh.part = part;
        fresh.op = op_name(op.op());
        report_.rows.push_back(std::move(fresh));
    }
    CompareRow &row = report_.rows[found->second];
    ++row.calls;
    row.squares += worst.squares;
    row.scale += worst.scale;
    if (row.calls == 1 || worst.ratio > row.ratio) {
        row.kernel_a = op.kernel();
        row.kernel_b = other.kernel;
        row.worst = worst.error;
        row.bound = worst.bound;
        row.ratio = worst.ratio;
        row.where = worst.ratio == 0
                        ? std::string{}
                        : fmt::format("{}: {} {}", op.label(), mine[worst.output].values.name,
                                      mine[worst.output].values.place(worst.element));
    }
    if (worst.ratio <= 1) return;
    ++row.beyond;
    ++report_.beyond;
    if (!report_.finding) find(op, other, mine, worst, args);
}

void OpJudge::find(const PlannedOp &op, const Record &other, const std::vector<OpOutput> &mine,
                   const Worst &worst, const keel_op_args *args) {
    const TensorValues &a = mine[worst.output].values, &b = other.outputs[worst.output].values;
    CompareFinding f;
    f.step = step_;
    f.label = op.label();
    if (op.tag().layer >= 0) f.layer = op.tag().layer;
    f.op = op_name(op.op());
    f.kernel_a = op.kernel();
    f.kernel_b = other.kernel;
    f.tensor = a.name;
    f.place = a.place(worst.element);
    f.a = a.values[worst.element];
    f.b = b.values[worst.element];
    f.error = worst.error;
    f.bound = worst.bound;
    if (inputs_) {
        inputs_->complete(a_, op, args);
        for (size_t i = 0; i < mine.size(); ++i) {
            inputs_->add_values("actual", mine[i].values);
            inputs_->add_values("expected", other.outputs[i].values);
        }
        inputs_->write(*options_.save, {{"step", step_},
                                        {"backend", report_.first},
                                        {"against", report_.second},
                                        {"finding",
                                         {{"tensor", f.tensor},
                                          {"place", f.place},
                                          {"actual", f.a},
                                          {"expected", f.b},
                                          {"error", f.error},
                                          {"bound", f.bound}}}});
        f.saved = *options_.save;
    }
    report_.finding = std::move(f);
}

} // namespace keel
