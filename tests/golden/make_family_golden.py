"""Makes family_logits.json: the logits of Hugging Face transformers for a miniature of each dense family that is newer than arch_logits.json.

    pip install torch==2.9.0 transformers==5.2.0 numpy
    python tests/golden/make_family_golden.py # works in any folder; takes a minute

The file has the form of arch_logits.json, whose script has the weights' generator. The tensors are those of the model in transformers.
Each case has 60 random ids and 100 greedy tokens. Windows have 24 tokens. Every token is computed without a cache, with eager attention
in float32. The seed of a case is the first one for which no greedy choice is closer than 0.01, so that rounding cannot change a token.
`context` is the context for which Keel must choose its RoPE. "float64_error" is the distance from transformers in float64.

OLMo 3 scales RoPE only in the layers without a window, as its authors' code does. transformers 5.2 has one RoPE for all layers, so this
script gives the layers with a window the plain RoPE.
"""
import math
import pathlib

import golden_common as common
import numpy as np
import torch
import transformers
from make_arch_golden import values

HERE = pathlib.Path(__file__).resolve().parent
STEPS, PROMPT, CONTEXT = 100, 60, 256
POSITIONS = (0, 23, 24, 40, 59, 100, 159)
STRIDE, TOP = 9, 4

BASE = {
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 512, "hidden_size": 64,
    "intermediate_size": 80, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": 151, "pad_token_id": 0,
}


def family(name, kind, **keys):
    config = BASE | {"architectures": [name], "model_type": kind} | keys
    return {k: v for k, v in config.items() if k != "rope_theta"} if "rope_parameters" in keys else config


def factors(n, low, high):
    """Returns n numbers that float32 can hold."""
    return [float(np.float32(x)) for x in np.linspace(low, high, n)]


COHERE = {k: v for k, v in BASE.items() if k != "rms_norm_eps"} | {
    "layer_norm_eps": 1e-5, "tie_word_embeddings": True, "head_dim": 16}
CASES = {
    "smollm3": family("SmolLM3ForCausalLM", "smollm3", num_hidden_layers=4, tie_word_embeddings=True,
                      no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4),
    "phi3_long": family("Phi3ForCausalLM", "phi3", head_dim=32, hidden_size=128, partial_rotary_factor=0.75,
                        original_max_position_embeddings=32, sliding_window=None, rope_scaling={
                            "type": "longrope", "short_factor": factors(12, 1, 1.3),
                            "long_factor": factors(12, 1.1, 9)}),
    "phi3_short": family("Phi3ForCausalLM", "phi3", max_position_embeddings=2048, original_max_position_embeddings=512,
                         sliding_window=24, rope_scaling={
                             "type": "longrope", "short_factor": factors(8, 1, 1.5), "long_factor": factors(8, 1.1, 20)}),
    "qwen2_yarn": family("Qwen2ForCausalLM", "qwen2", tie_word_embeddings=True, use_sliding_window=False, rope_theta=1e6,
                         max_position_embeddings=64,
                         rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
    "llama_yarn": family("LlamaForCausalLM", "llama", head_dim=32, rope_scaling={
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 0.5,
        "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}),
    "ministral": family("MinistralForCausalLM", "ministral", head_dim=24, sliding_window=24, num_hidden_layers=3,
                        layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "ministral3": family("Ministral3ForCausalLM", "ministral3", head_dim=24, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 48, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}),
    "olmo2": family("Olmo2ForCausalLM", "olmo2"),
    "olmo3": family("Olmo3ForCausalLM", "olmo3", num_hidden_layers=4, sliding_window=24, rope_theta=5e5, layer_types=[
        "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"], rope_scaling={
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
            "attention_factor": 1.2079441541679836}),
    "granite": family("GraniteForCausalLM", "granite", attention_multiplier=0.3, embedding_multiplier=3.0,
                      residual_multiplier=0.7, logits_scaling=1.5),
    "glm": family("GlmForCausalLM", "glm", head_dim=32, partial_rotary_factor=0.5, attention_bias=True),
    "glm4": family("Glm4ForCausalLM", "glm4", head_dim=32, partial_rotary_factor=0.5, attention_bias=True),
    "cohere": COHERE | {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "logit_scale": 0.8,
                        "tie_word_embeddings": False},
    "cohere2": COHERE | {"architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "logit_scale": 1.25,
                         "num_hidden_layers": 4, "sliding_window": 24, "sliding_window_pattern": 4},
}


def tensors(config, state):
    """Returns [name, shape, center, scale] of each tensor of the model in transformers."""
    out = []
    for name, tensor in state.items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        shape = list(tensor.shape)
        if len(shape) == 1:
            is_norm = "norm" in name
            out.append([name, shape, 1.0 if is_norm else 0.0, 0.375 if is_norm else 0.5])
            continue
        gain = 2.0 if "embed" in name or "lm_head" in name else 1.6 if "q_proj" in name or "k_proj" in name else 1.0
        out.append([name, shape, 0.0, float(np.float32(gain * math.sqrt(3 / shape[1])))])
    return out


def plain_rope_in_windows(model):
    """Gives the layers of OLMo 3 with a window the RoPE without scaling."""
    config = model.config
    dim = config.hidden_size // config.num_attention_heads
    inverse = 1 / config.rope_parameters["rope_theta"] ** (torch.arange(0, dim, 2) / dim)

    def replace(module, args, kwargs):
        cos, _ = kwargs["position_embeddings"]
        angle = torch.arange(cos.shape[1])[:, None] * inverse
        angle = torch.cat((angle, angle), -1)[None]
        kwargs["position_embeddings"] = (angle.cos().to(cos.dtype), angle.sin().to(cos.dtype))
        return args, kwargs

    for layer in model.model.layers:
        if layer.self_attn.attention_type == "sliding_attention":
            layer.self_attn.register_forward_pre_hook(replace, with_kwargs=True)


def make_model(config):
    cls = getattr(transformers, config["architectures"][0])
    settings = cls.config_class.from_dict(dict(config))
    settings._attn_implementation = "eager"
    model = cls(settings).float().eval()
    entries = tensors(config, model.state_dict())
    weights = {e[0]: torch.tensor(values(*e)) for e in entries}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= ({"lm_head.weight"} if config["tie_word_embeddings"] else set()), missing
    model.tie_weights()
    if config["model_type"] == "olmo3":
        plain_rope_in_windows(model)
    return model, entries


def greedy(model, ids):
    with torch.inference_mode():
        for _ in range(STEPS + 1):
            logits = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
            ids = ids + [int(logits[-1].argmax())]
    return logits, ids[:-1]


def case(name, config):
    model, entries = make_model(config)
    for seed in range(1, 100):
        ids = np.random.default_rng(seed).integers(3, config["vocab_size"], PROMPT).tolist()
        logits, ids = greedy(model, ids)
        gap = common.gaps(logits)
        if gap.min() > 0.01:
            break
    with torch.inference_mode():
        wide = model.double()(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    worst = float(np.abs(wide - logits).max())
    print(f"{name}: seed {seed}, float64 error {worst:.2e}, least gap {gap.min():.4f}, logits {np.abs(logits).max():.2f}, "
          f"{len(set(ids[PROMPT:]))} different tokens")
    if worst > 1e-4 or gap.min() <= 0.01:
        raise SystemExit(f"{name}: no seed is good enough")
    return {
        "name": name,
        "config": config,
        "context": CONTEXT,
        "tensors": entries,
        "ids": ids[:PROMPT],
        "greedy": ids[PROMPT:],
        "argmax": [int(i) for i in logits.argmax(-1)],
        "float64_error": common.number(worst),
        "logits": [common.sample(logits, p, STRIDE, TOP) for p in POSITIONS],
    }


def main():
    head = {"made_by": "tests/golden/make_family_golden.py", "torch": torch.__version__,
            "transformers": transformers.__version__, "weights": "float32", "attention": "eager"}
    common.write_json(HERE / "family_logits.json", head, [case(name, config) for name, config in CASES.items()])


if __name__ == "__main__":
    main()
