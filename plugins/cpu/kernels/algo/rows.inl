// Kernels for norms, activation functions, elementwise ops and rows. Each call processes one
// contiguous row. `out` can be one of the inputs.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

// Calls f(i, n) for each vector of n = W elements. If there are remaining elements, calls f once
// more for them.
template <class Fn>
KEEL_SIMD void each_vector(int64_t n, Fn &&f) {
    int64_t i = 0;
    for (; i + W <= n; i += W)
        f(i, static_cast<int64_t>(W));
    if (i < n) f(i, n - i);
}
KEEL_SIMD F load_part(const float *p, int64_t n) {
    return n == W ? load(p) : load_n(p, n);
}
KEEL_SIMD void store_part(float *p, F x, int64_t n) {
    if (n == W)
        store(p, x);
    else
        store_n(p, x, n);
}

// Returns 1 / sqrt(x), computed in f64 for accuracy. This is needed only a few times per row.
KEEL_SIMD float inverse_root(double x) {
    return static_cast<float>(1.0 / __builtin_sqrt(x));
}

// Returns the sum of squares. Short pieces are summed in f32, and the sums of the pieces in f64. If
// the squares exceed the range of f32, all of them are summed in f64.
static double sum_of_squares(const float *x, int64_t n) {
    constexpr int64_t piece = 64 * W;
    double total = 0;
    for (int64_t at = 0; at < n; at += piece) {
        F sum = zero();
        each_vector(n - at < piece ? n - at : piece, [&](int64_t i, int64_t part) {
            const F v = load_part(x + at + i, part);
            sum = fma(v, v, sum);
        });
        total += static_cast<double>(reduce_add(sum));
    }
    if (total < 1e38 && total > 1e-30) return total;
    total = 0;
    for (int64_t i = 0; i < n; ++i)
        total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return total;
}

static void rms_norm(const float *x, float *residual, const float *weight, float eps, int64_t n,
                     float *out) {
    if (residual != nullptr) {
        each_vector(n, [&](int64_t i, int64_t part) {
            store_part(residual + i, add(load_part(residual + i, part), load_part(x + i, part)),
                       part);
        });
        x = residual;
    }
    const F factor = set1(
        inverse_root(sum_of_squares(x, n) / static_cast<double>(n) + static_cast<double>(eps)));
    each_vector(n, [&](int64_t i, int64_t part) {
        store_part(out + i, mul(mul(load_part(x + i, part), factor), load_part(weight + i, part)),
                   part);
    });
}

static void layer_norm(const float *x, const float *weight, const float *bias, float eps, int64_t n,
                       float *out) {
    // The variance is computed in f64 from differences to the mean. In f32, a row with a large mean
    // would lose its variance to rounding.
    double total = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i)
        total += static_cast<double>(x[i]);
    const double mean = total / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
        const double centred = static_cast<double>(x[i]) - mean;
        squares += centred * centred;
    }
    const double factor =
        1.0 / __builtin_sqrt(squares / static_cast<double>(n) + static_cast<double>(eps));
    for (int64_t i = 0; i < n; ++i) {
        const double y =
            (static_cast<double>(x[i]) - mean) * factor * static_cast<double>(weight[i]);
        out[i] = static_cast<float>(bias != nullptr ? y + static_cast<double>(bias[i]) : y);
    }
}

KEEL_SIMD F silu(F g) {
    return div(g, add(set1(1.0f), exp(sub(zero(), g))));
}

KEEL_SIMD F gelu_tanh(F g) {
    const F inner = mul(mul(set1(0.7978845608f), g), fma(mul(g, g), set1(0.044715f), set1(1.0f)));
    // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)). The right side has no cancellation for either sign of
    // u.
    return div(g, add(set1(1.0f), exp(mul(set1(-2.0f), inner))));
}

// Computes gelu with 0.5 erfc(|g| / sqrt 2), by formula 7.1.26 of Abramowitz and Stegun. The
// absolute error of erfc is below 1.5e-7.
KEEL_SIMD F gelu_erf(F g) {
    const F z = mul(abs(g), set1(0.70710678118f));
    const F t = div(set1(1.0f), fma(set1(0.3275911f), z, set1(1.0f)));
    F p = set1(1.061405429f);
    p = fma(p, t, set1(-1.453152027f));
    p = fma(p, t, set1(1.421413741f));
    p = fma(p, t, set1(-0.284496736f));
    p = fma(p, t, set1(0.254829592f));
    const F half_tail = mul(mul(mul(p, t), set1(0.5f)), exp(mul(sub(zero(), z), z)));
    // The result is g * half_tail for negative g, and g - g * half_tail for positive g. The
    // expression max(g, 0) - |g| * half_tail gives both.
    return sub(max(g, zero()), mul(abs(g), half_tail));
}

// Computes out = activation(gate) * up. If `pairs` is true, gate and up alternate in memory, and
// this function reads every second float. Vector shuffles would not be faster, because memory
// access limits the speed.
template <class Fn>
KEEL_SIMD void gated(const float *gate, const float *up, int64_t n, bool pairs, float *out,
                     Fn &&f) {
    each_vector(n, [&](int64_t i, int64_t part) {
        F g, u;
        if (pairs) {
            float apart[2][W];
            for (int64_t j = 0; j < W; ++j) {
                apart[0][j] = j < part ? gate[2 * (i + j)] : 0.0f;
                apart[1][j] = j < part ? gate[2 * (i + j) + 1] : 0.0f;
            }
            g = load(apart[0]);
            u = load(apart[1]);
        } else {
            g = load_part(gate + i, part);
            u = up != nullptr ? load_part(up + i, part) : set1(1.0f);
        }
        store_part(out + i, mul(f(g), u), part);
    });
}

static void silu_mul(const float *gate, const float *up, int64_t n, float *out) {
    gated(gate, up, n, up == nullptr, out, [](F g) { return silu(g); });
}

static void gelu_mul(const float *gate, const float *up, int64_t n, bool pairs, bool tanh,
                     float *out) {
    if (tanh)
        gated(gate, up, n, pairs, out, [](F g) { return gelu_tanh(g); });
    else
        gated(gate, up, n, pairs, out, [](F g) { return gelu_erf(g); });
}

static void add_rows(const float *a, const float *b, int64_t n, float *out) {
    each_vector(n, [&](int64_t i, int64_t part) {
        store_part(out + i, add(load_part(a + i, part), load_part(b + i, part)), part);
    });
}

static void scale_row(const float *a, float factor, int64_t n, float *out) {
    const F f = set1(factor);
    each_vector(n, [&](int64_t i, int64_t part) {
        store_part(out + i, mul(load_part(a + i, part), f), part);
    });
}

static void scaled_add(const float *a, float factor, int64_t n, float *out) {
    const F f = set1(factor);
    each_vector(n, [&](int64_t i, int64_t part) {
        store_part(out + i, add(load_part(out + i, part), mul(f, load_part(a + i, part))), part);
    });
}

static void softmax(const float *x, int64_t n, float *out) {
    constexpr float infinity = __builtin_inff();
    float largest = -infinity;
    bool nan = false;
    for (int64_t i = 0; i < n; ++i) {
        if (x[i] > largest) largest = x[i];
        nan |= x[i] != x[i];
    }
    if (largest == -infinity && !nan) {
        for (int64_t i = 0; i < n; ++i)
            out[i] = 0.0f;
        return;
    }
    double sum = 0; // the partial sums are added in f64, so that long rows stay exact
    const F top = set1(largest);
    each_vector(n, [&](int64_t i, int64_t part) {
        store_part(out + i, exp(sub(load_part(x + i, part), top)), part);
        float values[W];
        store(values, load_part(out + i, part));
        for (int64_t j = 0; j < part; ++j)
            sum += static_cast<double>(values[j]);
    });
    const F factor = set1(static_cast<float>(1.0 / sum));
    each_vector(n, [&](int64_t i, int64_t part) {
        store_part(out + i, mul(load_part(out + i, part), factor), part);
    });
}

static int32_t argmax(const float *x, int64_t n) {
    F top = set1(-__builtin_inff()), spoilt = zero();
    each_vector(n, [&](int64_t i, int64_t part) {
        const F v = load_part(x + i, part);
        spoilt = add(spoilt, mul(v, zero())); // NaN if a value is NaN or infinite
        if (part == W)
            top = max(v, top);
        else
            for (int64_t j = 0; j < part; ++j)
                top = max(set1(x[i + j]), top);
    });
    if (n == 0 || any_nan(spoilt)) return -1;
    const float largest = reduce_max(top);
    int64_t at = 0;
    while (x[at] != largest)
        ++at;
    return static_cast<int32_t>(at);
}

static const RowKernels row_table = {
    .isa = isa_word,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .add = add_rows,
    .scale = scale_row,
    .scaled_add = scaled_add,
    .softmax = softmax,
    .argmax = argmax,
};

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
