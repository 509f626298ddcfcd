#!/usr/bin/env python3
"""Writes ab_statistics.json: results of scipy and numpy for small samples, for tests/eval/stats/statistics_test.cpp.

Needs scipy and numpy. The random generator (xoshiro256**) is implemented here too, so that resamples are the same.
"""
import json
import math
import os

import numpy as np
from scipy import optimize, stats

MASK = (1 << 64) - 1


class Xoshiro:
    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & MASK
            z = seed
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            self.s.append(z ^ (z >> 31))

    def next(self):
        def rotate(x, k):
            return ((x << k) | (x >> (64 - k))) & MASK

        s = self.s
        result = (rotate((s[1] * 5) & MASK, 7) * 9) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
        return result

    def below(self, n):
        return ((self.next() >> 32) * n) >> 32


def cluster_sums(values, clusters):
    order = list(dict.fromkeys(clusters))
    sums = np.array([sum(v for v, c in zip(values, clusters) if c == k) for k in order])
    counts = np.array([sum(1.0 for c in clusters if c == k) for k in order])
    return sums, counts


def bootstrap(values, clusters, confidence, resamples, seed):
    sums, counts = cluster_sums(values, clusters)
    k, rng = len(sums), Xoshiro(seed)
    means = []
    for _ in range(resamples):
        chosen = [rng.below(k) for _ in range(k)]
        means.append(sums[chosen].sum() / counts[chosen].sum())
    means = np.array(means)
    tail = (1 - confidence) / 2
    mean = sums.sum() / counts.sum()
    near = np.isclose(means, mean, rtol=1e-12, atol=0)
    share = ((means < mean) & ~near).mean() + 0.5 * near.mean()
    z0 = stats.norm.ppf(share)
    left_out = (sums.sum() - sums) / (counts.sum() - counts)
    d = left_out.mean() - left_out
    a = (d**3).sum() / (6 * (d**2).sum() ** 1.5)
    z = stats.norm.ppf(tail)
    low = stats.norm.cdf(z0 + (z0 + z) / (1 - a * (z0 + z)))
    high = stats.norm.cdf(z0 + (z0 - z) / (1 - a * (z0 - z)))
    return {
        "percentile": list(np.quantile(means, [tail, 1 - tail])),
        "bca": list(np.quantile(means, [low, high])),
    }


def cluster_error(values, clusters):
    sums, counts = cluster_sums(values, clusters)
    residuals = sums - counts * np.mean(values)
    k = len(sums)
    return math.sqrt((residuals**2).sum() * k / (k - 1)) / counts.sum()


def tango_score(first, second, n, d):
    """Computes Tango's score statistic. The rate of "second only" comes from a search for the largest likelihood, not
    from his formula."""

    def log_likelihood(rate):
        parts = [(first, rate + d), (second, rate), (n - first - second, 1 - 2 * rate - d)]
        return sum(k * math.log(p) for k, p in parts if k > 0)

    low, high = max(0.0, -d), (1 - d) / 2
    found = optimize.minimize_scalar(
        lambda rate: -log_likelihood(rate), bounds=(low + 1e-13, high - 1e-13), method="bounded", options={"xatol": 1e-14}
    )
    variance = n * (2 * found.x + d * (1 - d))
    return (first - second - n * d) / math.sqrt(variance)


def tango(first, second, n, confidence):
    z, effect = stats.norm.ppf(0.5 + confidence / 2), (first - second) / n
    low = optimize.brentq(lambda d: tango_score(first, second, n, d) - z, -1 + 1e-9, effect - 1e-9)
    high = optimize.brentq(lambda d: tango_score(first, second, n, d) + z, effect + 1e-9, 1 - 1e-9)
    return [low, high]


def holm(p):
    order = np.argsort(p, kind="stable")
    out, most = np.empty(len(p)), 0.0
    for rank, i in enumerate(order):
        most = max(most, min(1.0, p[i] * (len(p) - rank)))
        out[i] = most
    return list(out)


def main():
    rng = np.random.default_rng(20261122)
    out = {}
    out["normal"] = [
        {"p": p, "x": stats.norm.ppf(p)}
        for p in [1e-300, 1e-20, 1e-6, 0.001, 0.025, 0.2, 0.5, 0.7, 0.975, 0.9999]
    ]
    out["student"] = [
        {"p": p, "freedom": f, "t": stats.t.ppf(p, f)}
        for p in [1e-9, 0.001, 0.025, 0.3, 0.5, 0.8, 0.975]
        for f in [1, 2, 5, 30, 999]
    ]
    out["wilson"] = []
    for k, n, c in [(0, 1, 0.95), (0, 20, 0.95), (20, 20, 0.95), (7, 20, 0.95), (450, 500, 0.99), (1, 1000, 0.9)]:
        ci = stats.binomtest(k, n).proportion_ci(c, method="wilson")
        out["wilson"].append({"hits": k, "n": n, "confidence": c, "low": ci.low, "high": ci.high})
    out["paired"] = []
    for counts in [(36, 12, 2, 0), (1, 1, 7, 12), (10, 5, 5, 10), (80, 15, 3, 2), (400, 30, 61, 9), (20, 9, 1, 10)]:
        both, first, second, neither = counts
        n = both + first + second + neither
        out["paired"].append(
            {
                "counts": counts,
                "mcnemar": stats.chi2.sf((first - second) ** 2 / (first + second), 1),
                "tango": tango(first, second, n, 0.95),
                "below": [[d, stats.norm.cdf(tango_score(first, second, n, d))] for d in (-0.1, 0.05, 0.3)],
            }
        )
    out["bootstrap"] = []
    for k, largest, skew in [(12, 1, False), (15, 4, False), (30, 3, True)]:
        values, clusters = [], []
        for c in range(k):
            luck = rng.exponential() if skew else rng.normal()
            for _ in range(int(rng.integers(1, largest + 1))):
                values.append(round(float(0.3 + luck + 0.5 * rng.normal()), 6))
                clusters.append(c)
        out["bootstrap"].append(
            {
                "values": values,
                "clusters": clusters,
                "error": cluster_error(values, clusters),
                "same": bootstrap(values, clusters, 0.95, 500, 7),
            }
        )
    # A library computes the same interval from its own resamples. The result is near, but not
    # equal.
    values = [round(float(v), 6) for v in rng.exponential(size=40)]
    library = {}
    for method in ["percentile", "BCa"]:
        ci = stats.bootstrap((values,), np.mean, n_resamples=200000, batch=10000, method=method, random_state=3).confidence_interval
        library[method.lower()] = [ci.low, ci.high]
    out["library"] = {"values": values, **library}
    p = [0.01, 0.04, 0.03, 0.005, 0.9, 0.04]
    out["holm"] = {"p": p, "adjusted": holm(p)}
    values = [round(float(v), 6) for v in rng.normal(0.4, 1, size=25)]
    test = stats.ttest_1samp(values, 0)
    ci = test.confidence_interval(0.95)
    out["ttest"] = {"values": values, "p": test.pvalue, "low": ci.low, "high": ci.high}
    out["detectable"] = {
        "error": 0.02,
        "freedom": 199,
        "effect": 0.02 * (stats.t.ppf(0.975, 199) + stats.t.ppf(0.8, 199)),
    }
    out["trimmed"] = []
    for values in [[0.1, -0.2], [0.3, 0.1, 0.2, 5.0], [0.1, 0.12, 0.09, 0.11, 2.0], [0.4, -3.0, 0.2, 0.3, 0.1, 0.35, 0.25, 0.15, 0.05, 7.0, 0.3]]:
        # With a second sample of zeros, Yuen's test of two samples equals the test of one sample.
        test = stats.ttest_ind(values, [0.0] * len(values), equal_var=False, trim=0.2)
        mean, p = stats.trim_mean(values, 0.2), test.pvalue
        error = mean / test.statistic
        reach = error * stats.t.ppf(0.975, test.df)
        low, high = mean - reach, mean + reach
        out["trimmed"].append({"values": values, "mean": mean, "error": error, "low": low, "high": high, "p": p})
    rng = Xoshiro(42)
    out["random"] = {"seed": 42, "words": [str(rng.next()) for _ in range(4)]}

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ab_statistics.json")
    with open(path, "w") as f:
        json.dump(out, f, indent=1, default=float)
        f.write("\n")


main()
