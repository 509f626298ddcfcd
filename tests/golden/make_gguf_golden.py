"""Makes mini_gguf.gguf, mini_gguf.json and ggml_blocks.json: GGUF as another implementation writes and decodes it.

    pip install gguf==0.19.0 "numpy<2"
    python tests/golden/make_gguf_golden.py # works in any folder; takes a second

    mini_gguf.gguf    a random Llama of one layer, written by the gguf package: every metadata type, tensors of the types that it can
                      write, q and k in the row order of llama.cpp (pairs of neighbours), RoPE factors, biases on q and k
    mini_gguf.json    the expected content: each tensor with its name in a folder, as the gguf package decodes it, with rows in the
                      folder's order: first values, sum, and a sum weighted by place, which a wrong order changes
    ggml_blocks.json  blocks of random bits with finite scales, and their values from gguf.quants (base64 of f32)
"""
import base64
import json
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

HERE = pathlib.Path(__file__).resolve().parent
HIDDEN, INNER, HEADS, KV_HEADS, VOCAB = 64, 96, 4, 2, 48


def neighbours(weights, heads):
    """Changes the row order of each head from (half, pair) to (pair, half), as Llama's converters do for q and k."""
    shape = weights.shape
    return weights.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def mini():
    rng = np.random.default_rng(20)

    def matrix(rows, cols):
        return (rng.standard_normal((rows, cols)) / np.sqrt(cols)).astype(np.float32)

    def vector(n):
        return (1 + rng.standard_normal(n) / 8).astype(np.float32)

    kv = HIDDEN // HEADS * KV_HEADS
    p, b = "model.layers.0.", "blk.0."
    # (name in the folder, name in the GGUF file, values in the order of the folder, type, number of
    # heads whose rows are reordered so that the two elements of a pair are neighbours)
    rows = [
        ("model.embed_tokens.weight", "token_embd.weight", matrix(VOCAB, HIDDEN), T.Q8_0, 0),
        (p + "input_layernorm.weight", b + "attn_norm.weight", vector(HIDDEN), T.F32, 0),
        (p + "self_attn.q_proj.weight", b + "attn_q.weight", matrix(HIDDEN, HIDDEN), T.F16, HEADS),
        (p + "self_attn.k_proj.weight", b + "attn_k.weight", matrix(kv, HIDDEN), T.Q5_1, KV_HEADS),
        (p + "self_attn.v_proj.weight", b + "attn_v.weight", matrix(kv, HIDDEN), T.BF16, 0),
        (p + "self_attn.o_proj.weight", b + "attn_output.weight", matrix(HIDDEN, HIDDEN), T.Q4_0, 0),
        (p + "self_attn.q_proj.bias", b + "attn_q.bias", vector(HIDDEN), T.F32, HEADS),
        (p + "self_attn.k_proj.bias", b + "attn_k.bias", vector(kv), T.F32, KV_HEADS),
        (p + "self_attn.v_proj.bias", b + "attn_v.bias", vector(kv), T.F32, 0),
        (p + "self_attn.o_proj.bias", b + "attn_output.bias", vector(HIDDEN), T.F32, 0),
        (p + "post_attention_layernorm.weight", b + "ffn_norm.weight", vector(HIDDEN), T.F32, 0),
        (p + "mlp.gate_proj.weight", b + "ffn_gate.weight", matrix(INNER, HIDDEN), T.Q4_1, 0),
        (p + "mlp.up_proj.weight", b + "ffn_up.weight", matrix(INNER, HIDDEN), T.Q5_0, 0),
        (p + "mlp.down_proj.weight", b + "ffn_down.weight", matrix(HIDDEN, INNER), T.F32, 0),
        ("model.norm.weight", "output_norm.weight", vector(HIDDEN), T.F32, 0),
        ("lm_head.weight", "output.weight", matrix(VOCAB, HIDDEN), T.F16, 0),
    ]
    out = gguf.GGUFWriter(HERE / "mini_gguf.gguf", "llama")
    out.add_name("mini")
    out.add_context_length(256)
    out.add_embedding_length(HIDDEN)
    out.add_block_count(1)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(HIDDEN // HEADS)
    out.add_rope_freq_base(500000.0)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list([f"t{i}" for i in range(VOCAB - 1)] + ["\u00e9\u4e16"])
    out.add_token_types([1] * VOCAB)
    out.add_token_merges(["t 1", "t 2"])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_uint8("test.u8", 200)
    out.add_int8("test.i8", -100)
    out.add_uint16("test.u16", 60000)
    out.add_int16("test.i16", -30000)
    out.add_uint32("test.u32", 4_000_000_000)
    out.add_int32("test.i32", -2_000_000_000)
    out.add_uint64("test.u64", 2**63)
    out.add_int64("test.i64", -(2**62))
    out.add_float32("test.f32", 0.1)
    out.add_float64("test.f64", 0.1)
    out.add_bool("test.bool", True)
    out.add_array("test.floats", [0.5, -1.25])
    out.add_array("test.bools", [True, False])

    expected = {}
    for folder, stored, values, kind, heads in rows:
        in_file = neighbours(values, heads) if heads else values
        if kind == T.F32:
            out.add_tensor(stored, in_file)
            decoded = values
        else:
            packed = quants.quantize(in_file, kind)
            out.add_tensor(stored, packed, raw_dtype=kind)
            decoded = quants.dequantize(packed, kind)
            if heads:  # the inverse of the permutation of rows
                order = neighbours(np.arange(len(values)), heads)
                back = np.empty_like(decoded)
                back[order] = decoded
                decoded = back
        flat = decoded.astype(np.float64).ravel()
        expected[folder] = {"stored": stored, "type": kind.name, "shape": list(values.shape),
                            "first": flat[:4].tolist(), "sum": flat.sum(),
                            "weighted": float((flat * (np.arange(flat.size) % 1009)).sum())}
    factors = np.linspace(1, 8, HIDDEN // HEADS // 2).astype(np.float32)
    out.add_tensor("rope_freqs.weight", factors)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    (HERE / "mini_gguf.json").write_text(json.dumps({"factors": factors.tolist(), "tensors": expected}, indent=1) + "\n")


def blocks():
    rng = np.random.default_rng(30)
    # The positions of the f16 scales in a block.
    scales = {T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,)}
    cases = []
    for kind, places in scales.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        count = 2 if block == 256 else 8
        data = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for at in places:
            halves = rng.standard_normal(count).astype(np.float16)
            halves[0] = np.float16(6e-8)  # the smallest subnormal number
            data[:, at:at + 2] = halves.view(np.uint8).reshape(count, 2)
        values = quants.dequantize(data, kind).astype(np.float32)
        cases.append({"type": kind.name, "id": int(kind), "values": values.size,
                      "blocks": base64.b64encode(data.tobytes()).decode(),
                      "decoded": base64.b64encode(values.tobytes()).decode()})
    (HERE / "ggml_blocks.json").write_text(json.dumps(cases, indent=1) + "\n")


mini()
blocks()
