"""Makes moe_logits.json: the logits of Hugging Face transformers for a miniature of each mixture of experts.

    /path/to/python tests/golden/make_moe_golden.py # torch 2.9, transformers 5.2; takes a minute

The form of the file and of the weights is that of arch_logits.json (see make_arch_golden.py). The matrices of experts are
stored one by one, with the names that the authors of the models use. Each case has a prompt and 100 greedy tokens. Every
token is computed without a cache, with eager attention in float32, and compared with a float64 run of the same model. The
seeds are chosen so that no choice is close: in each layer and for each token, the logits of the last chosen expert and of
the first other expert differ by at least LEAST_MARGIN, and the two best logits of a greedy token by at least LEAST_GAP.
"""
import math
import pathlib

import golden_common as common
import make_arch_golden as arch
import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
STEPS, PROMPT = 100, 40
POSITIONS = (0, 19, 38, 39, 40, 99, 138)
STRIDE, TOP = 5, 8
LEAST_MARGIN, LEAST_GAP = 5e-4, 2e-3

BASE = {k: v for k, v in arch.BASE.items() if k != "torch_dtype"} | {
    "max_position_embeddings": 256, "intermediate_size": 64, "attention_dropout": 0.0}
CASES = {
    "qwen3moe": BASE | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 32,
                        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
                        "use_sliding_window": False, "sliding_window": None, "decoder_sparse_step": 1,
                        "mlp_only_layers": []},
    "qwen3moe_all": BASE | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 16,
                            "num_experts": 3, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
                            "norm_topk_prob": False, "tie_word_embeddings": True},
    "mixtral": BASE | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
                       "num_experts_per_tok": 2, "intermediate_size": 64, "sliding_window": None, "rope_theta": 1e6},
    "olmoe": BASE | {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "num_experts": 6,
                     "num_experts_per_tok": 3, "intermediate_size": 32, "norm_topk_prob": False},
    "qwen2moe": BASE | {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 5,
                        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64,
                        "norm_topk_prob": False, "qkv_bias": True, "use_sliding_window": False, "sliding_window": 32,
                        "max_window_layers": 1},
}


def experts_of(config):
    """Returns the names and sizes of the feed-forward: router, prefix of the experts, gate, up, down, count, size."""
    count = config.get("num_experts") or config["num_local_experts"]
    if config["model_type"] == "mixtral":
        return "block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2", count, config["intermediate_size"]
    size = config.get("moe_intermediate_size", config["intermediate_size"])
    return "mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj", count, size


def tensors(config):
    """Returns [name, shape, center, scale] of each tensor."""
    hidden, dim, m = config["hidden_size"], arch.head_dim(config), config["model_type"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    router, experts, gate, up, down, count, size = experts_of(config)
    out = []

    def matrix(name, rows, columns, gain=1.0, bias=False):
        out.append([name + ".weight", [rows, columns], 0.0, float(np.float32(gain * math.sqrt(3 / columns)))])
        if bias:
            out.append([name + ".bias", [rows], 0.0, 0.5])

    def norm(name, n):
        out.append([name + ".weight", [n], 1.0, 0.375])

    matrix("model.embed_tokens", config["vocab_size"], hidden, 2.0)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        norm(p + "input_layernorm", hidden)
        for name, rows, gain in (("q", q, 1.6), ("k", kv, 1.6), ("v", kv, 1.0)):
            matrix(p + f"self_attn.{name}_proj", rows, hidden, gain, m == "qwen2_moe")
        if m == "qwen3_moe":
            norm(p + "self_attn.q_norm", dim)
            norm(p + "self_attn.k_norm", dim)
        if m == "olmoe":
            norm(p + "self_attn.q_norm", q)
            norm(p + "self_attn.k_norm", kv)
        matrix(p + "self_attn.o_proj", hidden, q)
        norm(p + "post_attention_layernorm", hidden)
        matrix(p + router, count, hidden, 1.5)
        for e in range(count):
            matrix(p + f"{experts}.{e}.{gate}", size, hidden, 1.5)
            matrix(p + f"{experts}.{e}.{up}", size, hidden, 1.5)
            matrix(p + f"{experts}.{e}.{down}", hidden, size, 1.5)
        if m == "qwen2_moe":
            shared = config["shared_expert_intermediate_size"]
            matrix(p + "mlp.shared_expert.gate_proj", shared, hidden)
            matrix(p + "mlp.shared_expert.up_proj", shared, hidden)
            matrix(p + "mlp.shared_expert.down_proj", hidden, shared)
            matrix(p + "mlp.shared_expert_gate", 1, hidden, 1.5)
    norm("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        matrix("lm_head", config["vocab_size"], hidden, 2.0)
    return out


def state(config, weights):
    """Returns the tensors with the names of transformers 5: gate and up of all experts are one tensor."""
    router, experts, gate, up, down, count, _ = experts_of(config)
    out = {k: torch.tensor(v) for k, v in weights.items()
           if f".{experts}." not in k and not k.endswith(router + ".weight")}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        of = lambda part: np.stack([weights[f"{p}{experts}.{e}.{part}.weight"] for e in range(count)])
        out[p + "mlp.experts.gate_up_proj"] = torch.tensor(np.concatenate((of(gate), of(up)), 1))
        out[p + "mlp.experts.down_proj"] = torch.tensor(of(down))
        out[p + "mlp.gate.weight"] = torch.tensor(weights[f"{p}{router}.weight"])
    return out


def make_model(config, weights, dtype):
    cls = getattr(transformers, config["architectures"][0])
    settings = cls.config_class.from_dict(config)
    settings._attn_implementation = "eager"
    settings._experts_implementation = "eager"
    model = cls(settings).to(dtype).eval()
    missing, unexpected = model.load_state_dict(state(config, weights), strict=False)
    assert not unexpected and set(missing) <= ({"lm_head.weight"} if config["tie_word_embeddings"] else set()), missing
    model.tie_weights()
    return model


def run(model, ids):
    """Returns the logits, and the smallest margin of a router over all layers and tokens."""
    margins, hooks = [], []
    top = model.config.num_experts_per_tok

    def look(module, args, _):
        logits = torch.nn.functional.linear(args[0].reshape(-1, module.weight.shape[1]), module.weight)
        best = logits.sort(-1, descending=True).values
        if best.shape[1] > top:
            margins.append(float((best[:, top - 1] - best[:, top]).min()))

    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            hooks.append(module.register_forward_hook(look))
    with torch.inference_mode():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    for hook in hooks:
        hook.remove()
    return logits, min(margins, default=math.inf)


def attempt(name, config, weights, seed):
    """Returns ids, logits of all of them but the last, and the smallest gaps, for one random prompt."""
    model = make_model(config, weights, torch.float32)
    ids = np.random.default_rng(seed).integers(3, config["vocab_size"], PROMPT).tolist()
    for _ in range(STEPS):
        logits, margin = run(model, ids)
        gap = float(common.gaps(logits)[-1])
        if margin < LEAST_MARGIN or gap < LEAST_GAP:
            return None
        ids.append(int(logits[-1].argmax()))
    return ids, run(model, ids[:-1])[0], margin


def case(name, config):
    entries = tensors(config)
    weights = {e[0]: arch.values(*e) for e in entries}
    for seed in range(1, 2000):
        found = attempt(name, config, weights, seed)
        if found:
            break
    else:
        raise SystemExit(f"{name}: each prompt has a close choice")
    ids, logits, margin = found
    exact, _ = run(make_model(config, weights, torch.float64), ids[:-1])
    worst = float(np.abs(exact - logits).max())
    print(f"{name}: seed {seed}, float64 error {worst:.2e}, least margin {margin:.5f}, logits {np.abs(logits).max():.2f}",
          flush=True)
    assert worst < 1e-4
    tokens = ids[PROMPT:]
    assert len(set(tokens)) > 10, "the greedy tokens repeat"
    return {
        "name": name, "config": config, "tensors": entries, "ids": ids[:PROMPT], "greedy": tokens,
        "argmax": [int(i) for i in logits.argmax(-1)], "float64_error": common.number(worst),
        "logits": [common.sample(logits, p, STRIDE, TOP) for p in POSITIONS],
    }


def main():
    head = {"made_by": "tests/golden/make_moe_golden.py", "torch": torch.__version__,
            "transformers": transformers.__version__, "weights": "float32", "attention": "eager"}
    common.write_json(HERE / "moe_logits.json", head, [case(name, config) for name, config in CASES.items()])


if __name__ == "__main__":
    main()
