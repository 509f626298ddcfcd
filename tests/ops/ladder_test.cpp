#include "base/log_sinks.hpp"
#include "ops/explain.hpp"
#include "support/error_text.hpp"
#include "support/mini_pipeline.hpp"

#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

// Stores the messages that Keel's logger writes while this object exists.
class CapturedLog {
  public:
    CapturedLog() : sink_(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)) {
        sink_->set_pattern("%v");
        spdlog_logger().sinks().push_back(sink_);
    }
    ~CapturedLog() {
        std::erase(spdlog_logger().sinks(), std::static_pointer_cast<spdlog::sinks::sink>(sink_));
    }
    std::string text() const { return text_.str(); }
    size_t lines() const {
        const std::string all = text();
        return static_cast<size_t>(std::count(all.begin(), all.end(), '\n'));
    }

  private:
    std::ostringstream text_;
    std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_;
};

// Returns the rows of all ops of a step with the name `op`.
std::vector<ExplainRow> rows_of(const MiniPipeline &p, const std::string &op) {
    const std::vector<const PlannedOp *> ops = p.graph.ops(StepForm::decode);
    std::vector<ExplainRow> rows = explain_rows(ops);
    std::erase_if(rows, [&](const ExplainRow &r) { return r.op != op; });
    return rows;
}

void check_close(const std::vector<float> &a, const std::vector<float> &b) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(1e-4));
}

const std::vector<std::string> decoder_ops = {"embed",     "rms_norm", "matmul",     "qkv_prepare",
                                              "attention", "silu_mul", "argmax_rows"};

} // namespace

TEST_CASE("if any op of a decoder is hidden, the tokens stay the same") {
    for (const std::string &op : decoder_ops) {
        for (const bool shared : {true, false}) {
            INFO(op << (shared ? ", shared memory" : ", copies"));
            // Weights and biases of norms were placed before a fallback was known, so they are
            // copied.
            const bool reads_weights = op == "rms_norm" || op == "matmul";
            WrappingBackend w;
            w.asynchronous = true;
            w.hide(op);
            if (!shared) w.hide("buffer_map");
            {
                MiniPipeline p(w.open());
                CHECK(p.generate() == expected_tokens());
                check_close(p.logits(), expected_logits());
                const std::vector<ExplainRow> rows = rows_of(p, op);
                REQUIRE(rows.size() == 1);
                CHECK(rows[0].reason == "the backend does not have this op");
                const bool composed = op == "qkv_prepare";
                CHECK(rows[0].rung == (composed ? "composed" : "reference"));
                CHECK(rows[0].kernel ==
                      (composed ? "rope + kv_append" : "reference: " + op + " reference float64"));
                CHECK(p.executor.any_fallback() == !composed);
                CHECK((p.executor.crossed_bytes() == 0) ==
                      (composed || (shared && !reads_weights)));
                if (!shared && !composed) CHECK(rows[0].crossing_bytes > 0);
                if (shared && !reads_weights) CHECK(rows[0].crossing_bytes == 0);
            }
            CHECK(w.live().none());
        }
    }
}

TEST_CASE("with strict, an error names the op's place, the backend and what to do") {
    for (const std::string &op : decoder_ops) {
        WrappingBackend w;
        w.hide(op);
        const std::string text = error_text(
            [&] {
                MiniPipeline p(w.open(), {true, nullptr, {}});
            },
            ErrorKind::plugin);
        CHECK_THAT(text, Contains("strict") && Contains("backend wrapping cannot run " + op) &&
                             Contains("set strict: false"));
        CHECK_THAT(text, Contains("decode ") || Contains("argmax"));
        CHECK(w.live().none());
    }
    WrappingBackend whole;
    MiniPipeline p(whole.open(), {true, nullptr, {}});
    CHECK_FALSE(p.executor.any_fallback());
}

TEST_CASE("features that a backend refuses in op_plan are composed of smaller ops") {
    WrappingBackend w;
    w.asynchronous = true;
    w.refuse_plan = [](keel_op op, const keel_op_args *args) {
        return op == KEEL_OP_MATMUL && args->features != 0;
    };
    MiniPipeline p(w.open());
    CHECK(p.generate() == expected_tokens());
    check_close(p.logits(), expected_logits());
    std::vector<std::string> kernels;
    for (const ExplainRow &row : rows_of(p, "matmul"))
        kernels.push_back(row.rung + ": " + row.kernel);
    CHECK(std::count(kernels.begin(), kernels.end(), "composed: matmul + add_bias") == 1); // qkv
    CHECK(std::count(kernels.begin(), kernels.end(), "composed: matmul + add_bias + add") ==
          1); // the output projection of attention
    CHECK(std::count(kernels.begin(), kernels.end(), "composed: matmul + add") == 1); // down
    CHECK_FALSE(p.executor.any_fallback());
}

TEST_CASE("ops that cannot be composed use the config's fallback, and then the reference") {
    WrappingBackend w, second;
    w.asynchronous = second.asynchronous = true;
    for (const char *op : {"qkv_prepare", "rope", "silu_mul", "attention"}) w.hide(op);
    second.hide("attention");
    second.refuse_plan = [](keel_op op, const keel_op_args *) { return op == KEEL_OP_SILU_MUL; };
    DeviceSpec spec = second.spec();
    spec.plugin = "second";
    {
        MiniPipeline p(w.open(), {false, Device::open(std::move(spec)), {}});
        CHECK(p.generate() == expected_tokens());
        CHECK(p.logits() == expected_logits());
        CHECK(rows_of(p, "qkv_prepare")[0].rung == "fallback");
        CHECK(rows_of(p, "qkv_prepare")[0].kernel == "second: qkv_prepare reference float64");
        CHECK(rows_of(p, "silu_mul")[0].rung == "reference");
        CHECK(rows_of(p, "attention")[0].rung == "reference");
        CHECK(second.count("qkv_prepare") > 0);
    }
    CHECK(w.live().none());
    CHECK(second.live().none());
}

TEST_CASE("a backend with only the required functions and matmul runs a whole model") {
    WrappingBackend w;
    w.asynchronous = true;
    w.hide_all_but({"matmul"});
    {
        MiniPipeline p(w.open());
        CHECK(p.generate() == expected_tokens());
        CHECK(p.logits() == expected_logits());
        CHECK(rows_of(p, "matmul")[0].rung == "native");
        CHECK(rows_of(p, "matmul")[0].kernel == "as it comes");
        CHECK(p.executor.crossed_bytes() > 0);
        CHECK(p.weights.layer(0).qkv[0]->tensor(p.executor.device()) != nullptr);
    }
    CHECK(w.live().none());
}

TEST_CASE("a backend without any op runs a whole model on the reference") {
    WrappingBackend w;
    w.asynchronous = true;
    w.hide_all_but({});
    MiniPipeline p(w.open());
    CHECK(p.generate() == expected_tokens());
    CHECK(w.ops() == 0);
}

TEST_CASE("an op that is refused only in a call falls back, and this is reported once") {
    for (const std::string &op : decoder_ops) {
        for (const bool plans : {true, false}) {
            INFO(op << (plans ? ", with plans" : ", without plans"));
            CapturedLog captured;
            WrappingBackend w;
            w.asynchronous = true;
            if (!plans) {
                for (const char *slot : {"op_plan", "plan_destroy", "plan_info"}) w.hide(slot);
            }
            w.refuse_call = [&](keel_op id, const keel_op_args *) { return op_name(id) == op; };
            {
                MiniPipeline p(w.open());
                CHECK(captured.lines() == 0);
                CHECK(p.generate() == expected_tokens());
                check_close(p.logits(), expected_logits());
                CHECK(captured.lines() == 1); // not once for each layer or call
                CHECK_THAT(captured.text(),
                           Contains("backend wrapping refused " + op) && Contains("from now on"));
                CHECK(rows_of(p, op)[0].reason == "the call was refused");
                const uint64_t refused = w.count(op);
                p.generate();
                // the refusal is final, so the op is not tried again
                CHECK(w.count(op) == refused);
            }
            CHECK(w.live().none());
        }
    }
}

TEST_CASE("weights without handles still work if a matmul is refused in a call") {
    WrappingBackend w;
    w.hide_all_but({"matmul"});
    w.refuse_call = [](keel_op op, const keel_op_args *) { return op == KEEL_OP_MATMUL; };
    {
        MiniPipeline p(w.open());
        CHECK(p.generate() == expected_tokens());
    }
    CHECK(w.live().none());
}

TEST_CASE("with strict, an op that is refused only in a call is an error") {
    WrappingBackend w;
    for (const char *slot : {"op_plan", "plan_destroy", "plan_info"}) w.hide(slot);
    w.refuse_call = [](keel_op op, const keel_op_args *) { return op == KEEL_OP_ATTENTION; };
    MiniPipeline p(w.open(), {true, nullptr, {}});
    CHECK_THAT(error_text([&] { p.generate(); }, ErrorKind::plugin),
               Contains("strict: prefill layer 0: attention: backend wrapping refused attention") &&
                   Contains("set strict: false"));
}

TEST_CASE("if a fallback refuses a call, the reference runs it") {
    WrappingBackend w, second;
    w.hide("silu_mul");
    for (const char *slot : {"op_plan", "plan_destroy", "plan_info"}) second.hide(slot);
    second.refuse_call = [](keel_op op, const keel_op_args *) { return op == KEEL_OP_SILU_MUL; };
    CapturedLog captured;
    MiniPipeline p(w.open(), {false, second.open(), {}});
    CHECK(rows_of(p, "silu_mul")[0].rung == "fallback");
    CHECK(p.generate() == expected_tokens());
    CHECK(rows_of(p, "silu_mul")[0].rung == "reference");
    CHECK(captured.lines() == 1);
}

TEST_CASE("an op that falls back in a small call still accepts the planned shapes") {
    WrappingBackend w;
    for (const char *slot : {"op_plan", "plan_destroy", "plan_info"}) w.hide(slot);
    w.refuse_call = [](keel_op op, const keel_op_args *) { return op == KEEL_OP_SCALED_ADD; };
    const auto device = w.open();
    Executor executor(device, {});
    const Tensor a = Tensor::allocate(*device, KEEL_DTYPE_F32, {8, 4}),
                 out = Tensor::allocate(*device, KEEL_DTYPE_F32, {8, 4});
    const std::vector<float> ones(32, 1.0F);
    a.write(ones.data());
    out.write(ones.data());
    keel_elementwise_args args = {KEEL_HEADER(keel_elementwise_args)};
    args.factor = 2;
    const auto call = [&](OpHandle &op, int64_t rows) {
        const Tensor x = a.rows(0, rows), y = out.rows(0, rows);
        args.a = x.c();
        args.out = y.c();
        if (!op)
            op = executor.plan(KEEL_OP_SCALED_ADD, args, {});
        else
            executor.run(*op, args);
    };
    OpHandle op;
    call(op, 8);
    call(op, 2);
    CHECK(op->rung() == Rung::composed);
    call(op, 8);
    std::vector<float> wanted(32, 3.0F);
    std::fill_n(wanted.begin(), 8, 5.0F);
    CHECK(out.read<float>() == wanted);
}

TEST_CASE("a template that breaks an op's rules is found in op_plan") {
    WrappingBackend w;
    const auto device = w.open();
    Executor executor(device, {});
    const Tensor x = Tensor::shape(KEEL_DTYPE_F32, {2, 4}),
                 y = Tensor::shape(KEEL_DTYPE_F32, {2, 5});
    keel_elementwise_args args = {KEEL_HEADER(keel_elementwise_args)};
    args.a = args.b = x.c();
    args.out = y.c();
    CHECK_THAT(error_text(
                   [&] {
                       executor.plan(KEEL_OP_ADD, args, {StepForm::decode, Role::ffn_add, 3});
                   },
                   ErrorKind::internal),
               Contains("decode layer 3: ffn add (add)"));
    keel_attention_args attention = {KEEL_HEADER(keel_attention_args)};
    error_text([&] { executor.plan(KEEL_OP_ATTENTION, attention, {}); }, ErrorKind::internal);
    CHECK(w.count("op_plan") == 0);
}

TEST_CASE("explain counts equal ops together, and adds up the copied bytes") {
    WrappingBackend w;
    w.hide("silu_mul");
    w.hide("buffer_map");
    MiniPipeline p(w.open());
    const std::vector<ExplainRow> silu = rows_of(p, "silu_mul"), norm = rows_of(p, "rms_norm");
    REQUIRE(silu.size() == 1);
    CHECK(silu[0].count == 2);
    CHECK(silu[0].example == "decode layer 0: activation");
    CHECK(silu[0].crossing_bytes == 2 * 3 * 48 * 4); // layers, (gate, up, out), elements, bytes
    REQUIRE(norm.size() == 1);
    CHECK(norm[0].count == 5);
    CHECK(norm[0].rung == "native");
    p.generate(1);
    const uint64_t before = p.executor.crossed_bytes();
    p.step(1);
    CHECK(p.executor.crossed_bytes() - before == silu[0].crossing_bytes);
    const std::vector<const PlannedOp *> ops = p.graph.ops(StepForm::decode);
    const std::string table = explain_table("decode", explain_rows(ops));
    CHECK_THAT(table,
               Contains("silu_mul") &&
                   Contains("e.g. decode layer 0: activation: the backend does not have this op") &&
                   Contains("bytes that cross between devices: 1152"));
}

TEST_CASE("an observer sees every op of the pipeline, but no op inside a composition") {
    WrappingBackend w;
    w.hide("qkv_prepare");
    MiniPipeline p(w.open());
    p.generate(1);
    std::vector<std::string> seen;
    p.executor.set_observer([&](const PlannedOp &op, const keel_op_args *args, bool after) {
        REQUIRE(args != nullptr);
        if (after) seen.push_back(op_name(op.op()));
    });
    p.step(1);
    CHECK(seen.size() == 2 * 9 + 4);
    CHECK(std::count(seen.begin(), seen.end(), "qkv_prepare") == 2);
    CHECK(std::count(seen.begin(), seen.end(), "rope") == 0);
}
