// Leverage scores of the rows of a matrix. The score of a row is high if the row is far from the
// span of the other rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <keel/sdk_policy.hpp>

namespace {

// Replaces the symmetric matrix g [n, n] by its lower Cholesky factor. Returns false if g is not
// positive definite.
bool factorize(std::vector<double> &g, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j <= i; ++j) {
            double sum = g[i * n + j];
            for (size_t k = 0; k < j; ++k) sum -= g[i * n + k] * g[j * n + k];
            if (i != j) {
                g[i * n + j] = sum / g[j * n + j];
            } else if (sum > 0 && std::isfinite(sum)) {
                g[i * n + i] = std::sqrt(sum);
            } else {
                return false;
            }
        }
    }
    return true;
}

// Returns the Cholesky factor of the matrix gram [r, r] plus a ridge (a small number on its
// diagonal). Only the lower half of gram is set. The ridge is multiplied by ten until the matrix is
// positive definite.
std::vector<double> factor_with_ridge(const std::vector<double> &gram, size_t r) {
    double ridge = 1e-2;
    for (int tries = 0; tries < 8; ++tries, ridge *= 10) {
        std::vector<double> lower = gram;
        for (size_t i = 0; i < r; ++i) lower[i * r + i] += ridge;
        if (factorize(lower, r)) return lower;
    }
    throw keel::sdk::Failure(KEEL_E_INTERNAL,
                             "the Gram matrix of the keys cannot be factorized, because the matrix "
                             "is not finite or not positive definite");
}

// Returns x[t] (X'X + ridge)^-1 x[t]' for each of the n rows x[t] of X. X is the matrix `rows` [n,
// r] minus its mean row.
std::vector<double> leverage_of(const float *rows, int64_t n, size_t r) {
    std::vector<double> mean(r), gram(r * r), x(static_cast<size_t>(n) * r);
    std::vector<double> out(static_cast<size_t>(n));
    for (int64_t t = 0; t < n; ++t)
        for (size_t i = 0; i < r; ++i)
            mean[i] += rows[static_cast<size_t>(t) * r + i] / static_cast<double>(n);
    for (size_t t = 0; t < out.size(); ++t) {
        double *row = x.data() + t * r;
        for (size_t i = 0; i < r; ++i) row[i] = rows[t * r + i] - mean[i];
        for (size_t i = 0; i < r; ++i)
            for (size_t j = 0; j <= i; ++j) gram[i * r + j] += row[i] * row[j];
    }
    const std::vector<double> lower = factor_with_ridge(gram, r);
    // The columns of L. Each column is contiguous. So the compiler can vectorize the inner loop
    // below.
    std::vector<double> columns(r * r);
    for (size_t i = 0; i < r; ++i)
        for (size_t k = i; k < r; ++k) columns[i * r + k] = lower[k * r + i];
    for (size_t t = 0; t < out.size(); ++t) { // computes |L^-1 x|^2 by forward substitution
        double *row = x.data() + t * r;
        for (size_t i = 0; i < r; ++i) {
            const double *column = columns.data() + i * r;
            const double solved = row[i] / column[i];
            out[t] += solved * solved;
            for (size_t k = i + 1; k < r; ++k) row[k] -= column[k] * solved;
        }
    }
    return out;
}

} // namespace
