// The elementwise kernels of dense attention (attention/dense.hpp), built from the primitives of
// simd_*.hpp. Included by attention.inl. Rows have room for a whole number of vectors.

// Turns logits and log-sum-exps into the weights of the softmax: x[j] = exp(x[j] - lse[j]).
void exp_minus(float *x, const float *lse, int64_t n) {
    for (int64_t j = 0; j < n; j += W)
        store(x + j, exp(sub(load(x + j), load(lse + j))));
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

// Computes gradients of logits: dp[j] = p[j] * (dp[j] - delta[j]).
void logit_gradient(float *dp, const float *p, const float *delta, int64_t n) {
    for (int64_t j = 0; j < n; ++j)
        dp[j] = p[j] * (dp[j] - delta[j]);
}

// Multiplies dz[j] by the derivative of the softcap, which is computed from the capped logit.
void softcap_gradient(float *dz, const float *capped, float cap, int64_t n) {
    const float by = 1.0f / cap;
    for (int64_t j = 0; j < n; ++j) {
        const float t = capped[j] * by;
        dz[j] *= 1.0f - t * t;
    }
}
