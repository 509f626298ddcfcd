// The cases of choose_experts and expert_matmul.
#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace keel::conformance {
namespace {

struct ChoiceShape {
    int64_t m, experts, k;
    uint64_t features = 0;
    keel_dtype a = KEEL_DTYPE_F32;
    Layout layout = {};
    uint32_t groups = 0, groups_kept = 0, group_top = 0;
    int ties = 0;
    float bad = 0; // a NaN or an infinity that is put into the logits; 0: none
};

// Returns a case. Its outputs are the indices and the weights.
Case choice_case(Rng &rng, const ChoiceShape &s) {
    Case c;
    c.name = fmt::format("m={} experts={} k={} features={} logits={} gap={} shift={} groups={} "
                         "kept={} top={} ties={} bad={}",
                         s.m, s.experts, s.k, s.features, keel_dtype_name(s.a), s.layout.gap,
                         s.layout.shift, s.groups, s.groups_kept, s.group_top, s.ties, s.bad);
    c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0;
    Tensor logits = random_tensor(rng, s.a, {s.m, s.experts}, s.layout, 3.0F);
    if (s.ties > 0) poison(rng, logits, 2.5F, s.ties);
    if (s.bad != 0) poison(rng, logits, s.bad, 1);
    const int logits_at = c.scene.add(std::move(logits));
    const int bias = (s.features & KEEL_CHOOSE_BIAS) != 0
                         ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.experts}))
                         : none;
    const int index = c.scene.add(blank(KEEL_DTYPE_I32, {s.m, s.k}, s.layout)),
              weights = c.scene.add(blank(KEEL_DTYPE_F32, {s.m, s.k}, s.layout));
    c.outputs = {{index, 0}, {weights, 4e-6}};
    c.call = [=](Stage &stage) {
        keel_choose_experts_args a = {};
        a.h = KEEL_HEADER(keel_choose_experts_args);
        a.features = s.features;
        a.logits = stage.tensor(logits_at);
        a.bias = stage.tensor(bias);
        a.index = stage.tensor(index);
        a.weights = stage.tensor(weights);
        a.scale = 2.5F;
        a.groups = s.groups;
        a.groups_kept = s.groups_kept;
        a.group_top = s.group_top;
        return stage.run(KEEL_OP_CHOOSE_EXPERTS, a);
    };
    return c;
}

void choice_cases(Suite &suite) {
    const auto one = [&](const ChoiceShape &s) {
        if (suite.next()) suite.check(choice_case(suite.rng(), s));
    };
    constexpr keel_dtype f32 = KEEL_DTYPE_F32;
    constexpr uint64_t bits[] = {0, KEEL_CHOOSE_SIGMOID, KEEL_CHOOSE_NORMALIZE,
                                 KEEL_CHOOSE_SIGMOID | KEEL_CHOOSE_NORMALIZE};
    for (const uint64_t features : bits) {
        for (const int64_t m : {1, 7, 64}) {
            one({m, 128, 8, features});
            one({m, 1, 1, features});
            one({m, 7, 7, features}); // all experts are chosen
            one({m, 60, 4, features | KEEL_CHOOSE_BIAS});
        }
        for (const keel_dtype a : suite.activations()) one({3, 33, 5, features, a, {}, 0, 0, 0, 9});
        for (const Layout &layout : layouts(suite.quick())) one({5, 24, 3, features, f32, layout});
        for (const float bad : {std::nanf(""), INFINITY, -INFINITY})
            one({4, 16, 2, features, f32, {}, 0, 0, 0, 3, bad});
        one({0, 16, 2, features});
        one({3, 16, 0, features});
        one({2, 16, 16, features, f32, {}, 0, 0, 0, 400}); // all logits are equal
        one({6, 64, 6, features | KEEL_CHOOSE_GROUPS, f32, {}, 8, 3, 1});
        one({6, 64, 8, features | KEEL_CHOOSE_GROUPS | KEEL_CHOOSE_BIAS, f32, {}, 8, 4, 2});
        one({2, 12, 6, features | KEEL_CHOOSE_GROUPS, f32, {}, 2, 1, 6}); // the whole group
    }
    const auto refused = [&](const ChoiceShape &s) {
        if (suite.next()) suite.check_refused(choice_case(suite.rng(), s));
    };
    refused({2, 8, 9});
    refused({2, 8, 2, KEEL_CHOOSE_GROUPS, f32, {}, 3, 1, 1});
    refused({2, 8, 5, KEEL_CHOOSE_GROUPS, f32, {}, 2, 1, 1});
}

struct ProductShape {
    int64_t m, top, experts, n, k;
    keel_dtype w = KEEL_DTYPE_F32, a = KEEL_DTYPE_F32;
    uint64_t features = 0;
    Layout layout = {};
    int sources = 1;    // for each expert; 0: W is a plain tensor
    bool own_x = false; // each expert of a row has its own x
    // Which experts the rows choose. `invalid`: as `mixed`, with some numbers of no expert.
    enum class Choice { mixed, same, all, invalid } choice = Choice::mixed;
    float bad = 0; // a NaN or an infinity that is put into x; 0: none
};

std::vector<int32_t> chosen(Rng &rng, const ProductShape &s) {
    std::vector<int32_t> index(static_cast<size_t>(s.m * s.top));
    for (size_t i = 0; i < index.size(); ++i) {
        const auto j = static_cast<int32_t>(i % static_cast<size_t>(std::max<int64_t>(s.top, 1)));
        const auto any = static_cast<int32_t>(rng() % static_cast<uint64_t>(s.experts));
        index[i] = s.choice == ProductShape::Choice::same  ? static_cast<int32_t>(s.experts) - 1
                   : s.choice == ProductShape::Choice::all ? j
                                                           : any;
        if (s.choice != ProductShape::Choice::invalid || i % 5 != 1) continue;
        index[i] = i % 2 == 0 ? -1 : static_cast<int32_t>(s.experts);
    }
    return index;
}

void product_case(Suite &suite, const ProductShape &s) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    Case c;
    c.name = fmt::format("m={} top={} experts={} n={} k={} w={} a={} features={} gap={} shift={} "
                         "sources={} own_x={} choice={} bad={}",
                         s.m, s.top, s.experts, s.n, s.k, keel_dtype_name(s.w),
                         keel_dtype_name(s.a), s.features, s.layout.gap, s.layout.shift, s.sources,
                         s.own_x, static_cast<int>(s.choice), s.bad);
    c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0;
    Tensor x = random_tensor(rng, s.a, {s.m, s.own_x ? s.top : 1, s.k}, s.layout);
    if (s.bad != 0) poison(rng, x, s.bad, 1);
    const int x_at = c.scene.add(std::move(x));
    const int index = c.scene.add(integer_tensor({s.m, s.top}, chosen(rng, s)));
    int w = none, weight = none;
    c.absolute = {x_at};
    if (s.sources == 0) {
        w = c.scene.add(random_tensor(rng, s.w, {s.experts * s.n, s.k}));
        c.absolute.push_back(w);
    } else {
        WeightSpec spec;
        spec.use = KEEL_USE_EXPERTS;
        spec.max_m = static_cast<uint32_t>(std::max<int64_t>(s.m, 1));
        spec.experts = static_cast<uint32_t>(s.experts);
        for (int64_t i = 0; i < s.experts * s.sources; ++i) {
            const int64_t rows = s.n / s.sources + (i % s.sources == 0 ? s.n % s.sources : 0);
            spec.sources.push_back(c.scene.add(random_tensor(rng, s.w, {rows, s.k})));
            c.absolute.push_back(spec.sources.back());
        }
        weight = c.scene.add(spec);
    }
    const bool sums = (s.features & KEEL_EXPERTS_SUM) != 0;
    const int weights = sums ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.m, s.top})) : none;
    if (sums) c.absolute.push_back(weights);
    int out = none;
    if ((s.features & KEEL_EXPERTS_ACCUMULATE) != 0)
        out = c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.m, s.n}, s.layout));
    else if (sums)
        out = c.scene.add(blank(s.a, {s.m, s.n}, s.layout));
    else
        out = c.scene.add(blank(s.a, {s.m, s.top, s.n}, s.layout));
    c.absolute.push_back(out);
    c.outputs = {{out, 2e-6, keel_dtype_block(s.w) > 1 ? 1.5e-2 : 4e-3, false, true}};
    c.call = [=](Stage &stage) {
        keel_expert_matmul_args a = {};
        a.h = KEEL_HEADER(keel_expert_matmul_args);
        a.features = s.features;
        a.x = stage.tensor(x_at);
        a.w = stage.tensor(w);
        a.index = stage.tensor(index);
        a.weights = stage.tensor(weights);
        a.out = stage.tensor(out);
        a.experts = s.experts;
        if (weight != none) {
            a.weight = stage.weight(weight);
            if (a.weight == nullptr) return keel_status{KEEL_E_UNSUPPORTED};
        }
        return stage.run(KEEL_OP_EXPERT_MATMUL, a);
    };
    suite.check(std::move(c));
}

void product_cases(Suite &suite) {
    using Choice = ProductShape::Choice;
    constexpr keel_dtype f32 = KEEL_DTYPE_F32;
    constexpr uint64_t sum = KEEL_EXPERTS_SUM, add = KEEL_EXPERTS_SUM | KEEL_EXPERTS_ACCUMULATE;
    const auto takes = [&](keel_dtype w) {
        return keel_dtype_weights_only(w) == 0 ||
               (suite.subject().info().weight_dtypes >> w & 1) != 0;
    };
    for (const keel_dtype w :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0,
          KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K}) {
        if (!takes(w)) continue;
        const int64_t k = keel_dtype_weights_only(w) != 0 ? 256 : 96;
        for (const int64_t m : {1, 7, 64}) {
            product_case(suite, {m, 2, 5, 45, k, w, f32, 0, {}, 2});
            product_case(suite, {m, 3, 5, 64, k, w, f32, add, {}, 1, true});
            product_case(suite, {m, 1, 1, 33, k, w, f32, sum}); // one expert
            product_case(suite, {m, 4, 4, 40, k, w, f32, add, {}, 0, true, Choice::all});
            product_case(suite, {m, 2, 6, 21, k, w, f32, 0, {}, 1, false, Choice::same});
        }
        product_case(suite, {300, 2, 3, 70, k, w, f32, add, {}, 1, true});
        product_case(suite, {2, 8, 16, 96, 2 * k, w, f32, sum, {}, 2});
        product_case(suite, {9, 3, 4, 20, k, w, f32, 0, {}, 1, false, Choice::invalid});
        product_case(suite, {9, 3, 4, 20, k, w, f32, add, {}, 1, true, Choice::invalid});
        product_case(suite, {3, 2, 4, 24, k, w, f32, 0, {}, 1, false, Choice::mixed, NAN});
        for (const keel_dtype a : suite.activations()) {
            product_case(suite, {5, 2, 3, 24, k, w, a, 0, {}, 1, true});
            product_case(suite, {5, 2, 3, 24, k, w, a, sum});
        }
        for (const Layout &layout : layouts(suite.quick())) {
            product_case(suite, {5, 2, 3, 24, k, w, f32, 0, layout, 1, true});
            product_case(suite, {5, 2, 3, 24, k, w, f32, add, layout});
        }
    }
    product_case(suite, {0, 2, 3, 24, 64});
    product_case(suite, {3, 0, 3, 24, 64, f32, f32, add});
    product_case(suite, {3, 2, 3, 0, 64});
    product_case(suite, {1, 8, 64, 515, 1056, KEEL_DTYPE_Q4_0, f32, add, {}, 1, true});
}

} // namespace

void expert_cases(Suite &suite) {
    if (suite.op() == KEEL_OP_CHOOSE_EXPERTS) return choice_cases(suite);
    product_cases(suite);
}

} // namespace keel::conformance
