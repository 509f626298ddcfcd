"""Code that the scripts for golden files share: it runs transformers in float32 and compares the results with a float64
computation in NumPy.

The NumPy computation is written from the Llama paper and config.json alone. So if transformers is used wrongly (a wrong attention
function, a cache error, a dtype of half precision), the difference is larger than rounding can explain.
"""
import json
import math
import pathlib

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import DynamicCache, LlamaForCausalLM

TOP = 32  # number of largest logits that are kept for each recorded position


def load_model(folder):
    """Returns the model in float32 with eager attention: plain softmax(QK^T)V, without a fused kernel that rounds
    differently."""
    model = LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def load_weights(folder):
    """Returns every tensor of a folder, from a single file or from shards, as float64 arrays."""
    weights = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        weights.update({name: t.to(torch.float64).numpy() for name, t in load_file(file).items()})
    return weights


def inverse_frequencies(config):
    """Returns the RoPE frequencies in float64, with the scaling of Llama 3.1 if the config has it."""
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    inv = config["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    scaling = config.get("rope_scaling")
    if not scaling:
        return inv
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    # number of whole turns within the original context
    turns = scaling["original_max_position_embeddings"] * inv / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1) # 0: divide by `factor`; 1: leave unchanged
    return smooth * inv + (1 - smooth) * inv / factor


def numpy_logits(folder, ids):
    """Returns logits [tokens, vocabulary] in float64, computed for the whole sequence at once."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    w = load_weights(folder)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    n = len(ids)
    angle = np.arange(n)[:, None] * inverse_frequencies(config)  # [tokens, dim/2]
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name]

    def rotate(x):  # x: [tokens, heads, dim], rotates the pairs (i, i + dim/2)
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)

    hidden = w["model.embed_tokens.weight"][ids]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = norm(hidden, p + "input_layernorm.weight")
        q = rotate((x @ w[p + "self_attn.q_proj.weight"].T).reshape(n, heads, dim))
        k = rotate((x @ w[p + "self_attn.k_proj.weight"].T).reshape(n, kv_heads, dim))
        v = (x @ w[p + "self_attn.v_proj.weight"].T).reshape(n, kv_heads, dim)
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        s = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim) + mask
        s = np.exp(s - s.max(-1, keepdims=True))
        out = np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(n, heads * dim)
        hidden = hidden + out @ w[p + "self_attn.o_proj.weight"].T
        x = norm(hidden, p + "post_attention_layernorm.weight")
        gate = x @ w[p + "mlp.gate_proj.weight"].T
        up = x @ w[p + "mlp.up_proj.weight"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(hidden, "model.norm.weight") @ head.T


def greedy(model, ids, count):
    """Generates `count` greedy tokens with the KV cache, also after an end token. Returns them and logits [len(ids) +
    count, vocabulary]."""
    tokens, rows, cache, feed = [], [], DynamicCache(), ids
    with torch.inference_mode():
        for _ in range(count + 1):  # the last pass only scores the last token
            out = model(torch.tensor([feed]), past_key_values=cache, use_cache=True)
            rows.append(out.logits[0].float().numpy())
            feed = [int(rows[-1][-1].argmax())]
            tokens += feed
    return tokens[:count], np.concatenate(rows)


def check(folder, ids, logits):
    """Returns the distance between transformers in float32 and the float64 logits. Raises an error if rounding cannot
    explain it."""
    twin = numpy_logits(folder, ids)
    worst = float(np.abs(twin - logits).max())
    if worst > 5e-4:
        raise SystemExit(f"{folder}: transformers and the float64 twin differ by {worst}")
    return worst, twin.argmax(-1)


def number(x):
    """Rounds to seven significant digits, because float32 has no more."""
    return float(f"{float(x):.7g}")


def gaps(logits):
    """Returns the best logit minus the second best, for each row."""
    best = np.partition(logits, -2, axis=-1)[:, -2:]
    return best[:, 1] - best[:, 0]


def sample(logits, position, stride, top=TOP):
    """Returns the record of one position: the `top` best logits, every stride-th logit, and their log-sum-exp."""
    row = logits[position]
    order = np.argsort(-row, kind="stable")[:top]
    wide = row.astype(np.float64)
    return {
        "position": position,
        "top_ids": [int(i) for i in order],
        "top_values": [number(row[i]) for i in order],
        "stride": stride,
        "every": [number(x) for x in row[::stride]],
        "logsumexp": number(wide.max() + np.log(np.exp(wide - wide.max()).sum())),
    }


def write_json(path, head, cases):
    """Writes one line per case, so that a changed case is one changed line."""
    lines = ",\n".join(json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in cases)
    text = json.dumps(head, ensure_ascii=True, indent=1)[:-2] + ',\n "cases": [\n' + lines + "\n]\n}\n"
    json.loads(text)
    path.write_text(text)
