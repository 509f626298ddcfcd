// keel.attention_dense/1 of the reference, against make_attention_golden.py and against central
// differences.
#include "reference/bench.hpp"

#include <keel/ext/draft/attention_dense.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <limits>
#include <numeric>

using namespace keel;
using namespace keel::test;
using nlohmann::json;

namespace {

const keel_dense &dense() {
    return *static_cast<const keel_dense *>(
        reference_plugin()->get_extension(KEEL_EXT_ATTENTION_DENSE));
}

uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

size_t count_of(const Dims &shape) {
    return static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
}

// The noise() of the script.
Values noise(uint64_t seed, const Dims &shape, double spread = 1) {
    Values out;
    for (size_t i = 0; i < count_of(shape); ++i)
        out.push_back(spread *
                      (static_cast<double>(mix(seed ^ mix(i)) >> 40) * std::ldexp(1.0, -23) - 1));
    return out;
}

// The mask_of() of the script.
std::vector<uint8_t> mask_of(const Dims &shape) {
    std::vector<uint8_t> mask;
    for (size_t i = 0; i < count_of(shape); ++i) mask.push_back(mix(900 + i) % 3 != 0 ? 7 : 0);
    const auto keys = static_cast<size_t>(shape[3]);
    const size_t row = count_of(shape) - static_cast<size_t>(shape[2]) * keys;
    std::fill_n(mask.begin() + static_cast<int64_t>(row), keys, uint8_t{0});
    return mask;
}

// A case of the golden file with its inputs.
struct GoldenCase {
    explicit GoldenCase(const json &c) : json_(c) {
        const auto n = [&](const char *key) { return c.at(key).get<int64_t>(); };
        const int64_t batch = n("batch"), heads = n("heads");
        const auto seed = c.at("noise").get<uint64_t>();
        const auto spread = c.at("spread").get<double>();
        q_shape = {batch, n("rows"), heads, n("dim")};
        k_shape = {batch, n("keys"), n("kv_heads"), n("dim")};
        v_shape = {batch, n("keys"), n("kv_heads"), n("v_dim")};
        out_shape = {batch, n("rows"), heads, n("v_dim")};
        lse_shape = {batch, heads, n("rows")};
        q = noise(seed, q_shape, spread), k = noise(seed + 1, k_shape, spread);
        v = noise(seed + 2, v_shape), d_out = noise(seed + 3, out_shape);
        if (c.value("sink", false)) sink = noise(seed + 4, {heads}, 2);
    }

    // Fills the numbers and the tensors other than q, k and v.
    keel_dense_attention attention(Bench &bench) const {
        keel_dense_attention a = {};
        a.h = KEEL_HEADER(keel_dense_attention);
        a.scale = json_.at("scale").get<float>();
        if (json_.value("causal", false)) a.features |= KEEL_DENSE_CAUSAL;
        if (json_.contains("window")) {
            a.features |= KEEL_DENSE_WINDOW;
            a.window_before = json_["window"][0], a.window_after = json_["window"][1];
        }
        if (json_.contains("softcap")) {
            a.features |= KEEL_DENSE_SOFTCAP;
            a.softcap = json_["softcap"].get<float>();
        }
        if (json_.contains("bias")) {
            a.features |= KEEL_DENSE_BIAS;
            const auto shape = json_["bias"].get<Dims>();
            a.bias = bench.floats(shape, noise(77, shape, 2));
        }
        if (json_.contains("mask")) {
            a.features |= KEEL_DENSE_MASK;
            const auto shape = json_["mask"].get<Dims>();
            a.mask = bench.bytes(shape, mask_of(shape));
        }
        if (json_.contains("dropout")) {
            a.features |= KEEL_DENSE_DROPOUT;
            a.dropout = json_["dropout"].get<float>();
            a.seed = json_["seed"].get<uint64_t>(), a.offset = json_["offset"].get<uint32_t>();
        }
        if (!sink.empty()) {
            a.features |= KEEL_DENSE_SINK;
            a.sink = bench.floats({static_cast<int64_t>(sink.size())}, sink);
        }
        return a;
    }
    Values expected(const char *key) const {
        Values out;
        for (const json &x : json_.at(key))
            out.push_back(x.is_string() ? -std::numeric_limits<double>::infinity()
                                        : x.get<double>());
        return out;
    }

    Dims q_shape, k_shape, v_shape, out_shape, lse_shape;
    Values q, k, v, d_out, sink;

  private:
    json json_;
};

struct DenseResults {
    Values out, lse, d_q, d_k, d_v, d_sink;
};

// Forward and backward with these inputs.
DenseResults dense_passes(const GoldenCase &c, const Values &q, const Values &k, const Values &v) {
    Bench bench;
    keel_dense_attention a = c.attention(bench);
    a.q = bench.floats(c.q_shape, q), a.k = bench.floats(c.k_shape, k);
    a.v = bench.floats(c.v_shape, v);
    keel_dense_outputs o = {};
    o.h = KEEL_HEADER(keel_dense_outputs);
    o.out = bench.blank(c.out_shape), o.lse = bench.blank(c.lse_shape);
    REQUIRE(dense().forward(bench.ctx(), &a, &o) == KEEL_OK);
    keel_dense_gradients g = {};
    g.h = KEEL_HEADER(keel_dense_gradients);
    g.out = o.out, g.lse = o.lse, g.d_out = bench.floats(c.out_shape, c.d_out);
    g.d_q = bench.blank(c.q_shape), g.d_k = bench.blank(c.k_shape), g.d_v = bench.blank(c.v_shape);
    if (a.sink != nullptr) g.d_sink = bench.blank({static_cast<int64_t>(c.sink.size())});
    REQUIRE(dense().backward(bench.ctx(), &a, &g) == KEEL_OK);
    DenseResults r = {bench.read(o.out), bench.read(o.lse), bench.read(g.d_q),
                      bench.read(g.d_k), bench.read(g.d_v), {}};
    if (g.d_sink != nullptr) r.d_sink = bench.read(g.d_sink);
    return r;
}

json golden_cases() {
    std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/tests/golden/attention.json");
    REQUIRE(in);
    return json::parse(in);
}

double dense_loss(const GoldenCase &c, const Values &q, const Values &k, const Values &v) {
    const Values out = dense_passes(c, q, k, v).out;
    return std::inner_product(out.begin(), out.end(), c.d_out.begin(), 0.0);
}

// Compares every seventh element of a gradient with a central difference. `at(x)` is the loss with
// x in place of `input`.
template <class At>
void check_slopes(const char *name, const Values &gradient, const Values &input, const At &at) {
    constexpr double step = 1.0 / 128;
    for (size_t i = 0; i < input.size(); i += 7) {
        Values up = input, down = input;
        up[i] += step, down[i] -= step;
        const double slope = (at(up) - at(down)) / (2 * step);
        INFO(name << "[" << i << "]: " << gradient[i] << ", central difference " << slope);
        REQUIRE(std::fabs(gradient[i] - slope) <= 1e-3 * (1 + std::fabs(slope)));
    }
}

// A small valid call that a test changes.
struct DenseCall {
    DenseCall() {
        a.h = KEEL_HEADER(keel_dense_attention);
        o.h = KEEL_HEADER(keel_dense_outputs);
        q = *bench.floats({2, 3, 4, 16}, Values(384, 0.5));
        k = *bench.floats({2, 5, 2, 16}, Values(320, 0.5));
        v = *bench.floats({2, 5, 2, 16}, Values(320, 0.5));
        out = *bench.blank({2, 3, 4, 16});
        a.q = &q, a.k = &k, a.v = &v, a.scale = 0.25F;
        o.out = &out;
    }
    std::string refusal(keel_status status = KEEL_E_INVALID_ARG) {
        CHECK(dense().forward(bench.ctx(), &a, &o) == status);
        return bench.error();
    }
    Bench bench;
    keel_tensor q, k, v, out;
    keel_dense_attention a = {};
    keel_dense_outputs o = {};
};

} // namespace

TEST_CASE("dense attention and its gradients are those of PyTorch") {
    const json file = golden_cases();
    REQUIRE(file.size() >= 16);
    for (const json &entry : file) {
        INFO(entry.at("name"));
        const GoldenCase c(entry);
        const DenseResults r = dense_passes(c, c.q, c.k, c.v);
        require_close(r.out, c.expected("out"));
        require_close(r.lse, c.expected("lse"));
        require_close(r.d_q, c.expected("d_q"), 2e-6);
        require_close(r.d_k, c.expected("d_k"), 2e-6);
        require_close(r.d_v, c.expected("d_v"), 2e-6);
        if (!c.sink.empty()) require_close(r.d_sink, c.expected("d_sink"), 2e-6);
    }
}

TEST_CASE("gradients of dense attention are central differences of its output") {
    for (const json &entry : golden_cases()) {
        INFO(entry.at("name"));
        const GoldenCase c(entry);
        const DenseResults r = dense_passes(c, c.q, c.k, c.v);
        check_slopes("d_q", r.d_q, c.q,
                     [&](const Values &x) { return dense_loss(c, x, c.k, c.v); });
        check_slopes("d_k", r.d_k, c.k,
                     [&](const Values &x) { return dense_loss(c, c.q, x, c.v); });
        check_slopes("d_v", r.d_v, c.v,
                     [&](const Values &x) { return dense_loss(c, c.q, c.k, x); });
        check_slopes("d_sink", r.d_sink, c.sink, [&](const Values &x) {
            GoldenCase moved = c;
            moved.sink = x;
            return dense_loss(moved, c.q, c.k, c.v);
        });
    }
}

TEST_CASE("the dropout mask is Philox 4x32-10") {
    uint32_t zero[4] = {}; // from kat_vectors of Random123
    keel_dense_philox(zero, 0, 0);
    CHECK(zero[0] == 0x6627e8d5U);
    CHECK(zero[1] == 0xe169c58dU);
    CHECK(zero[2] == 0xbc57ac4cU);
    CHECK(zero[3] == 0x9b00dbd8U);
    uint32_t digits[4] = {0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U};
    keel_dense_philox(digits, 0xa4093822U, 0x299f31d0U);
    CHECK(digits[0] == 0xd16cfe09U);
    CHECK(digits[1] == 0x94fdccebU);
    CHECK(digits[2] == 0x5001e420U);
    CHECK(digits[3] == 0x24126ea1U);
    keel_dense_attention a = {};
    a.dropout = 0.3F, a.seed = 5;
    int kept = 0;
    for (int64_t i = 0; i < 10000; ++i) kept += keel_dense_keeps(&a, 1, 4, 3, i / 100, i % 100);
    CHECK(std::abs(kept - 7000) < 5 * 46); // five standard deviations
}

TEST_CASE("a hidden key adds nothing, whatever its memory contains") {
    const double nan = std::nan("");
    DenseCall call;
    Values v(320, 0.5), k(320, 0.5);
    std::fill(v.begin() + 4 * 32, v.begin() + 5 * 32, nan); // batch 0, key 4
    std::fill(k.begin() + 4 * 32, k.begin() + 5 * 32, nan);
    call.v = *call.bench.floats({2, 5, 2, 16}, v);
    call.k = *call.bench.floats({2, 5, 2, 16}, k);
    call.a.features = KEEL_DENSE_MASK;
    call.a.mask = call.bench.bytes({1, 1, 1, 5}, {1, 1, 1, 1, 0});
    REQUIRE(dense().forward(call.bench.ctx(), &call.a, &call.o) == KEEL_OK);
    require_close(call.bench.read(&call.out), Values(384, 0.5));
}

TEST_CASE("dense attention refuses wrong arguments and names member, found and expected") {
    const auto contains = [](const char *text) { return Catch::Contains(text); };
    const auto after = [](const std::function<void(DenseCall &)> &change,
                          keel_status status = KEEL_E_INVALID_ARG) {
        DenseCall call;
        change(call);
        return call.refusal(status);
    };
    CHECK_THAT(after([](DenseCall &c) { c.a.k = nullptr; }),
               contains("attention_dense forward: k: found NULL, expected a tensor"));
    CHECK_THAT(after([](DenseCall &c) { c.k.shape[3] = 32; }),
               contains("k: found shape [2, 5, 2, 32], expected [2, *, *, 16]"));
    CHECK_THAT(after([](DenseCall &c) { c.k.shape[2] = c.v.shape[2] = 3; }),
               contains("q: found 4 heads, expected a multiple of k's 3 heads"));
    CHECK_THAT(after([](DenseCall &c) { c.q.shape[3] = 8; }),
               contains("q: found head_dim 8, expected 16 to 256"));
    CHECK_THAT(after([](DenseCall &c) { c.q.shape[3] = 257; }), contains("expected 16 to 256"));
    CHECK_THAT(after([](DenseCall &c) { c.out.rank = 3; }),
               contains("out: found shape [2, 3, 4], expected [2, 3, 4, 16]"));
    CHECK_THAT(after([](DenseCall &c) { c.v.stride[1] = -256; }),
               contains("v: found stride[1] = -256, expected a multiple of 4 from 0 on"));
    CHECK_THAT(after([](DenseCall &c) { c.v.stride[1] = 60; }), contains("do not overlap"));
    CHECK_THAT(after([](DenseCall &c) { c.q.stride[0] = 0; }),
               contains("q: found stride[0] = 0, expected at least"));
    CHECK_THAT(after([](DenseCall &c) { c.q.stride[0] = int64_t{1} << 60; }),
               contains("inside the buffer's"));
    CHECK_THAT(after([](DenseCall &c) { c.q.stride[0] = INT64_MAX / 4 * 4; }),
               contains("ends inside its buffer"));
    CHECK_THAT(after([](DenseCall &c) { c.q.offset = 2; }), contains("q: found offset 2"));
    CHECK_THAT(after([](DenseCall &c) { c.out = c.q; }),
               contains("out: found the same memory as q"));
    CHECK_THAT(after([](DenseCall &c) { c.a.scale = std::nanf(""); }),
               contains("scale: found nan, expected a finite number"));
    for (const float p : {-0.1F, 1.0F, std::nanf("")}) {
        CHECK_THAT(after([&](DenseCall &c) { c.a.features = KEEL_DENSE_DROPOUT, c.a.dropout = p; }),
                   contains("expected at least 0 and below 1"));
    }
    CHECK_THAT(after([](DenseCall &c) { c.a.features = KEEL_DENSE_SOFTCAP; }),
               contains("softcap: found 0, expected a finite number above 0"));
    CHECK_THAT(
        after([](DenseCall &c) { c.a.features = KEEL_DENSE_WINDOW, c.a.window_before = -2; }),
        contains("window_before: found -2, expected -1 or more"));
    CHECK_THAT(after([](DenseCall &c) { c.a.features = KEEL_DENSE_MASK; }),
               contains("mask: found NULL, expected a tensor, because its feature bit is set"));
    CHECK_THAT(after([](DenseCall &c) { c.a.bias = &c.q; }),
               contains("bias: found a tensor, expected NULL"));
    CHECK_THAT(after([](DenseCall &c) { c.a.features = 1u << 20; }, KEEL_E_UNSUPPORTED),
               contains("features: found unknown bits 0x100000"));
    CHECK_THAT(after([](DenseCall &c) { c.q.dtype = KEEL_DTYPE_I32; }, KEEL_E_UNSUPPORTED),
               contains("q: found dtype i32, expected f32, f16 or bf16"));
}

TEST_CASE("a refused backward of dense attention names the gradient") {
    DenseCall call;
    keel_dense_gradients g = {};
    g.h = KEEL_HEADER(keel_dense_gradients);
    g.out = &call.out;
    CHECK(dense().backward(call.bench.ctx(), &call.a, &g) == KEEL_E_INVALID_ARG);
    CHECK_THAT(call.bench.error(),
               Catch::Contains("attention_dense backward: lse: found NULL, expected a tensor"));
    g.lse = call.bench.blank({2, 4, 3});
    g.d_out = call.bench.blank({2, 3, 4, 16});
    g.d_q = call.bench.blank({2, 3, 4, 16});
    g.d_k = g.d_v = call.bench.blank({2, 5, 2, 16});
    CHECK(dense().backward(call.bench.ctx(), &call.a, &g) == KEEL_E_INVALID_ARG);
    CHECK_THAT(call.bench.error(), Catch::Contains("d_v: found the same memory as d_k"));
    CHECK(reference_plugin()->get_extension("keel.attention_dense/10") == nullptr);
}
