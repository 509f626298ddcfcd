#!/usr/bin/env python3
"""Write a model with random weights as a Hugging Face folder: real shapes for benchmarks and tests, no download.

    tools/make_random_model.py OUT                                     a mini Llama, a fraction of a MiB
    tools/make_random_model.py OUT --preset tinyllama-1.1b             TinyLlama's shape, 2.2 GB in f16
    tools/make_random_model.py OUT --preset llama-3.2-1b --dtype bf16 --shard-mib 1024
    tools/make_random_model.py OUT --hidden 512 --layers 4 --heads 8   any shape; a preset's numbers can be changed too
    tools/make_random_model.py OUT --arch gemma2 --window 64           another architecture than Llama: see --help
    tools/make_random_model.py OUT --preset qwen2.5-0.5b               its shape and architecture
    tools/make_random_model.py OUT --preset qwen3-30b-a3b --layers 2   two layers of a mixture of experts

The text that a random model generates has no meaning, but its speed and memory use are those of a real model. The values
are those at the start of a training, so that no activation overflows: weights are normal with standard deviation 0.02,
norms are 1 (0 in Gemma models, which add the 1 themselves), and biases are 0.
The same options and seed give the same files on every machine: each tensor has its own random numbers, which
depend on the seed and on the tensor's name. Tensors are written in pieces, so memory use stays under 100 MB.

Without --tokenizer-from, the folder has no tokenizer; benchmarks do not need one. The vocabulary of the tokenizer must
not be larger than the vocabulary of the model.

Needs Python 3.9 and numpy.
"""
import argparse
import json
import os
import shutil
import sys
import zlib

try:
    import numpy as np
except ImportError:
    sys.exit("make_random_model.py: needs numpy; install python3-numpy")

MINI = dict(hidden=64, intermediate=192, layers=2, heads=4, kv_heads=2, head_dim=0, vocab=256, context=512,
            rope_theta=10000.0, llama3_factor=0.0, original_context=8192, eps=1e-5, tied=False, bos=1, eos=2, arch="llama",
            window=0, experts=8, experts_used=2, expert_size=64)
PRESETS = {
    "mini": MINI,
    "tinyllama-1.1b": dict(MINI, hidden=2048, intermediate=5632, layers=22, heads=32, kv_heads=4, vocab=32000,
                           context=2048),
    "llama-3.2-1b": dict(MINI, hidden=2048, intermediate=8192, layers=16, heads=32, kv_heads=8, vocab=128256,
                         context=131072, rope_theta=500000.0, llama3_factor=32.0, tied=True, bos=128000, eos=128001),
    "qwen2.5-0.5b": dict(MINI, arch="qwen2", hidden=896, intermediate=4864, layers=24, heads=14, kv_heads=2, vocab=151936,
                         context=32768, rope_theta=1e6, eps=1e-6, tied=True, bos=151643, eos=151645),
    "qwen3-0.6b": dict(MINI, arch="qwen3", hidden=1024, intermediate=3072, layers=28, heads=16, kv_heads=8, head_dim=128,
                       vocab=151936, context=40960, rope_theta=1e6, eps=1e-6, tied=True, bos=151643, eos=151645),
    "gemma-3-1b": dict(MINI, arch="gemma3", hidden=1152, intermediate=6912, layers=26, heads=4, kv_heads=1, head_dim=256,
                       vocab=262144, context=32768, rope_theta=1e6, eps=1e-6, tied=True, bos=2, eos=1, window=512),
    "qwen3-30b-a3b": dict(MINI, arch="qwen3_moe", hidden=2048, intermediate=6144, layers=48, heads=32, kv_heads=4,
                          head_dim=128, vocab=151936, context=40960, rope_theta=1e6, eps=1e-6, bos=151643, eos=151645,
                          experts=128, experts_used=8, expert_size=768),
}
# Value of --arch -> (class, model_type).
ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"), "mistral": ("MistralForCausalLM", "mistral"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"), "qwen3": ("Qwen3ForCausalLM", "qwen3"), "gemma": ("GemmaForCausalLM", "gemma"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"), "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "qwen3_moe"),
}
POST_NORMS, HEAD_NORMS, WINDOWED = ("gemma2", "gemma3"), ("qwen3", "gemma3", "qwen3_moe"), ("mistral", "qwen2", "qwen3", "gemma2", "gemma3")
DTYPES = {"f32": ("F32", "float32", 4), "f16": ("F16", "float16", 2), "bf16": ("BF16", "bfloat16", 2)}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
PIECE = 1 << 21  # number of elements that are generated at a time
HEADER_ALIGNMENT = 64


def tensors(m):
    """Yield (name, shape) of each tensor, in the order in which a model reads the tensors."""
    hidden, q, kv = m["hidden"], m["heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"]
    yield "model.embed_tokens.weight", (m["vocab"], hidden)
    for i in range(m["layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (hidden,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            yield f"{at}self_attn.{name}_proj.weight", (rows, hidden)
            if m["arch"] == "qwen2":
                yield f"{at}self_attn.{name}_proj.bias", (rows,)
        if m["arch"] in HEAD_NORMS:
            yield at + "self_attn.q_norm.weight", (m["head_dim"],)
            yield at + "self_attn.k_norm.weight", (m["head_dim"],)
        yield at + "self_attn.o_proj.weight", (hidden, q)
        yield at + "post_attention_layernorm.weight", (hidden,)
        if m["arch"] in POST_NORMS:
            yield at + "pre_feedforward_layernorm.weight", (hidden,)
            yield at + "post_feedforward_layernorm.weight", (hidden,)
        if m["arch"] == "qwen3_moe":
            yield at + "mlp.gate.weight", (m["experts"], hidden)
            for e in range(m["experts"]):
                yield f"{at}mlp.experts.{e}.gate_proj.weight", (m["expert_size"], hidden)
                yield f"{at}mlp.experts.{e}.up_proj.weight", (m["expert_size"], hidden)
                yield f"{at}mlp.experts.{e}.down_proj.weight", (hidden, m["expert_size"])
            continue
        yield at + "mlp.gate_proj.weight", (m["intermediate"], hidden)
        yield at + "mlp.up_proj.weight", (m["intermediate"], hidden)
        yield at + "mlp.down_proj.weight", (hidden, m["intermediate"])
    yield "model.norm.weight", (hidden,)
    if not m["tied"]:
        yield "lm_head.weight", (m["vocab"], hidden)


def encode(values, dtype):
    """Return float32 values as little-endian bytes of the dtype."""
    if dtype == "bf16":
        bits = values.view(np.uint32)
        # Rounds to nearest, ties to even. All values are finite.
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)
        return (rounded >> 16).astype("<u2").tobytes()
    return values.astype({"f32": "<f4", "f16": "<f2"}[dtype]).tobytes()


def pieces(name, shape, dtype, seed, std, norm):
    """Yield the bytes of a tensor, PIECE elements at a time."""
    count = int(np.prod(shape))
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    for start in range(0, count, PIECE):
        n = min(PIECE, count - start)
        if name.endswith("norm.weight"):
            values = np.full(n, norm, dtype=np.float32)
        elif name.endswith(".bias"):
            values = np.zeros(n, dtype=np.float32)
        else:
            values = rng.standard_normal(n, dtype=np.float32) * np.float32(std)
        yield encode(values, dtype)


def split(entries, element_bytes, limit):
    """Cut the list of tensors into shards of at most `limit` bytes each (0: one shard; a larger
    tensor gets its own shard)."""
    shards, size = [[]], 0
    for name, shape in entries:
        nbytes = int(np.prod(shape)) * element_bytes
        if limit and shards[-1] and size + nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += nbytes
    return shards


def write_shard(path, entries, a, progress):
    label, _, element_bytes = DTYPES[a.dtype]
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in entries:
        end = at + int(np.prod(shape)) * element_bytes
        header[name] = {"dtype": label, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % HEADER_ALIGNMENT)
    # Writes a new file and renames it. So a program that has mapped the old file keeps the old
    # content.
    with open(path + ".part", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, shape in entries:
            for piece in pieces(name, shape, a.dtype, a.seed, a.std, a.norm):
                f.write(piece)
                progress(len(piece))
    os.replace(path + ".part", path)
    return at


def config(m, dtype):
    scaling = None
    if m["llama3_factor"]:
        scaling = {"rope_type": "llama3", "factor": m["llama3_factor"], "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": m["original_context"]}
    name, kind = ARCHITECTURES[m["arch"]]
    out = {"architectures": [name], "model_type": kind, "hidden_act": "silu",
           "hidden_size": m["hidden"], "intermediate_size": m["intermediate"], "num_hidden_layers": m["layers"],
           "num_attention_heads": m["heads"], "num_key_value_heads": m["kv_heads"], "head_dim": m["head_dim"],
           "vocab_size": m["vocab"], "max_position_embeddings": m["context"], "rms_norm_eps": m["eps"],
           "rope_theta": m["rope_theta"], "rope_scaling": scaling, "tie_word_embeddings": m["tied"],
           "attention_bias": False, "mlp_bias": False, "bos_token_id": m["bos"], "eos_token_id": m["eos"],
           "torch_dtype": DTYPES[dtype][1]}
    return out | flavour(m)


def flavour(m):
    """Return the keys of an architecture's config.json that Llama's config.json does not have, with
    the published values."""
    out, arch = {}, m["arch"]
    if arch == "mistral":
        out["sliding_window"] = m["window"] or None
    elif arch.startswith("qwen"):
        out |= {"use_sliding_window": m["window"] > 0, "sliding_window": m["window"] or None, "max_window_layers": 0}
    elif arch.startswith("gemma"):
        out["hidden_act"] = out["hidden_activation"] = "gelu_pytorch_tanh"
    if arch in POST_NORMS:
        out |= {"query_pre_attn_scalar": m["head_dim"], "sliding_window": m["window"] or 4096,
                "attn_logit_softcapping": 50.0 if arch == "gemma2" else None,
                "final_logit_softcapping": 30.0 if arch == "gemma2" else None}
    if arch == "qwen3_moe":
        out |= {"num_experts": m["experts"], "num_experts_per_tok": m["experts_used"], "norm_topk_prob": True,
                "moe_intermediate_size": m["expert_size"], "decoder_sparse_step": 1, "mlp_only_layers": []}
    if arch == "gemma3":
        out |= {"sliding_window_pattern": 6, "rope_local_base_freq": 10000.0}
    return out


def adopt_special_tokens(source, m, a):
    """Take the begin and end tokens from the tokenizer's folder, unless an option sets them."""
    path = os.path.join(source, "config.json")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as f:
        found = json.load(f)
    for key in ("bos", "eos"):
        value = found.get(key + "_token_id")
        if getattr(a, key) is None and value is not None:
            m[key] = value


def copy_tokenizer(source, out, m):
    path = os.path.join(source, "tokenizer.json")
    with open(path, encoding="utf-8") as f:
        tok = json.load(f)
    ids = list(tok["model"]["vocab"].values()) + [t["id"] for t in tok.get("added_tokens", [])]
    if max(ids) >= m["vocab"]:
        sys.exit(f"{path}: its largest id is {max(ids)}, the model's vocabulary has {m['vocab']}; pass --vocab {max(ids) + 1}")
    for name in TOKENIZER_FILES:
        if os.path.exists(os.path.join(source, name)):
            shutil.copyfile(os.path.join(source, name), os.path.join(out, name))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", help="folder to write, made if needed; files of an earlier model in it are replaced")
    p.add_argument("--preset", choices=PRESETS, default="mini")
    p.add_argument("--arch", choices=ARCHITECTURES, help="architecture (default: the preset's)")
    p.add_argument("--window", type=int, help="attention window in tokens of the layers that have one in this architecture")
    p.add_argument("--dtype", choices=DTYPES, default="f16")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--std", type=float, default=0.02, help="standard deviation of the weights (default 0.02)")
    p.add_argument("--shard-mib", type=int, default=0, help="cut into files of at most this size (default: one file)")
    p.add_argument("--tokenizer-from", metavar="DIR", help="copy the tokenizer files of this folder")
    p.add_argument("--tied", action=argparse.BooleanOptionalAction, help="output projection = embedding matrix")
    for key in ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab", "context", "original_context",
                "bos", "eos", "experts", "experts_used", "expert_size"):
        p.add_argument("--" + key.replace("_", "-"), type=int)
    p.add_argument("--rope-theta", type=float)
    p.add_argument("--llama3-factor", type=float, help="Llama 3.1's RoPE scaling with this factor (0: none)")
    a = p.parse_args()
    m = dict(PRESETS[a.preset])
    m.update({k: v for k, v in vars(a).items() if k in m and v is not None})
    a.norm = 0 if m["arch"].startswith("gemma") else 1
    if m["arch"].startswith("gemma"):
        m["tied"] = True
    if m["window"] < 0 or (a.window and m["arch"] not in WINDOWED):
        p.error(f"--window: not negative, and only with --arch {', '.join(WINDOWED)}")
    if m["llama3_factor"] and m["arch"] != "llama":
        p.error("--llama3-factor: only with --arch llama")
    if m["heads"] < 1 or m["kv_heads"] < 1 or m["heads"] % m["kv_heads"]:
        p.error(f"--heads {m['heads']} must be a multiple of --kv-heads {m['kv_heads']}")
    if not m["head_dim"]:
        if m["hidden"] % m["heads"]:
            p.error(f"--hidden {m['hidden']} is no multiple of --heads {m['heads']}: pass --head-dim")
        m["head_dim"] = m["hidden"] // m["heads"]
    if not 1 <= m["experts_used"] <= m["experts"] or m["expert_size"] < 1:
        p.error("--experts-used must be from 1 to --experts, --expert-size positive")
    if min(m["hidden"], m["intermediate"], m["layers"], m["vocab"]) < 1 or m["head_dim"] % 2 or a.shard_mib < 0 or a.seed < 0:
        p.error("sizes must be positive, --head-dim even, --shard-mib and --seed not negative")
    if a.tokenizer_from:
        adopt_special_tokens(a.tokenizer_from, m, a)
    last = max([m["bos"]] + (m["eos"] if isinstance(m["eos"], list) else [m["eos"]]))
    if m["vocab"] <= last:
        p.error(f"token {last} begins or ends a text, so --vocab must be more than that, not {m['vocab']}")
    return a, m


def main():
    a, m = arguments()
    os.makedirs(a.out, exist_ok=True)
    if a.tokenizer_from:
        copy_tokenizer(a.tokenizer_from, a.out, m)
    for name in os.listdir(a.out):
        if name.startswith("model") and name.endswith((".safetensors", ".safetensors.index.json")):
            os.remove(os.path.join(a.out, name))
    with open(os.path.join(a.out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config(m, a.dtype), f, indent=2)
        f.write("\n")

    entries = list(tensors(m))
    parameters = sum(int(np.prod(shape)) for _, shape in entries)
    total, done = parameters * DTYPES[a.dtype][2], 0

    def progress(nbytes):
        nonlocal done
        done += nbytes
        if sys.stderr.isatty():
            print(f"\r{done / total:4.0%} of {total / 2**20:.0f} MiB", end="", file=sys.stderr, flush=True)

    shards = split(entries, DTYPES[a.dtype][2], a.shard_mib << 20)
    weight_map = {}
    for i, shard in enumerate(shards):
        name = "model.safetensors" if len(shards) == 1 else f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(os.path.join(a.out, name), shard, a, progress)
        weight_map.update({tensor: name for tensor, _ in shard})
    if len(shards) > 1:
        with open(os.path.join(a.out, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f, indent=1)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"{a.out}: {parameters / 1e6:.1f} million parameters, {total / 2**20:.1f} MiB of {a.dtype} in {len(shards)} file(s)")


if __name__ == "__main__":
    main()
