// The elementwise kernels of dense attention (attention/dense.hpp), built from the primitives of
// simd_*.hpp. Included by attention.inl. Rows have room for a whole number of vectors.

// The weights of softmax from the logits of a row and their log-sum-exp: x[j] = exp(x[j] - lse).
void exp_minus(float *x, float lse, int64_t n) {
    const F base = set1(lse);
    for (int64_t j = 0; j < n; j += W)
        store(x + j, exp(sub(load(x + j), base)));
}

// If the bias is -inf: x[j] = -inf. Otherwise: x[j] = x[j] + bias[j].
void add_bias(float *x, const float *bias, int64_t n) {
    for (int64_t j = 0; j < n; ++j)
        x[j] = bias[j] == -__builtin_inff() ? bias[j] : x[j] + bias[j];
}

// If the bias is -inf: x[j] = 0, even if x[j] is NaN.
void hide(float *x, const float *bias, int64_t n) {
    for (int64_t j = 0; j < n; ++j)
        x[j] = bias[j] == -__builtin_inff() ? 0.0f : x[j];
}

// x[j] *= keep[j]. If keep[j] is 0, x[j] becomes 0, even if x[j] is NaN.
void drop(float *x, const float *keep, int64_t n) {
    for (int64_t j = 0; j < n; ++j)
        x[j] = keep[j] == 0.0f ? 0.0f : x[j] * keep[j];
}

// Computes gradients of the logits of a row: dp[j] = p[j] * (dp[j] - delta).
void logit_gradient(float *dp, const float *p, float delta, int64_t n) {
    const F base = set1(delta);
    for (int64_t j = 0; j < n; j += W)
        store(dp + j, mul(load(p + j), sub(load(dp + j), base)));
}

// Multiplies dz[j] by the derivative of the softcap, which is computed from the capped logit.
void softcap_gradient(float *dz, const float *capped, float cap, int64_t n) {
    const float by = 1.0f / cap;
    for (int64_t j = 0; j < n; ++j) {
        const float t = capped[j] * by;
        dz[j] *= 1.0f - t * t;
    }
}
