#!/usr/bin/env python3
"""Writes policies.json: the scores and kept slots of each eviction policy, computed with PyTorch and NumPy from the papers' formulas.

The inputs (un-rotated queries, keys and values of one layer) depend only on a seed and an index, so the file contains only results. The
test generates the same inputs, computes rotations and attention itself, and calls the plugins with them.

    python3 tests/golden/make_policies_golden.py > tests/golden/policies.json
"""
import json
import math

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
M64 = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def noise(seed, *shape):
    """Returns numbers in [-1, 1) that f32 can hold exactly."""
    n = math.prod(shape)
    flat = [(mix(seed ^ mix(i)) >> 40) * 2.0**-23 - 1.0 for i in range(n)]
    return torch.tensor(flat).reshape(shape)


class Scene:
    def __init__(self, name, seed, heads, kv_heads, dim, length, interleaved=False):
        self.name, self.seed, self.heads, self.kv_heads = name, seed, heads, kv_heads
        self.dim, self.length, self.interleaved = dim, length, interleaved
        self.group = heads // kv_heads
        # before RoPE: [heads, length, dim]
        self.q = 2.5 * noise(seed, length, heads, dim).permute(1, 0, 2)
        self.k = 1.5 * noise(seed + 1, length, kv_heads, dim).permute(1, 0, 2)
        self.v = noise(seed + 2, length, kv_heads, dim).permute(1, 0, 2)
        self.frequencies = 100.0 ** (-torch.arange(dim // 2) / (dim // 2))
        at = torch.arange(length).double()
        self.qr, self.kr = self.rope(self.q, at), self.rope(self.k, at)
        self.scale = 1 / math.sqrt(dim)
        logits = self.qr @ self.per_query_head(self.kr).transpose(1, 2) * self.scale
        hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        self.p = torch.softmax(logits.masked_fill(hidden, -math.inf), -1)  # [heads, query, key]

    def per_query_head(self, x):
        return x.repeat_interleave(self.group, 0)

    def by_group(self, x):
        return x.reshape(self.kv_heads, self.group, *x.shape[1:])

    def pairs(self):
        half = self.dim // 2
        i = torch.arange(half)
        return (2 * i, 2 * i + 1) if self.interleaved else (i, i + half)

    def rope(self, x, positions):
        a, b = self.pairs()
        angle = positions[:, None] * self.frequencies
        out = torch.empty_like(x)
        out[..., a] = x[..., a] * angle.cos() - x[..., b] * angle.sin()
        out[..., b] = x[..., b] * angle.cos() + x[..., a] * angle.sin()
        return out


def pool(x, kernel, kind):
    f = torch.nn.functional.avg_pool1d if kind == "avg" else torch.nn.functional.max_pool1d
    return f(x, kernel, stride=1, padding=kernel // 2) if x.shape[-1] else x


def reduce_group(x, how):
    return {"mean": lambda: x.mean(1), "sum": lambda: x.sum(1), "max": lambda: x.amax(1)}[how]()


def snapkv(s, budget, window=32, kernel=5, pool_kind="avg", group="mean"):
    prefix = max(0, s.length - window)
    votes = s.by_group(s.p[:, -window:, :prefix].mean(1))  # [kv_heads, group, prefix]
    if group == "none":
        prefix_scores = pool(votes, kernel, pool_kind).mean(1)
    else:
        prefix_scores = pool(reduce_group(votes, group), kernel, pool_kind)
    scores = torch.zeros(s.kv_heads, s.length)
    scores[:, :prefix] = prefix_scores
    return scores, range(prefix, s.length)


def h2o(s, budget, score="sum", recent_share=0.5):
    total = s.by_group(s.p.sum(1)).mean(1)
    if score == "mean":
        total = total / torch.arange(s.length, 0, -1)
    return total, range(max(0, s.length - int(recent_share * budget)), s.length)


def tova(s, budget, keep_newest=True):
    return s.p[:, -1, :].mean(0, keepdim=True), range(s.length - 1, s.length) if keep_newest else []


def keydiff(s, budget, sinks=4):
    unit = torch.nn.functional.normalize(s.kr, dim=-1)
    anchor = unit.mean(1, keepdim=True)
    return -torch.nn.functional.cosine_similarity(s.kr, anchor, dim=-1), range(min(sinks, s.length))


def knorm(s, budget):
    return -s.kr.norm(dim=-1), []


def expected_attention(s, budget, n_future=512, sinks=4, covariance=True, value_norms=True, epsilon=0.0):
    sinks_there = min(sinks, s.length)
    scores = torch.zeros(s.kv_heads, s.length)
    counted = s.q[:, sinks_there:]
    if counted.shape[1] == 0:
        return scores, range(sinks_there)
    mean = counted.mean(1)
    centred = counted - mean[:, None]
    cov = centred.transpose(1, 2) @ centred / counted.shape[1]
    a, b = s.pairs()
    rotation = torch.zeros(s.dim, s.dim)
    for t in range(s.length, s.length + n_future):  # the mean of whole matrices
        c, z = (t * s.frequencies).cos(), (t * s.frequencies).sin()
        rotation[a, a] += c
        rotation[b, b] += c
        rotation[a, b] -= z
        rotation[b, a] += z
    rotation /= n_future
    mean = mean @ rotation.T
    cov = rotation @ cov @ rotation.T
    keys = s.per_query_head(s.kr[:, sinks_there:])
    logits = torch.einsum("hti,hi->ht", keys, mean) * s.scale
    if covariance:
        logits = logits + 0.5 * s.scale**2 * torch.einsum("hti,hij,htj->ht", keys, cov, keys)
    tail = s.by_group(torch.softmax(logits, -1)).mean(1)
    if value_norms:
        tail = (tail + epsilon) * s.v[:, sinks_there:].norm(dim=-1)
    scores[:, sinks_there:] = tail
    return scores, range(sinks_there)


def z_of_layer(x):
    return (x - x.mean()) / x.std().clamp_min(1e-6)


def compactor(s, budget, sketch=48, chunk=256, blend=-1.0, sinks=8, tail=4):
    first = min(sinks, s.length)
    last = max(first, s.length - tail)
    scores = torch.zeros(s.kv_heads, s.length)
    stay = list(range(first)) + list(range(last, s.length))
    if last - first < 2:
        return scores, stay
    sketch = min(sketch, s.dim)
    x = s.k[:, first:last] @ noise(s.seed + 3, s.dim, sketch)
    x = x - x.mean(1, keepdim=True)
    gram = x.transpose(1, 2) @ x + 1e-2 * torch.eye(sketch)
    leverage = torch.einsum("hti,hij,htj->ht", x, torch.linalg.inv(gram), x)
    columns = torch.zeros(s.heads, s.length)
    keys = s.per_query_head(s.kr)
    for begin in range(0, s.length, chunk):
        piece = slice(begin, min(begin + chunk, s.length))
        columns[:, piece] = torch.softmax(s.qr[:, piece] @ keys[:, piece].transpose(1, 2) * s.scale, -1).sum(1)
    weighed = (s.by_group(columns).mean(1) * s.v.norm(dim=-1))[:, first:last]
    blend = 1 - min(budget, s.length) / s.length if blend < 0 else blend
    scores[:, first:last] = blend * z_of_layer(leverage) + z_of_layer(pool(weighed, 3, "avg"))
    return scores, stay


def kvzip(s, budget, sinks=4):
    return s.by_group(s.p.amax(1)).amax(1), range(min(sinks, s.length))


def keep_set(scores, stay, budget):
    """Returns the kept slots and the gap between the worst kept and the best evicted score (None: nothing was evicted
    by scores)."""
    stay = set(stay)
    others = sorted((t for t in range(len(scores)) if t not in stay), key=lambda t: (-scores[t], -t))
    room = max(0, budget - len(stay))
    gap = scores[others[room - 1]] - scores[others[room]] if 0 < room < len(others) else None
    return sorted(stay | set(others[:room])), gap


METHODS = [
    (snapkv, {"window": 8, "kernel": 5, "pool": "avg"}),
    (snapkv, {"window": 8, "kernel": 7, "pool": "max", "group": "max"}),
    (snapkv, {"window": 6, "kernel": 1, "pool": "avg", "group": "sum"}),
    (snapkv, {"window": 5, "kernel": 3, "pool": "max", "group": "none"}),
    (snapkv, {"window": 12, "kernel": 9, "pool": "avg", "group": "none"}),
    (h2o, {"recent_share": 0.5}),
    (h2o, {"score": "mean", "recent_share": 0.25}),
    (tova, {}),
    (tova, {"keep_newest": False}),
    (keydiff, {}),
    (keydiff, {"sinks": 0}),
    (knorm, {}),
    (expected_attention, {"epsilon": 0.0}),
    (expected_attention, {"n_future": 16, "sinks": 2, "epsilon": 0.01}),
    (expected_attention, {"covariance": False, "value_norms": False, "epsilon": 0.0}),
    (compactor, {"sketch": 6, "chunk": 16, "sinks": 3, "tail": 2}),
    (compactor, {"chunk": 11, "blend": 0.35}),
    (kvzip, {}),
]

SCENES = [
    Scene("grouped queries, 4 to 2", 1000, 4, 2, 16, 53),
    Scene("as many query heads as KV heads, interleaved RoPE", 2000, 2, 2, 8, 40, True),
    Scene("six query heads to one", 3000, 6, 1, 12, 37),
    Scene("as long as a window", 4000, 4, 2, 8, 8),
    Scene("one longer than a window", 5000, 4, 2, 8, 9),
]


def score_cases():
    for s in SCENES:
        out = []
        for method, params in METHODS:
            renamed = {("pool_kind" if k == "pool" else k): v for k, v in params.items()}
            least = {"snapkv": params.get("window", 32), "compactor": params.get("sinks", 8) + params.get("tail", 4),
                     "keydiff": 4, "kvzip": 4, "expected_attention": 4}.get(method.__name__, 0) + 1
            budget = max(least, s.length // 3)
            scores, stay = method(s, budget, **renamed)
            keep = [keep_set(row.tolist(), stay, budget) for row in scores]
            out.append({
                "plugin": method.__name__, "params": {k: str(v).lower() for k, v in params.items()}, "budget": budget,
                "stay": list(stay), "scores": [[float(f"{x:.7g}") for x in row.tolist()] for row in scores],
                "keep": [k for k, _ in keep], "gap": [None if g is None else float(f"{g:.3g}") for _, g in keep]})
        yield {"name": s.name, "seed": s.seed, "heads": s.heads, "kv_heads": s.kv_heads, "head_dim": s.dim,
               "length": s.length, "interleaved": s.interleaved, "methods": out}


def adaptive(scores, stays, budget, floor, scope, normalize):
    """Budgets for scores [layers][heads] of unequal lengths: the best `floor` share of each head stays, then the best
    of all others."""
    counts = [[0] * len(layer) for layer in scores]
    pools = [list(range(len(scores)))] if scope == "global" else [[i] for i in range(len(scores))]
    for pool_layers in pools:
        everyone = []
        heads = 0
        for layer in pool_layers:
            for h, row in enumerate(scores[layer]):
                heads += 1
                stay = stays[layer][h]
                free = np.array([x for t, x in enumerate(row) if t not in stay])
                slots = [t for t in range(len(row)) if t not in stay]
                if normalize == "sum":
                    value = free / free.sum()
                elif normalize == "softmax":
                    value = np.exp(free - free.max()) / np.exp(free - free.max()).sum()
                elif normalize == "rank":
                    value = 1 - np.array([sum((y, u) > (x, t) for y, u in zip(free, slots)) for x, t in zip(free, slots)]) / len(free)
                else:
                    value = free
                order = sorted(range(len(free)), key=lambda i: (-value[i], -slots[i]))
                safe = max(0, min(len(row), math.floor(floor * budget)) - len(stay))
                everyone += [(-math.inf, 0, layer, h)] * len(stay)
                everyone += [(-math.inf if n < safe else -value[i], -slots[i], layer, h) for n, i in enumerate(order)]
        for _, _, layer, h in sorted(everyone)[: budget * heads]:
            counts[layer][h] += 1
    return [c for layer in counts for c in layer]


def pyramid(layers, heads, length, budget, fixed, beta):
    c = budget - fixed
    low = c / beta
    high = 2 * c - low
    if high >= length - fixed:
        high = length - fixed
        low = 2 * c - high
    exact = [high - layer * (high - low) / (layers - 1) for layer in range(layers)]
    out = [math.floor(x + 1e-9) for x in exact]
    for layer in sorted(range(layers), key=lambda i: -(exact[i] - out[i]))[: c * layers - sum(out)]:
        out[layer] += 1
    return [fixed + n for n in out for _ in range(heads)]


def allocator_cases():
    lengths = [[30, 26, 30], [22, 30, 17]]
    scores = [[((noise(7000 + 10 * layer + h, n) + 1) ** (1 + 2 * h + layer)).tolist() for h, n in enumerate(row)]
              for layer, row in enumerate(lengths)]
    for stay_first in (0, 3):
        stays = [[set(range(stay_first)) for _ in row] for row in lengths]
        for floor, scope, normalize in [(0.2, "layer", "none"), (0.5, "global", "none"), (0.0, "layer", "sum"),
                                        (0.2, "global", "softmax"), (0.0, "global", "rank"), (1.0, "layer", "none")]:
            yield {"plugin": "adaptive", "params": {"floor": str(floor), "scope": scope, "normalize": normalize},
                   "lengths": lengths, "budget": 12, "protected": stay_first, "seed": 7000,
                   "expect": adaptive(scores, stays, 12, floor, scope, normalize)}
    # `window` slots are kept by the policy, and `prefix` slots are protected. The minimum per layer
    # is the policy's least budget, and the pyramid is on top of both.
    for layers, heads, length, budget, prefix, window, beta in [
            (16, 2, 4096, 1024, 4, 32, 20), (16, 2, 4096, 1024, 4, 64, 20), (16, 2, 4096, 1024, 0, 8, 20), (32, 8, 4096, 128, 0, 32, 20),
            (5, 1, 100, 33, 4, 0, 3), (5, 1, 100, 33, 4, 16, 3), (7, 3, 90, 50, 0, 0, 20), (7, 3, 90, 50, 0, 30, 20), (4, 2, 64, 17, 8, 0, 1)]:
        fixed = prefix + window
        yield {"plugin": "pyramid", "params": {"beta": str(beta)}, "lengths": [[length] * heads] * layers, "budget": budget,
               "protected": max(prefix, window + 1 if window else 0), "fixed": fixed, "seed": 0,
               "expect": pyramid(layers, heads, length, budget, fixed, beta)}


if __name__ == "__main__":
    print(json.dumps({"scorers": list(score_cases()), "allocators": list(allocator_cases())}, separators=(",", ":"))
          .replace('{"name"', '\n{"name"').replace('{"plugin"', '\n{"plugin"'))
