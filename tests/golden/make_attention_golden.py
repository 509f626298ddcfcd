#!/usr/bin/env python3
"""Writes attention.json: dense attention and its gradients, computed with PyTorch's autograd in float64.

Inputs are a function of a seed and an index, so the file holds only answers. The test makes the same inputs. Where
torch.nn.functional.scaled_dot_product_attention has a case, the script checks its own formula with it.

    python3 tests/golden/make_attention_golden.py > tests/golden/attention.json
"""
import json
import math

import torch

torch.set_default_dtype(torch.float64)
M64 = (1 << 64) - 1
M32 = (1 << 32) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def noise(seed, *shape):
    """Numbers in [-1, 1), exact in f32."""
    flat = [(mix(seed ^ mix(i)) >> 40) * 2.0**-23 - 1.0 for i in range(math.prod(shape))]
    return torch.tensor(flat).reshape(shape)


def philox(counter, key):
    """Philox 4x32-10 (Salmon and others 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & M32, (a >> 32) ^ c[3] ^ k[1], a & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's kat_vectors


def kept(case, b, h, i, j):
    seed, numbers = case["seed"], [j // 4, i, b * case["heads"] + h, case["offset"]]
    return philox(numbers, [seed & M32, seed >> 32])[j % 4] >= int(case["dropout"] * 2**32)


def mask_of(case):
    """Deterministic zeros and ones, with the first row of the last head all 0."""
    sizes = case["mask"]
    bits = [mix(900 + i) % 3 != 0 for i in range(math.prod(sizes))]
    mask = torch.tensor(bits).reshape(sizes)
    mask[:, -1, 0] = False
    return mask


def attention(case, q, k, v, sink):
    """out [batch, rows, heads, dim] and log-sum-exp [batch, heads, rows]."""
    rows, keys, group = case["rows"], case["keys"], case["heads"] // case["kv_heads"]
    k, v = (t.repeat_interleave(group, dim=2) for t in (k, v))
    z = case["scale"] * torch.einsum("bihd,bjhd->bhij", q, k)
    if "softcap" in case:
        z = case["softcap"] * torch.tanh(z / case["softcap"])
    if "bias" in case:
        z = z + 2 * noise(77, *case["bias"])
    position = torch.arange(rows)[:, None] + keys - rows
    j = torch.arange(keys)[None, :]
    hidden = torch.zeros(rows, keys, dtype=torch.bool)
    if case.get("causal"):
        hidden = hidden | (j > position)
    if "window" in case:
        before, after = case["window"]
        hidden = hidden | ((position - j > before) if before >= 0 else False)
        hidden = hidden | ((j - position > after) if after >= 0 else False)
    hidden = hidden.expand(z.shape)
    if "mask" in case:
        hidden = hidden | ~mask_of(case)
    z = z.masked_fill(hidden, -math.inf)
    terms = z if sink is None else torch.cat([z, sink[None, :, None, None].expand(*z.shape[:3], 1)], dim=-1)
    empty = torch.isinf(terms).all(dim=-1)
    lse = torch.logsumexp(terms.masked_fill(empty[..., None], 0), dim=-1).masked_fill(empty, -math.inf)
    p = torch.exp(z - lse.masked_fill(empty, 0)[..., None])
    if "dropout" in case:
        keep = torch.tensor([[[[kept(case, b, h, i, x) for x in range(keys)] for i in range(rows)]
                              for h in range(case["heads"])] for b in range(case["batch"])])
        p = p * keep / (1 - case["dropout"])
    return torch.einsum("bhij,bjhd->bihd", p, v), lse


def check_with_torch(case, q, k, v, out):
    if any(x in case for x in ("softcap", "bias", "mask", "window", "sink", "dropout")) or case["rows"] != case["keys"]:
        return
    want = torch.nn.functional.scaled_dot_product_attention(
        *(t.transpose(1, 2) for t in (q, k, v)), is_causal=bool(case.get("causal")), scale=case["scale"], enable_gqa=True)
    assert torch.allclose(out, want.transpose(1, 2), atol=1e-12), case["name"]


def rounded(t):
    return [float(f"{x:.9g}") if math.isfinite(x) else "-inf" for x in t.flatten().tolist()]


def answers(number, case):
    b, m, n, h, g = (case[x] for x in ("batch", "rows", "keys", "heads", "kv_heads"))
    d, e = case["dim"], case["v_dim"]
    seed = 1000 * (number + 1)
    spread = case.get("spread", 1.0)
    q, k, v = spread * noise(seed, b, m, h, d), spread * noise(seed + 1, b, n, g, d), noise(seed + 2, b, n, g, e)
    d_out = noise(seed + 3, b, m, h, e)
    sink = 2 * noise(seed + 4, h) if case.get("sink") else None
    inputs = [q, k, v] + ([sink] if sink is not None else [])
    for t in inputs:
        t.requires_grad_(True)
    out, lse = attention(case, q, k, v, sink)
    check_with_torch(case, q, k, v, out)
    gradients = torch.autograd.grad(out, inputs, d_out, allow_unused=True)
    result = dict(case, noise=seed, spread=spread, out=rounded(out), lse=rounded(lse))
    for name, t, x in zip(("d_q", "d_k", "d_v", "d_sink"), gradients, inputs):
        result[name] = rounded(torch.zeros_like(x) if t is None else t)
    return result


def case(name, **changes):
    base = dict(name=name, batch=1, rows=4, keys=5, heads=2, kv_heads=1, dim=16, v_dim=16, scale=0.25)
    return dict(base, **changes)


CASES = [
    case("plain"),
    case("causal, as many rows as keys", causal=True, rows=5),
    case("causal, fewer rows than keys", causal=True, rows=2, keys=6),
    case("causal, more rows than keys: the first rows are fully masked", causal=True, rows=5, keys=3),
    case("a head for each head, two batches", heads=2, kv_heads=2, batch=2, rows=3, keys=3, causal=True),
    case("sizes of heads that differ", dim=24, v_dim=16, heads=1, scale=1.5),
    case("softcap", softcap=1.5, spread=3.0),
    case("window before, causal", causal=True, window=[1, -1], rows=6, keys=6),
    case("window on both sides", window=[1, 2], rows=5, keys=6),
    case("sink", sink=True, causal=True, rows=6, keys=4),
    case("bias for all heads", bias=[1, 1, 4, 5]),
    case("bias for each head, one row of it", bias=[1, 2, 1, 5], softcap=2.0),
    case("mask with a fully masked row", mask=[1, 2, 4, 5]),
    case("dropout", dropout=0.375, seed=0x123456789ABCDEF0, offset=7),
    case("all together", causal=True, window=[3, -1], softcap=2.5, sink=True, bias=[1, 2, 4, 5], mask=[1, 2, 4, 5],
         dropout=0.25, seed=99, offset=1, spread=2.0),
    case("one row and one key", rows=1, keys=1),
]

print("[")
print(",\n".join(json.dumps(answers(i, c), separators=(",", ":")) for i, c in enumerate(CASES)))
print("]")
