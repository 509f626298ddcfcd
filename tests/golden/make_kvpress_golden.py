"""Makes kvpress.json: the slots that NVIDIA's kvpress keeps, for each method that Keel has too.

    pip install kvpress==0.5.5 "transformers==5.2.0" torch==2.9.1
    python tests/golden/make_kvpress_golden.py      # from anywhere; about a minute

`scenes`: kvpress's presses run on the made-up queries, keys and values of make_policies_golden.py. The test drives Keel's policies with the
same tensors. `model`: kvpress runs on models/tiny in float64. The test runs Keel on the same tokens.

Each case has the Keel plugin, its parameters and allocator, and the budget in slots that is kvpress's for its compression ratio. For each
layer and KV head it has the slots that kvpress kept, as a hexadecimal number whose bit t is slot t. `near` are the slots whose score is so
close to the cut that float32 may choose otherwise: a pair of slots on different sides of the cut may change places.
"""
import json
import logging
import math
import pathlib
import types

import kvpress
import make_policies_golden as formulas
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

logging.disable(logging.WARNING)
torch.set_default_dtype(torch.float64)
HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "models" / "tiny"
RATIOS = [0.25, 0.5, 0.75, 0.9]
TOKENS = 320


# ---- what a press kept -----------------------------------------------------------------------------------------------------------------

def bits(slots):
    return f"{sum(1 << t for t in slots):x}"


def near_slots(scores, kept, tolerance, span=None):
    """Slots of a row of scores that lie within the tolerance of the cut. `span`: the scale of the tolerance (None: the cut's own size)."""
    kept = set(kept)
    inside = [scores[t] for t in kept]
    outside = [scores[t] for t in range(len(scores)) if t not in kept]
    if not inside or not outside:
        return []
    low, high = min(inside), max(outside)
    room = max(tolerance * (max(abs(low), abs(high)) if span is None else span), 1e-30)
    return [t for t, x in enumerate(scores) if (x - high <= room if t in kept else low - x <= room)]


def recorded(press):
    """Wraps the scorer's score(), so that the list that is returned gets (scores [heads, slots], keys) of each layer."""
    seen, score = [], press.score

    def wrapped(module, hidden_states, keys, values, attentions, kwargs):
        out = score(module, hidden_states, keys, values, attentions, kwargs)
        seen.append((out[0].clone(), keys[0].clone()))
        return out

    press.score = wrapped
    return seen


def slots_of(kept_keys, all_keys):
    """Which rows of all_keys [slots, dim] those of kept_keys [kept, dim] are."""
    where = {row.numpy().tobytes(): t for t, row in enumerate(all_keys)}
    assert len(where) == len(all_keys)
    return sorted(where[row.numpy().tobytes()] for row in kept_keys)


def rows_of(scores, kept, tolerance, absolute):
    """`keep` and `near` of rows: scores [rows][slots], kept [rows] of lists."""
    spans = [max(abs(x) for x in row) if absolute else None for row in scores]
    near = [near_slots(row, slots, tolerance, span) for row, slots, span in zip(scores, kept, spans)]
    return {"keep": [bits(x) for x in kept], "near": [bits(x) for x in near]}


# ---- methods ---------------------------------------------------------------------------------------------------------------------------

def scorers(window):
    """(Keel's plugin, its params, kvpress's press, whether scores compare as differences and not as ratios)"""
    snapkv = {"window": str(window), "kernel": "5", "pool": "avg"}
    return [
        ("snapkv", snapkv, kvpress.SnapKVPress(window_size=window, kernel_size=5), False),
        ("snapkv", snapkv | {"kernel": "1"}, kvpress.SnapKVPress(window_size=window, kernel_size=1), False),
        ("tova", {}, kvpress.TOVAPress(), False),
        ("h2o", {"score": "mean", "recent_share": "0"}, kvpress.ObservedAttentionPress(), False),
        ("knorm", {}, kvpress.KnormPress(), True),
        ("keydiff", {"sinks": "0", "blockwise": "false"}, kvpress.KeyDiffPress(), True),
        ("expected_attention", {"epsilon": "0"}, kvpress.ExpectedAttentionPress(), False),
        ("expected_attention", {"epsilon": "0.02", "n_future": "64", "sinks": "2"},
         kvpress.ExpectedAttentionPress(epsilon=0.02, n_future_positions=64, n_sink=2), False),
        ("expected_attention", {"epsilon": "0", "covariance": "false", "value_norms": "false"},
         kvpress.ExpectedAttentionPress(use_covariance=False, use_vnorm=False), False),
    ]


# ---- scenes ----------------------------------------------------------------------------------------------------------------------------

class Layer(torch.nn.Module):
    """What presses need of an attention layer. Hidden states are the un-rotated queries and keys, side by side."""

    def __init__(self, scene):
        super().__init__()
        self.scene, self.head_dim, self.layer_idx = scene, scene.dim, 0
        self.config = types.SimpleNamespace(num_attention_heads=scene.heads, num_key_value_heads=scene.kv_heads, num_hidden_layers=1,
                                            _attn_implementation="sdpa")
        width = scene.heads * scene.dim
        self.q_proj, self.k_proj = (lambda h: h[..., :width]), (lambda h: h[..., width:])

    def rotary_emb(self, x, position_ids):
        angle = position_ids[0][:, None] * torch.cat([self.scene.frequencies] * 2)
        return angle.cos()[None], angle.sin()[None]


def scene_arguments(scene):
    module = Layer(scene)
    flat = [x.permute(1, 0, 2).reshape(scene.length, -1) for x in (scene.q, scene.k)]
    at = torch.arange(scene.length)[None]
    return (module, torch.cat(flat, -1)[None], scene.kr[None], scene.v[None]), {"position_embeddings": module.rotary_emb(None, at)}


def scene_cases(scene):
    arguments, kwargs = scene_arguments(scene)
    for plugin, params, press, absolute in scorers(8):
        seen = recorded(press)
        for ratio in RATIOS:
            budget = kvpress.utils.compute_n_kept(scene.length, ratio)
            if plugin == "snapkv" and budget <= 8:
                continue  # kvpress chooses among the window's slots by the order of topk
            press.compression_ratio = ratio
            keys, _ = press.compress(*arguments, scene.p[None] if plugin == "h2o" else None, kwargs)
            scores = seen.pop()[0]
            kept = [slots_of(keys[0, h], scene.kr[h]) for h in range(scene.kv_heads)]
            rows = 1 if plugin == "tova" else scene.kv_heads
            yield {"plugin": plugin, "params": params, "budget": budget} | rows_of(scores[:rows].tolist(), kept[:rows], 2e-5, absolute)


SCENES = [
    formulas.Scene("grouped queries, 4 to 2", 11000, 4, 2, 16, 53),
    formulas.Scene("six query heads to one", 13000, 6, 1, 12, 37),
    formulas.Scene("as many query heads as KV heads", 14000, 3, 3, 32, 130),
]


# ---- a model ---------------------------------------------------------------------------------------------------------------------------

def load(attention):
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float64, attn_implementation=attention).eval()


def prefill(model, press, ids):
    cache = DynamicCache()
    with torch.no_grad(), press(model):
        model.model(input_ids=torch.tensor([ids]), past_key_values=cache)
    return cache


def unmasked(model, tokens):
    """The slots of each head that a press with masks (AdaKV, KVzip) kept."""
    out = []
    for layer in model.model.layers:
        _, heads, slots = layer.self_attn.masked_key_indices
        gone = set(zip(heads.tolist(), slots.tolist()))
        out += [[t for t in range(tokens) if (h, t) not in gone] for h in range(model.config.num_key_value_heads)]
    return out


def case(plugin, params, budget, allocator, of, allocator_params={}, prefix=0):
    return {"plugin": plugin, "params": params, "budget": budget, "allocator": {"plugin": allocator, "params": allocator_params},
            "prefix": prefix} | of


def scored_cases(model, eager, ids):
    for plugin, params, press, absolute in scorers(16):
        seen = recorded(press)
        for press.compression_ratio in RATIOS:
            seen.clear()
            cache = prefill(eager if plugin == "h2o" else model, press, ids)
            scores = [row for layer, _ in seen for row in layer.tolist()]
            kept = [slots_of(cache.layers[l].keys[0, h], keys[h]) for l, (_, keys) in enumerate(seen) for h in range(len(keys))]
            yield case(plugin, params, len(kept[0]), "uniform", rows_of(scores, kept, 3e-5 if absolute else 3e-4, absolute))


def streaming_cases(model, ids):
    press = kvpress.StreamingLLMPress()
    seen = recorded(press)
    for press.compression_ratio in RATIOS:
        seen.clear()
        cache = prefill(model, press, ids)
        kept = [slots_of(cache.layers[l].keys[0, h], keys[h]) for l, (_, keys) in enumerate(seen) for h in range(len(keys))]
        yield case("sliding_window", {}, len(kept[0]), "uniform", {"keep": [bits(x) for x in kept], "near": ["0"] * len(kept)}, prefix=4)


def pyramid_cases(model, ids):
    for window, beta in [(16, 4), (4, 16), (64, 20)]:  # with the last one kvpress falls back to equal budgets
        press = kvpress.PyramidKVPress(window_size=window, beta=beta)
        seen = recorded(press)
        for press.compression_ratio in [0.25, 0.5, 0.75]:
            seen.clear()
            cache = prefill(model, press, ids)
            scores = [row for layer, _ in seen for row in layer.tolist()]
            kept = [slots_of(cache.layers[l].keys[0, h], keys[h]) for l, (_, keys) in enumerate(seen) for h in range(len(keys))]
            yield case("snapkv", {"window": str(window), "kernel": "5", "pool": "avg"}, round(len(ids) * (1 - press.compression_ratio)),
                       "pyramid", rows_of(scores, kept, 3e-4, False), {"compat": "kvpress", "beta": str(beta)})


def pooled(scores, kept, rows, tolerance):
    """`keep` and `near` where the `rows` heads of a pool share a budget: the cut is the pool's."""
    near = []
    for begin in range(0, len(scores), rows):
        flat = [x for row in scores[begin:begin + rows] for x in row]
        length = len(scores[begin])
        together = near_slots(flat, [i * length + t for i, slots in enumerate(kept[begin:begin + rows]) for t in slots], tolerance)
        near += [[t - i * length for t in together if t // length == i] for i in range(rows)]
    return {"keep": [bits(x) for x in kept], "near": [bits(x) for x in near]}


def adakv_cases(model, ids):
    snapkv = {"window": "16", "kernel": "5", "pool": "avg"}
    for plugin, params, scorer, floor in [
            ("snapkv", snapkv, kvpress.SnapKVPress(window_size=16), 0.2), ("snapkv", snapkv, kvpress.SnapKVPress(window_size=16), 0.5),
            ("expected_attention", {"epsilon": "0.01"}, kvpress.ExpectedAttentionPress(epsilon=0.01), 0.2),
            ("keydiff", {"sinks": "0", "blockwise": "false"}, kvpress.KeyDiffPress(), 0.2), ("knorm", {}, kvpress.KnormPress(), 0.2)]:
        press = kvpress.AdaKVPress(scorer, alpha_safeguard=floor)
        seen = recorded(scorer)
        heads = model.config.num_key_value_heads
        for press.compression_ratio in RATIOS:
            seen.clear()
            prefill(model, press, ids)
            scores = [row for layer, _ in seen for row in layer.tolist()]
            budget = kvpress.utils.compute_n_kept(len(ids), press.compression_ratio)
            safe = max(1, int(budget * floor))
            for row in scores:  # the safeguard's slots stay whatever the others score
                for t in sorted(range(len(row)), key=lambda t: -row[t])[:safe]:
                    row[t] += 1000
            yield case(plugin, params, budget, "adaptive", pooled(scores, unmasked(model, len(ids)), heads, 3e-4),
                       {"compat": "kvpress", "floor": str(floor)})


def kvzip_cases(model, ids):
    for layerwise, chunk, ratio in [(False, 2048, 0.5), (False, 2048, 0.75), (False, 128, 0.25), (False, 128, 0.75), (True, 128, 0.5)]:
        press = kvpress.KVzipPress(ratio, layerwise=layerwise, chunk_size=chunk)
        scores = []
        post = press.compress_post

        def keep_scores(model):
            post(model)
            scores.extend(row for layer in press.score_val[:, 0].tolist() for row in layer)

        press.compress_post = keep_scores
        prefill(model, press, ids)
        rows = model.config.num_key_value_heads * (1 if layerwise else model.config.num_hidden_layers)
        yield case("kvzip", {"compat": "kvpress", "chunk": str(chunk)}, round(len(ids) * (1 - ratio)), "adaptive",
                   pooled(scores, unmasked(model, len(ids)), rows, 3e-4), {"scope": "layer" if layerwise else "global", "floor": "0"})


def main():
    scenes = [{"name": s.name, "seed": s.seed, "heads": s.heads, "kv_heads": s.kv_heads, "head_dim": s.dim, "length": s.length,
               "cases": list(scene_cases(s))} for s in SCENES]
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    text = (FOLDER / "heldout.txt").read_text()
    ids = [tokenizer.bos_token_id] + tokenizer.encode(text, add_special_tokens=False)[:TOKENS - 1]
    model, eager = load("sdpa"), load("eager")
    cases = [*scored_cases(model, eager, ids), *streaming_cases(model, ids), *pyramid_cases(model, ids), *adakv_cases(model, ids),
             *kvzip_cases(model, ids)]
    out = {"kvpress": "0.5.5", "scenes": scenes,
           "model": {"tokens": ids, "layers": model.config.num_hidden_layers, "kv_heads": model.config.num_key_value_heads, "cases": cases}}
    text = json.dumps(out, separators=(",", ":")).replace('{"plugin"', '\n{"plugin"').replace(':\n{"plugin"', ':{"plugin"')
    (HERE / "kvpress.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
