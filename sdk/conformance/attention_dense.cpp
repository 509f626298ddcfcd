#include "conformance/attention_dense.hpp"

#include "conformance/attention_dense_scene.hpp"
#include "reference/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace keel::conformance {
namespace {

// Returns the error bound that the extension's header gives for a dtype.
double dense_bound(keel_dtype dtype) {
    return dtype == KEEL_DTYPE_F16 ? 2e-3 : dtype == KEEL_DTYPE_BF16 ? 1e-2 : 1e-5;
}

// Returns a backend's table of the extension. If the backend does not have the extension, the
// functions in the table are NULL.
keel_dense dense_table(const keel_plugin &plugin) {
    keel_dense table = {};
    const void *theirs =
        plugin.get_extension == nullptr ? nullptr : plugin.get_extension(KEEL_EXT_ATTENTION_DENSE);
    if (theirs == nullptr) return table;
    if (keel_adopt(&table, sizeof table, theirs, KEEL_PREFIX(keel_dense, forward)) != KEEL_OK ||
        table.forward == nullptr)
        throw Unusable{KEEL_EXT_ATTENTION_DENSE ": the table is too small, of another ABI version, "
                                                "or has no forward"};
    return table;
}

class DenseChecker {
  public:
    DenseChecker(const keel_dense &table, Side &subject, Side &alone, const Options &options)
        : mine_(table), subject_(subject), alone_(alone), library_(reference_plugin()),
          oracle_(library_, {}), theirs_(dense_table(*reference_plugin())), options_(options) {}

    void run(const DenseShape &shape) {
        const int64_t number = number_++;
        if (options_.only_case >= 0 && number != options_.only_case) return;
        ++report_.cases;
        Rng rng(options_.seed + static_cast<uint64_t>(number));
        DenseScene d(shape, rng);
        where_ = fmt::format("case {} ({})", number, name_of(shape));
        const bool longer = number % 2 == 1;
        Stage mine(subject_, d.scene, {}), theirs(oracle_, d.scene, {});
        if (refused(d.forward(mine_, mine, longer), "forward")) return;
        if (d.forward(theirs_, theirs, false) != KEEL_OK)
            return fail("the reference refuses: " + oracle_.error());
        compare(d, mine, theirs, {{d.out, "out"}, {d.lse, "lse"}});
        if (mine_.backward == nullptr) return;
        // On all sides, backward reads the results of the reference's forward.
        for (const int place : {d.out, d.lse})
            d.scene.tensors[static_cast<size_t>(place)].image = theirs.read(place);
        Stage mine_back(subject_, d.scene, {}), theirs_back(oracle_, d.scene, {});
        if (refused(d.backward(mine_, mine_back, longer), "backward")) return;
        if (d.backward(theirs_, theirs_back, false) != KEEL_OK)
            return fail("the reference refuses: " + oracle_.error());
        std::vector<Named> results = {{d.d_q, "d_q"}, {d.d_k, "d_k"}, {d.d_v, "d_v"}};
        if (d.d_sink != none) results.push_back({d.d_sink, "d_sink"});
        compare(d, mine_back, theirs_back, results);
        if (number % 4 == 0) compare_alone(d, mine, mine_back, results);
    }

    // Each of these calls breaks one rule.
    void refusals() {
        where_ = "refusals";
        const DenseShape plain = {.rows = 3, .keys = 5};
        using A = keel_dense_attention;
        keel_tensor spoiled = {};
        const auto with = [&](const keel_tensor *&member, auto change) {
            spoiled = *member;
            change(spoiled);
            member = &spoiled;
        };
        const std::vector<std::pair<const char *, std::function<void(A &, const keel_tensor *&)>>>
            broken = {
                {"a missing tensor", [](A &a, auto &) { a.k = nullptr; }},
                {"another head_dim of k",
                 [&](A &a, auto &) { with(a.k, [](keel_tensor &t) { t.shape[3] = 16; }); }},
                {"another number of keys in v",
                 [&](A &a, auto &) { with(a.v, [](keel_tensor &t) { t.shape[1] = 4; }); }},
                {"a rank of 3", [&](A &a, auto &) { with(a.q, [](keel_tensor &t) { --t.rank; }); }},
                {"i32 queries",
                 [&](A &a, auto &) {
                     with(a.q, [](keel_tensor &t) { t.dtype = KEEL_DTYPE_I32; });
                 }},
                {"a negative stride",
                 [&](A &a, auto &) { with(a.q, [](keel_tensor &t) { t.stride[1] *= -1; }); }},
                {"an overlapping stride",
                 [&](A &a, auto &) { with(a.k, [](keel_tensor &t) { t.stride[1] = 0; }); }},
                {"a tensor beyond its buffer",
                 [&](A &a, auto &) { with(a.v, [](keel_tensor &t) { t.offset += 1 << 20; }); }},
                {"an output of another shape",
                 [&](A &, auto &out) { with(out, [](keel_tensor &t) { t.shape[1] = 2; }); }},
                {"an output in the memory of q", [](A &a, auto &out) { out = a.q; }},
                {"a scale of NaN", [](A &a, auto &) { a.scale = NAN; }},
                {"a dropout of 1",
                 [](A &a, auto &) { a.features = KEEL_DENSE_DROPOUT, a.dropout = 1; }},
                {"a negative dropout",
                 [](A &a, auto &) { a.features = KEEL_DENSE_DROPOUT, a.dropout = -0.5F; }},
                {"a softcap of 0",
                 [](A &a, auto &) { a.features = KEEL_DENSE_SOFTCAP, a.softcap = 0; }},
                {"a window of -2",
                 [](A &a, auto &) { a.features = KEEL_DENSE_WINDOW, a.window_after = -2; }},
                {"a mask bit without a mask", [](A &a, auto &) { a.features = KEEL_DENSE_MASK; }},
                {"a bias without its bit", [](A &a, auto &) { a.bias = a.q; }},
                {"an unknown feature bit", [](A &a, auto &) { a.features = uint64_t{1} << 40; }}};
        Rng rng(options_.seed);
        const DenseScene d(plain, rng);
        for (const auto &entry : broken) {
            const auto &change = entry.second;
            Stage stage(subject_, d.scene, {});
            expect_refused(d, stage, entry.first,
                           d.forward(mine_, stage, false,
                                     [&](A &a, keel_dense_outputs &o) { change(a, o.out); }));
            if (mine_.backward == nullptr) continue;
            expect_refused(d, stage, entry.first,
                           d.backward(mine_, stage, false,
                                      [&](A &a, keel_dense_gradients &g) { change(a, g.d_q); }));
        }
    }

    const Report &report() const { return report_; }

  private:
    struct Named {
        int place;
        const char *name;
    };

    bool refused(keel_status status, const char *pass) {
        const keel_status ended = status == KEEL_OK ? subject_.finish() : KEEL_OK;
        if (status == KEEL_OK && ended == KEEL_OK) return false;
        if (status == KEEL_E_UNSUPPORTED) {
            ++report_.refused;
            if (!options_.complete) return true;
        }
        fail(fmt::format("{} returns {}, after waiting {}: {}", pass, status, ended,
                         subject_.error()));
        return true;
    }
    void expect_refused(const DenseScene &d, Stage &stage, const char *what, keel_status status) {
        ++report_.cases;
        const std::string why = subject_.error();
        subject_.finish();
        if (status != KEEL_E_INVALID_ARG && status != KEEL_E_UNSUPPORTED)
            return fail(fmt::format("{}: expected a refusal, found status {}", what, status));
        if (why.empty()) fail(fmt::format("{}: refused without an error text", what));
        for (size_t i = 0; i < d.scene.tensors.size(); ++i)
            if (stage.read(static_cast<int>(i)) != d.scene.tensors[i].image)
                return fail(fmt::format("{}: refused, but tensor {} was written", what, i));
    }

    // Checks that results are within the bound, and that all other bytes are unchanged.
    void compare(const DenseScene &d, Stage &mine, Stage &theirs,
                 const std::vector<Named> &results) {
        for (size_t i = 0; i < d.scene.tensors.size(); ++i) {
            const auto place = static_cast<int>(i);
            const auto result = std::find_if(results.begin(), results.end(),
                                             [&](const Named &r) { return r.place == place; });
            const Tensor &t = d.scene.tensors[i];
            std::vector<uint8_t> got = mine.read(place);
            if (result != results.end())
                compare_values(d.s, t, result->name, t.values_of(got),
                               t.values_of(theirs.read(place)));
            if (result != results.end()) // compares only the bytes around the elements
                for (int64_t r = 0; r < t.rows() && t.elements() > 0; ++r)
                    std::copy_n(t.image.begin() + static_cast<int64_t>(t.row_offset(r)),
                                t.row_bytes(), got.begin() + static_cast<int64_t>(t.row_offset(r)));
            if (got != t.image) fail(fmt::format("tensor {} was written outside of its result", i));
        }
    }
    void compare_values(const DenseShape &s, const Tensor &t, const char *name,
                        const std::vector<double> &got, const std::vector<double> &want) {
        const double bound = dense_bound(t.dtype);
        // The terms of gradients are about as large as scale * q and scale * k.
        const double terms = s.large ? 50 : 1;
        for (size_t i = 0; i < got.size(); ++i) {
            if (!std::isfinite(want[i])) {
                const bool same = std::isnan(want[i]) ? !std::isfinite(got[i]) : got[i] == want[i];
                if (same) continue;
            } else {
                const double error =
                    std::fabs(got[i] - want[i]) / (terms + std::fabs(want[i])) / bound;
                report_.worst = std::max(report_.worst, error);
                if (error <= 1) continue;
            }
            return fail(fmt::format("{}[{}] of {} is {}, expected {}", name, i, shape_text(t),
                                    got[i], want[i]));
        }
    }
    // Checks that a context with one worker gives the same bytes.
    void compare_alone(const DenseScene &d, Stage &forward, Stage &backward,
                       const std::vector<Named> &results) {
        Stage stage(alone_, d.scene, {});
        if (d.backward(mine_, stage, false) != KEEL_OK)
            return fail("one worker: backward refuses: " + alone_.error());
        for (const Named &r : results)
            if (stage.read(r.place) != backward.read(r.place))
                fail(fmt::format(
                    "{}: the result with one worker has other bits than with several workers",
                    r.name));
        if (d.forward(mine_, stage, false) != KEEL_OK)
            return fail("one worker: forward refuses: " + alone_.error());
        if (stage.read(d.out) != forward.read(d.out))
            fail("out: the result with one worker has other bits than with several workers");
    }
    void fail(const std::string &message) {
        ++report_.failures;
        if (static_cast<int>(report_.messages.size()) < options_.max_messages)
            report_.messages.push_back(where_ + ": " + message);
    }

    const keel_dense &mine_;
    Side &subject_, &alone_;
    const Library library_;
    Side oracle_;
    const keel_dense theirs_;
    Options options_;
    Report report_;
    std::string where_;
    int64_t number_ = 0;
};

constexpr uint64_t with_causal = KEEL_DENSE_CAUSAL, with_window = KEEL_DENSE_WINDOW,
                   with_softcap = KEEL_DENSE_SOFTCAP, with_sink = KEEL_DENSE_SINK,
                   with_bias = KEEL_DENSE_BIAS, with_mask = KEEL_DENSE_MASK,
                   with_dropout = KEEL_DENSE_DROPOUT;

void size_cases(DenseChecker &check, bool quick) {
    const std::vector<std::pair<int64_t, int64_t>> lengths = {
        {1, 1}, {1, 17}, {17, 1}, {5, 9}, {9, 5}, {0, 3}, {3, 0}, {65, 64}, {64, 129}, {131, 67}};
    for (const auto &[rows, keys] : lengths)
        for (const uint64_t features : {uint64_t{0}, with_causal})
            check.run({.rows = rows, .keys = keys, .features = features});
    const std::vector<int64_t> dims =
        quick ? std::vector<int64_t>{16, 23, 64, 80, 96, 256}
              : std::vector<int64_t>{16, 17,  24,  31,  40,  48,  64,  80,
                                     96, 112, 127, 128, 160, 192, 255, 256};
    for (const int64_t dim : dims) {
        check.run({.rows = 19, .keys = 23, .dim = dim, .v_dim = dim, .features = with_causal});
        check.run({.rows = 7, .keys = 10, .heads = 3, .kv_heads = 3, .dim = dim, .v_dim = 48});
    }
    check.run({.batch = 3, .rows = 20, .keys = 31, .heads = 6, .kv_heads = 2});
    check.run(
        {.batch = 2, .rows = 70, .keys = 70, .heads = 4, .kv_heads = 4, .features = with_causal});
    if (quick) return;
    check.run({.rows = 257,
               .keys = 300,
               .heads = 4,
               .kv_heads = 1,
               .dim = 64,
               .v_dim = 64,
               .features = with_causal});
    for (int64_t n = 60; n <= 68; ++n)
        check.run(
            {.rows = n, .keys = 2 * n - 1, .features = with_causal | with_window, .before = n / 2});
}

void feature_cases(DenseChecker &check) {
    const std::vector<uint64_t> sets = {with_window,
                                        with_causal | with_window,
                                        with_softcap,
                                        with_softcap | with_causal,
                                        with_sink | with_causal,
                                        with_bias,
                                        with_bias | with_softcap,
                                        with_mask,
                                        with_mask | with_sink,
                                        with_dropout,
                                        with_dropout | with_causal,
                                        with_dropout | with_mask | with_softcap,
                                        with_causal | with_window | with_softcap | with_sink |
                                            with_bias | with_mask | with_dropout};
    for (const uint64_t features : sets) {
        check.run({.rows = 12, .keys = 15, .heads = 4, .kv_heads = 2, .features = features});
        check.run({.batch = 2,
                   .rows = 72,
                   .keys = 85,
                   .features = features,
                   .before = 20,
                   .after = -1,
                   .spread_pairs = true});
        check.run({.rows = 20,
                   .keys = 9,
                   .heads = 3,
                   .kv_heads = 1,
                   .features = features,
                   .before = -1,
                   .after = 0});
    }
    // A window that is so far back that whole blocks of keys are hidden at both ends.
    check.run({.rows = 150, .keys = 200, .features = with_window, .before = 10, .after = 70});
    check.run({.rows = 150, .keys = 90, .features = with_window | with_causal, .before = 5});
    check.run({.rows = 9, .keys = 70, .features = with_dropout, .dropout = 0});
}

void memory_cases(DenseChecker &check) {
    for (const Order order : {Order::gaps, Order::head_major, Order::packed, Order::token_major})
        for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16})
            check.run({.batch = 2,
                       .rows = 11,
                       .keys = 14,
                       .heads = 4,
                       .kv_heads = 2,
                       .features = with_causal | with_bias | with_sink,
                       .dtype = dtype,
                       .results = dtype,
                       .order = order});
    for (const keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_BF16}) {
        check.run({.rows = 66,
                   .keys = 66,
                   .dim = 64,
                   .v_dim = 80,
                   .features = with_causal,
                   .dtype = dtype,
                   .results = dtype});
        check.run({.rows = 10, .keys = 12, .dtype = dtype});
        check.run(
            {.rows = 10, .keys = 12, .features = with_softcap | with_dropout, .results = dtype});
    }
    for (const uint64_t features :
         {uint64_t{0}, with_causal, with_window, with_mask, with_dropout | with_causal})
        check.run({.rows = 40, .keys = 75, .features = features, .large = true});
    for (const uint64_t features : {uint64_t{0}, with_causal, with_dropout, with_mask | with_sink})
        check.run({.rows = 20, .keys = 70, .heads = 2, .features = features, .dead_rows = true});
    // Without mask and window, some results are NaN and some are not.
    for (const uint64_t features :
         {with_mask, with_mask | with_causal | with_dropout, with_causal, with_causal | with_window,
          with_mask | with_sink | with_softcap})
        for (const int64_t rows : {8, 5, 72})
            check.run({.rows = rows, .keys = rows + 2, .features = features, .hidden_nan = true});
}

} // namespace

Report check_attention_dense(const Library &library, const Params &params, const Options &options) {
    keel_dense table = {};
    try {
        table = dense_table(library.plugin());
    } catch (const Unusable &unusable) {
        Report report;
        report.failures = 1;
        report.messages.push_back(unusable.why);
        return report;
    }
    if (table.forward == nullptr) return {};
    Side subject(library, params, 3), alone(library, params, 1);
    DenseChecker check(table, subject, alone, options);
    size_cases(check, options.quick);
    feature_cases(check);
    memory_cases(check);
    check.refusals();
    return check.report();
}

} // namespace keel::conformance
