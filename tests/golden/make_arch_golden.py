"""Makes arch_logits.json: the logits of Hugging Face transformers for a miniature of each architecture except plain Llama.

    pip install torch==2.2.2 transformers==4.51.3 "numpy<2"
    python tests/golden/make_arch_golden.py # works in any folder; takes seconds

No weights are stored. Each tensor is [name, shape, center, scale]. Its element i is center + scale * u(name, i) in float32, with u from
SplitMix64 (see `uniform`), so the test generates the same weights. Sizes are unusual where possible: vocabulary 199, heads whose size is
not hidden / heads, feed-forward 80, windows that are not a multiple of a block. Each case has 150 random ids and 12 greedy tokens, which is
more than three windows. Every token is computed without a cache, with eager attention in float32, and compared with a float64
computation in NumPy that is written from the papers and config.json alone. The other members are those of mini_logits.json.
"""
import json
import math
import pathlib

import golden_common as common
import numpy as np
import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

HERE = pathlib.Path(__file__).resolve().parent
STEPS, PROMPT = 12, 150
POSITIONS = (0, 1, 39, 40, 47, 48, 63, 64, 149, 150, 161)
STRIDE = 3

BASE = {
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 512, "hidden_size": 64,
    "intermediate_size": 80, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": 199,
}
GEMMA = {k: v for k, v in BASE.items() if k != "hidden_act"} | {
    "hidden_activation": "gelu_pytorch_tanh", "head_dim": 32, "tie_word_embeddings": True, "rms_norm_eps": 1e-6}
GEMMA2 = GEMMA | {"num_hidden_layers": 3, "query_pre_attn_scalar": 24, "sliding_window": 40}
CASES = {
    "llama_biases": BASE | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": True,
                            "mlp_bias": True},
    "mistral": BASE | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "head_dim": 24, "sliding_window": 48},
    "qwen2": BASE | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True,
                     "use_sliding_window": False, "sliding_window": 32, "max_window_layers": 1, "rope_theta": 1e6},
    "qwen3": BASE | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32, "num_hidden_layers": 3,
                     "use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1, "rope_theta": 1e6},
    "gemma": GEMMA | {"architectures": ["GemmaForCausalLM"], "model_type": "gemma", "num_key_value_heads": 1},
    "gemma2": GEMMA2 | {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "attn_logit_softcapping": 4.0,
                        "final_logit_softcapping": 6.0},
    "gemma3": GEMMA2 | {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window_pattern": 3,
                        "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
                        "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
}
M64 = (1 << 64) - 1


def uniform(name, count):
    """Returns float32 numbers in [-1, 1): the upper 16 bits of SplitMix64, whose state begins at the FNV-1a hash of
    the tensor's name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 & M64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(48)).astype(np.float32) / np.float32(32768) - np.float32(1)


def values(name, shape, center, scale):
    u = uniform(name, int(np.prod(shape)))
    return (np.float32(center) + np.float32(scale) * u).reshape(shape)


def kind(config):
    return config["model_type"].split("_")[0]


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def tensors(config):
    """Returns [name, shape, center, scale] of each tensor, with Hugging Face's names."""
    hidden, inner, dim, m = config["hidden_size"], config["intermediate_size"], head_dim(config), kind(config)
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    out = []

    def matrix(name, rows, columns, gain=1.0, bias=False):
        out.append([name + ".weight", [rows, columns], 0.0, float(np.float32(gain * math.sqrt(3 / columns)))])
        if bias:
            out.append([name + ".bias", [rows], 0.0, 0.5])

    def norm(name, n):
        out.append([name + ".weight", [n], 0.0 if "gemma" in m else 1.0, 0.375])

    qkv_bias, all_bias = m == "qwen2" or config.get("attention_bias", False), config.get("attention_bias", False)
    mlp_bias = config.get("mlp_bias", False)
    matrix("model.embed_tokens", config["vocab_size"], hidden, 2.0)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        norm(p + "input_layernorm", hidden)
        matrix(p + "self_attn.q_proj", q, hidden, 1.6, qkv_bias)
        matrix(p + "self_attn.k_proj", kv, hidden, 1.6, qkv_bias)
        matrix(p + "self_attn.v_proj", kv, hidden, 1.0, qkv_bias)
        if m in ("qwen3", "gemma3"):
            norm(p + "self_attn.q_norm", dim)
            norm(p + "self_attn.k_norm", dim)
        matrix(p + "self_attn.o_proj", hidden, q, 1.0, all_bias)
        norm(p + "post_attention_layernorm", hidden)
        if m in ("gemma2", "gemma3"):
            norm(p + "pre_feedforward_layernorm", hidden)
            norm(p + "post_feedforward_layernorm", hidden)
        matrix(p + "mlp.gate_proj", inner, hidden, 1.0, mlp_bias)
        matrix(p + "mlp.up_proj", inner, hidden, 1.0, mlp_bias)
        matrix(p + "mlp.down_proj", hidden, inner, 1.0, mlp_bias)
    norm("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        matrix("lm_head", config["vocab_size"], hidden, 2.0)
    return out


def windowed_attention(module, query, key, value, mask, dropout=0.0, scaling=None, sliding_window=None, **_):
    """Eager attention with the window of each layer.

    The eager mask of transformers 4.51 uses Qwen's window in all layers and ignores use_sliding_window and max_window_layers. Its other
    attention functions, and later releases, use the window of each layer, as in the training of the models.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    i, j = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])[None]
    hidden = j > i
    if sliding_window:
        hidden = hidden | (i - j >= sliding_window)
    scores = (query @ key.transpose(2, 3) * scaling).masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None


def make_model(config, weights):
    cls = getattr(transformers, config["architectures"][0])
    settings = cls.config_class.from_dict(config)
    settings._attn_implementation = "eager"
    model = cls(settings).float().eval()
    missing, unexpected = model.load_state_dict({k: torch.tensor(v) for k, v in weights.items()}, strict=False)
    assert not unexpected and set(missing) <= ({"lm_head.weight"} if config["tie_word_embeddings"] else set()), missing
    model.tie_weights()
    if kind(config).startswith("qwen"):
        ALL_ATTENTION_FUNCTIONS["windowed"] = windowed_attention
        model.config._attn_implementation = "windowed"
    return model


def twin_logits(config, weights, ids):
    """Returns logits [tokens, vocabulary] in float64."""
    w = {k: v.astype(np.float64) for k, v in weights.items()}
    m, dim, n = kind(config), head_dim(config), len(ids)
    gemma = m.startswith("gemma")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    layers = config["num_hidden_layers"]
    window = config.get("sliding_window")
    slides = {"mistral": lambda i: True, "gemma2": lambda i: i % 2 == 0,
              "gemma3": lambda i: (i + 1) % config["sliding_window_pattern"] != 0,
              "qwen3": lambda i: config["use_sliding_window"] and i >= config["max_window_layers"]}.get(m, lambda i: False)

    def norm(x, name):
        factor = w[name + ".weight"] + (1 if gemma else 0)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * factor

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    def rotate(x, theta, factor):
        angle = np.arange(n)[:, None] * (theta ** (-np.arange(0, dim, 2) / dim) / factor)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)

    def act(x):
        if gemma:
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
        return x / (1 + np.exp(-x))

    x = w["model.embed_tokens.weight"][ids] * (math.sqrt(config["hidden_size"]) if gemma else 1)
    i, j = np.arange(n)[:, None], np.arange(n)[None]
    scale = config.get("query_pre_attn_scalar", dim) ** -0.5
    for layer in range(layers):
        p = f"model.layers.{layer}."
        theta, factor = config["rope_theta"], (config.get("rope_scaling") or {}).get("factor", 1.0)
        if m == "gemma3" and slides(layer):
            theta, factor = config["rope_local_base_freq"], 1.0
        h = norm(x, p + "input_layernorm")
        q = linear(h, p + "self_attn.q_proj").reshape(n, heads, dim)
        k = linear(h, p + "self_attn.k_proj").reshape(n, kv_heads, dim)
        v = linear(h, p + "self_attn.v_proj").reshape(n, kv_heads, dim)
        if p + "self_attn.q_norm.weight" in w:
            q, k = norm(q, p + "self_attn.q_norm"), norm(k, p + "self_attn.k_norm")
        q, k = rotate(q, theta, factor), rotate(k, theta, factor)
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        s = np.einsum("ihd,jhd->hij", q, k) * scale
        if config.get("attn_logit_softcapping"):
            s = config["attn_logit_softcapping"] * np.tanh(s / config["attn_logit_softcapping"])
        s = np.where((j > i) | ((i - j >= window) if slides(layer) else False), -np.inf, s)
        s = np.exp(s - s.max(-1, keepdims=True))
        out = linear(np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(n, -1), p + "self_attn.o_proj")
        post = m in ("gemma2", "gemma3")
        x = x + (norm(out, p + "post_attention_layernorm") if post else out)
        h = norm(x, p + ("pre_feedforward_layernorm" if post else "post_attention_layernorm"))
        out = linear(act(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
        x = x + (norm(out, p + "post_feedforward_layernorm") if post else out)
    logits = norm(x, "model.norm") @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
    if config.get("final_logit_softcapping"):
        logits = config["final_logit_softcapping"] * np.tanh(logits / config["final_logit_softcapping"])
    return logits


def case(name, config, seed):
    entries = tensors(config)
    weights = {e[0]: values(*e) for e in entries}
    model = make_model(config, weights)
    ids = np.random.default_rng(seed).integers(3, config["vocab_size"], PROMPT).tolist()
    with torch.inference_mode():
        for _ in range(STEPS + 1):
            logits = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
            ids.append(int(logits[-1].argmax()))
    ids, tokens = ids[:PROMPT], ids[PROMPT:PROMPT + STEPS]
    worst = float(np.abs(twin_logits(config, weights, ids + tokens) - logits).max())
    gap = common.gaps(logits)
    print(f"{name}: float64 error {worst:.2e}, least gap {gap.min():.4f}, logits {np.abs(logits).max():.2f}")
    if worst > 5e-4:
        raise SystemExit(f"{name}: transformers and the float64 twin differ by {worst}")
    return {
        "name": name,
        "config": config,
        "tensors": entries,
        "ids": ids,
        "greedy": tokens,
        "argmax": [int(i) for i in logits.argmax(-1)],
        "close": [[i, common.number(g)] for i, g in enumerate(gap) if g < 0.01],
        "float64_error": common.number(worst),
        "logits": [common.sample(logits, p, STRIDE, 8) for p in POSITIONS],
    }


def main():
    head = {"made_by": "tests/golden/make_arch_golden.py", "torch": torch.__version__,
            "transformers": transformers.__version__, "weights": "float32", "attention": "eager"}
    cases = [case(name, config, seed) for seed, (name, config) in enumerate(CASES.items(), 1)]
    common.write_json(HERE / "arch_logits.json", head, cases)


if __name__ == "__main__":
    main()
