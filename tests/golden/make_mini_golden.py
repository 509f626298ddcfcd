"""Makes the mini_* folders and mini_logits.json: small random models with shapes that models/tiny does not have.

    pip install torch==2.2.2 transformers==4.46.3 safetensors "numpy<2"
    python tests/golden/make_mini_golden.py # works in any folder; takes seconds

    mini_plain     tied embeddings, no head_dim in config.json (it is hidden / heads), vocabulary 200, no RoPE scaling
    mini_llama3    untied, head_dim 32 with hidden 32 and 4 heads, Llama-3.1 RoPE scaling from a context of 64
    mini_sharded   two shards and an index, bf16 weights, one KV head, rms_norm_eps 1e-6, rope_theta 500000

Each case has 150 random ids and 20 greedy tokens, so that positions exceed twice the original context of 64. Weights are
large, so that attention is concentrated and distant keys matter. The form is that of tiny_greedy.json (see
make_tiny_golden.py). `argmax` is the best id at every position. `inverse_frequencies` are the float32 values of transformers.
`rope` has the frequencies of real configs (Llama 2, 3.1, 3.2), which are too large for these models.
"""
import json
import pathlib

import golden_common as common
import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).resolve().parent
STEPS, PROMPT = 20, 150
POSITIONS = (0, 1, 2, 17, 62, 63, 64, 65, 100, 127, 128, 149, 150, 169)
STRIDE = 4

LLAMA31 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
           "rope_type": "llama3"}
BASE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False,
    "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 512, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
    "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": 256,
}
MINI = {
    "mini_plain": BASE | {"hidden_size": 64, "intermediate_size": 96, "tie_word_embeddings": True, "vocab_size": 200},
    "mini_llama3": BASE | {"hidden_size": 32, "head_dim": 32, "intermediate_size": 64,
                           "rope_scaling": LLAMA31 | {"original_max_position_embeddings": 64}},
    "mini_sharded": BASE | {"hidden_size": 32, "head_dim": 16, "intermediate_size": 96, "num_key_value_heads": 1,
                            "rms_norm_eps": 1e-6, "rope_theta": 500000.0, "torch_dtype": "bfloat16"},
}
ROPE = {
    "llama2": {"head_dim": 128, "rope_theta": 10000.0, "rope_scaling": None},
    "llama3.1-8b": {"head_dim": 128, "rope_theta": 500000.0, "rope_scaling": LLAMA31},
    "llama3.2-1b": {"head_dim": 64, "rope_theta": 500000.0, "rope_scaling": LLAMA31 | {"factor": 32.0}},
}


def random_weights(config, seed):
    """Returns tensor name -> float32 tensor, in the order of the layers."""
    rng = np.random.default_rng(seed)
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim

    def matrix(rows, columns, gain=1.0):
        return torch.tensor(rng.standard_normal((rows, columns)) * gain / np.sqrt(columns), dtype=torch.float32)

    def norm():
        return torch.tensor(1 + 0.2 * rng.standard_normal(hidden), dtype=torch.float32)

    weights = {"model.embed_tokens.weight": matrix(vocab, hidden, 2.0)}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        weights |= {
            p + "input_layernorm.weight": norm(),
            p + "self_attn.q_proj.weight": matrix(q, hidden, 1.6),
            p + "self_attn.k_proj.weight": matrix(kv, hidden, 1.6),
            p + "self_attn.v_proj.weight": matrix(kv, hidden),
            p + "self_attn.o_proj.weight": matrix(hidden, q),
            p + "post_attention_layernorm.weight": norm(),
            p + "mlp.gate_proj.weight": matrix(inner, hidden),
            p + "mlp.up_proj.weight": matrix(inner, hidden),
            p + "mlp.down_proj.weight": matrix(hidden, inner),
        }
    weights["model.norm.weight"] = norm()
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(vocab, hidden, 2.0)
    return weights


def save(folder, config, weights, shards):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    weights = {name: t.to(getattr(torch, config["torch_dtype"])) for name, t in weights.items()}
    if shards == 1:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        return
    names, place = list(weights), {}
    # the cut is inside the layers, so the tensors of a layer are in both shards
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
        place |= {name: file for name in part}
    size = sum(t.numel() * t.element_size() for t in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(place.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def case(name, config, seed):
    folder = HERE / name
    save(folder, config, random_weights(config, seed), 2 if name == "mini_sharded" else 1)
    model = common.load_model(folder)
    ids = np.random.default_rng(seed + 100).integers(3, config["vocab_size"], PROMPT).tolist()
    tokens, logits = common.greedy(model, ids, STEPS)
    error, _ = common.check(folder, ids + tokens, logits)
    gap = common.gaps(logits)
    frequencies = model.model.rotary_emb.inv_freq
    print(f"{name}: float64 error {error:.2e}, least gap {gap.min():.4f}, logits {np.abs(logits).max():.2f}")
    return {
        "name": name,
        "ids": ids,
        "greedy": tokens,
        "argmax": [int(i) for i in logits.argmax(-1)],
        "min_gap": common.number(gap[PROMPT - 1:-1].min()),
        # an entry is [position, gap]
        "close": [[i, common.number(g)] for i, g in enumerate(gap) if g < 0.01],
        "float64_error": common.number(error),
        "inverse_frequencies": [float(f"{x:.9g}") for x in frequencies.tolist()],
        "logits": [common.sample(logits, p, STRIDE) for p in POSITIONS],
    }


def rope(settings):
    """Returns transformers' float32 frequencies for a real config, after comparing them with the float64 formula."""
    config = LlamaConfig(hidden_size=settings["head_dim"] * 8, num_attention_heads=8,
                         max_position_embeddings=131072 if settings["rope_scaling"] else 4096, **settings)
    kind = "llama3" if settings["rope_scaling"] else "default"
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    exact = common.inverse_frequencies(settings | {"num_attention_heads": 8, "hidden_size": settings["head_dim"] * 8})
    assert factor == 1.0 and np.allclose(frequencies.numpy(), exact, rtol=1e-6, atol=0)
    return settings | {"inverse_frequencies": [float(f"{x:.9g}") for x in frequencies.tolist()]}


def main():
    head = {
        "made_by": "tests/golden/make_mini_golden.py",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "weights": "float32",
        "attention": "eager",
        "rope": {name: rope(settings) for name, settings in ROPE.items()},
    }
    cases = [case(name, config, seed) for seed, (name, config) in enumerate(MINI.items(), 1)]
    common.write_json(HERE / "mini_logits.json", head, cases)


if __name__ == "__main__":
    main()
