// Functions for which Vulkan guarantees too little precision, or no precision.

// Returns e^x, accurate to about one ulp. The result for NaN is NaN.
float exp_(float x) {
    if (is_nan(x)) return x;
    x = clamp(x, -110.0, 89.0);
    const float n = roundEven(x * 1.44269504);
    float r = fma(n, -0.693145751953125, x);
    r = fma(n, -1.42860677e-6, r);
    float p = fma(r, 1.0 / 720.0, 1.0 / 120.0);
    p = fma(r, p, 1.0 / 24.0);
    p = fma(r, p, 1.0 / 6.0);
    p = fma(r, p, 0.5);
    p = fma(r * r, p, r) + 1.0;
    const int e = int(n), half_e = e / 2;
    return p * uintBitsToFloat(uint(127 + half_e) << 23) *
           uintBitsToFloat(uint(127 + e - half_e) << 23);
}

float tanh_(float x) {
    if (is_nan(x)) return x;
    if (abs(x) < 0.02) return x - x * x * x * (1.0 / 3.0);
    const float y = min(abs(x), 12.0);
    const float t = 1.0 - 2.0 / (exp_(2.0 * y) + 1.0);
    return x < 0.0 ? -t : t;
}

// Returns 1 + erf(x), computed with a rational approximation of erfc (relative error 1.2e-7).
float one_plus_erf(float x) {
    const float z = abs(x), t = 1.0 / (1.0 + 0.5 * z);
    float p = 0.17087277;
    p = fma(t, p, -0.82215223);
    p = fma(t, p, 1.48851587);
    p = fma(t, p, -1.13520398);
    p = fma(t, p, 0.27886807);
    p = fma(t, p, -0.18628806);
    p = fma(t, p, 0.09678418);
    p = fma(t, p, 0.37409196);
    p = fma(t, p, 1.00002368);
    const float erfc = t * exp_(-z * z - 1.26551223 + t * p);
    return x >= 0.0 ? 2.0 - erfc : erfc;
}

// Returns a / b, rounded to nearest, if no intermediate value overflows or underflows.
float divide(float a, float b) {
    const float inverse = 1.0 / b;
    precise float q = a / b;
    precise float rest = fma(-q, b, a);
    precise float better = fma(rest, inverse, q);
    return is_finite(better) ? better : q;
}
