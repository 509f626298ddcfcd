"""Makes keepsets.json: the tokens of a text that each policy keeps in each head of models/tiny, by the papers' formulas.

    pip install torch==2.2.2 transformers==4.46.3 tokenizers==0.20.3 safetensors "numpy<2"
    python tests/golden/make_keepsets_golden.py # works in any folder; takes half a minute

Queries, keys and values of all layers come from transformers in float64. The formulas are those of make_policies_golden.py, which tests
the plugins alone; here the core collects the inputs. For each method, layer and KV head, the file has: the kept tokens, as a
hexadecimal number whose bit t is token t; the gap between the worst kept score and the best evicted score, divided by the former; and the
tokens that float32 must keep too (`sure`), whose scores are clearly above the best evicted score and above float32 zeros.
kvzip's repetitions run through the model, piece by piece, with the whole context.
"""
import json
import math
import pathlib

import make_policies_golden as formulas
import tokenizers
import torch
from make_tiny_golden import BOS, FOLDER, LONG_TALE
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, BUDGET = 160, 48
WHOLE = "\n\nRepeat the whole text above, word for word:\n\n"
FROM_WORDS = "\n\nRepeat the text above, word for word, starting with"


class Layer(formulas.Scene):
    """One layer's queries, keys and values before RoPE, from a real model."""

    def __init__(self, q, k, v, theta):
        self.q, self.k, self.v = q, k, v
        self.heads, self.length, self.dim = q.shape
        self.kv_heads, self.interleaved, self.seed = k.shape[0], False, 0
        self.group = self.heads // self.kv_heads
        self.frequencies = theta ** (-torch.arange(0, self.dim, 2) / self.dim)
        at = torch.arange(self.length).double()
        self.qr, self.kr = self.rope(q, at), self.rope(k, at)
        self.scale = 1 / math.sqrt(self.dim)
        hidden = torch.triu(torch.ones(self.length, self.length, dtype=torch.bool), 1)
        logits = self.qr @ self.per_query_head(self.kr).transpose(1, 2) * self.scale
        self.p = torch.softmax(logits.masked_fill(hidden, -math.inf), -1)


def run(model, ids):
    """Returns the layers of a forward pass."""
    seen, hooks = [], []
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj"):
            hooks.append(getattr(layer.self_attn, name).register_forward_hook(lambda m, i, out: seen.append(out[0])))
    with torch.no_grad():
        model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    c = model.config
    split = [x.reshape(len(ids), -1, c.head_dim).permute(1, 0, 2) for x in seen]
    return [Layer(*split[3 * i:3 * i + 3], c.rope_theta) for i in range(c.num_hidden_layers)]


def replayed(model, tokenizer, ids, chunk, lead=8, sinks=4):
    """Returns [layers][kv_heads, tokens]: the largest probability that a query of a repetition gives a slot. A query
    sees sinks, its piece and itself."""
    n = len(ids)
    best = None
    for begin in range(0, n, chunk):
        end = min(n, begin + chunk)
        words = FROM_WORDS if begin else WHOLE
        again = tokenizer.encode(words, add_special_tokens=False).ids + ids[begin - min(begin, lead):end]
        layers = run(model, ids + again)
        best = best or [torch.zeros(s.kv_heads, n) for s in layers]
        for s, out in zip(layers, best):
            slots = list(range(min(sinks, begin))) + list(range(begin, end)) + list(range(n, n + len(again)))
            logits = s.qr[:, n:] @ s.per_query_head(s.kr)[:, slots].transpose(1, 2) * s.scale
            later = torch.triu(torch.ones(len(again), len(again), dtype=torch.bool), 1)
            logits[:, :, len(slots) - len(again):].masked_fill_(later, -math.inf)
            seen = s.by_group(torch.softmax(logits, -1).amax(1)).amax(1)
            for i, slot in enumerate(slots[:len(slots) - len(again)]):
                out[:, slot] = torch.maximum(out[:, slot], seen[:, i])
    return best


def kept(scores, stay, budgets):
    """Returns the mask of the kept tokens per layer and head, and the gap."""
    masks, gaps, sure = [], [], []
    for l, layer in enumerate(scores):
        for h in range(len(budgets[l])):
            row = layer[h if len(layer) > 1 else 0].tolist()
            keep, gap = formulas.keep_set(row, stay, budgets[l][h])
            masks.append(f"{sum(1 << t for t in keep):x}")
            others = [row[t] for t in keep if t not in set(stay)]
            gone = max((row[t] for t in range(len(row)) if t not in set(keep)), default=-math.inf)
            clear = [t for t in keep if t in set(stay) or row[t] > gone + max(1e-3 * abs(gone), 1e-30)]
            sure.append(f"{sum(1 << t for t in clear):x}")
            gaps.append(None if gap is None else float(f"{gap / max(abs(min(others)), 1e-30):.3g}"))
    return {"keep": masks, "gap": gaps, "sure": sure}


def main():
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    ids = [BOS] + tokenizer.encode(LONG_TALE, add_special_tokens=False).ids
    assert len(ids) >= TOKENS
    ids = ids[:TOKENS]
    model = LlamaForCausalLM.from_pretrained(FOLDER, torch_dtype=torch.float64, attn_implementation="eager").eval()
    layers = run(model, ids)
    heads = layers[0].kv_heads
    even = [[BUDGET] * heads for _ in layers]
    cases = []

    def add(name, scores, stay, params, budgets=even, allocator=None):
        cases.append({"plugin": name, "params": params, "allocator": allocator or {"plugin": "uniform", "params": {}}}
                     | kept(scores, stay, budgets))

    for method, params in [
            (formulas.snapkv, {"window": 16, "kernel": 5, "pool": "avg"}), (formulas.snapkv, {"window": 8, "kernel": 7, "pool": "max", "group": "none"}),
            (formulas.h2o, {"recent_share": 0.5}), (formulas.h2o, {"score": "mean", "recent_share": 0.25}), (formulas.tova, {}), (formulas.keydiff, {}),
            (formulas.knorm, {}), (formulas.expected_attention, {"n_future": 64, "epsilon": 0.0}),
            (formulas.expected_attention, {"n_future": 64, "covariance": False, "value_norms": False, "epsilon": 0.0}),
            # without the leverage score, because its sketch is random in the plugin
            (formulas.compactor, {"blend": 0.0, "chunk": 64})]:
        renamed = {("pool_kind" if k == "pool" else k): v for k, v in params.items()}
        scored = [method(s, BUDGET, **renamed) for s in layers]
        add(method.__name__, [x for x, _ in scored], list(scored[0][1]), {k: str(v).lower() for k, v in params.items()})

    window = 16
    snapkv = {"window": str(window), "kernel": "5", "pool": "avg"}
    scored = [formulas.snapkv(s, BUDGET, window=window) for s in layers]
    scores, stay = [x for x, _ in scored], list(scored[0][1])
    flat = formulas.pyramid(len(layers), heads, TOKENS, BUDGET, window, 20)
    add("snapkv", scores, stay, snapkv, [flat[i:i + heads] for i in range(0, len(flat), heads)],
        {"plugin": "pyramid", "params": {}})
    flat = formulas.adaptive([x.tolist() for x in scores], [[set(stay)] * heads] * len(layers), BUDGET, 0.2, "layer", "none")
    add("snapkv", scores, stay, snapkv, [flat[i:i + heads] for i in range(0, len(flat), heads)],
        {"plugin": "adaptive", "params": {}})

    for chunk in (TOKENS, 64):  # in one piece, and in three pieces
        scores, stay = replayed(model, tokenizer, ids, chunk), list(range(4))
        add("kvzip", scores, stay, {"chunk": str(chunk)})
    flat = formulas.adaptive([x.tolist() for x in scores], [[set(stay)] * heads] * len(layers), BUDGET, 0.0, "global", "none")
    add("kvzip", scores, stay, {"chunk": "64"}, [flat[i:i + heads] for i in range(0, len(flat), heads)],
        {"plugin": "adaptive", "params": {"scope": "global", "floor": "0"}})

    out = json.dumps({"tokens": ids, "budget": BUDGET, "layers": len(layers), "kv_heads": heads, "cases": cases}, separators=(",", ":"))
    (HERE / "keepsets.json").write_text(out.replace('{"plugin":"', '\n{"plugin":"').replace('\n{"plugin":"uniform', '{"plugin":"uniform') + "\n")


if __name__ == "__main__":
    main()
