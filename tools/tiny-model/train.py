"""Train the tiny Llama that ships with the project; save it as a Hugging Face folder.

    python3 train.py --stories tales.txt --out tiny --minutes 60 [--device cuda]

The text is cut into stories at lines that contain <|endoftext|>. If there are none, it is cut
into runs of paragraphs. The result is config.json, tokenizer.json, tokenizer_config.json,
model.safetensors (bfloat16) and training.json. Needs numpy and PyTorch 1.13 or later.
"""
import argparse
import itertools
import json
import math
import multiprocessing
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F

import corpus
import tokenizer as bpe


class Config:
    vocab_size, hidden_size, intermediate_size = 4096, 256, 768
    num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim = 6, 4, 2, 64
    rms_norm_eps, rope_theta, max_position_embeddings = 1e-5, 10000.0, 2048


class Linear(torch.nn.Linear):
    """A bias-free linear map whose float32 weight is cast to the dtype of its input."""
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class Block(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q = Linear(c.hidden_size, c.num_attention_heads * c.head_dim)
        self.k = Linear(c.hidden_size, c.num_key_value_heads * c.head_dim)
        self.v = Linear(c.hidden_size, c.num_key_value_heads * c.head_dim)
        self.o = Linear(c.num_attention_heads * c.head_dim, c.hidden_size)
        self.gate = Linear(c.hidden_size, c.intermediate_size)
        self.up = Linear(c.hidden_size, c.intermediate_size)
        self.down = Linear(c.intermediate_size, c.hidden_size)
        self.norm1 = torch.nn.Parameter(torch.ones(c.hidden_size))
        self.norm2 = torch.nn.Parameter(torch.ones(c.hidden_size))

    def forward(self, x, cos, sin, mask):
        c, (b, t, _) = self.c, x.shape
        h = rms_norm(x, self.norm1, c.rms_norm_eps)
        q = rope(self.q(h).view(b, t, -1, c.head_dim).transpose(1, 2), cos, sin)
        k = rope(self.k(h).view(b, t, -1, c.head_dim).transpose(1, 2), cos, sin)
        v = self.v(h).view(b, t, -1, c.head_dim).transpose(1, 2)
        g = c.num_attention_heads // c.num_key_value_heads
        if hasattr(F, "scaled_dot_product_attention"):
            k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # for torch versions below 2
            q = q.reshape(b, c.num_key_value_heads, g * t, c.head_dim)
            s = (q @ k.transpose(2, 3)).view(b, c.num_key_value_heads, g, t, t)
            s = s.div_(math.sqrt(c.head_dim)).add_(mask)
            a = (torch.softmax(s, -1).view(b, c.num_key_value_heads, g * t, t) @ v)
            a = a.view(b, c.num_attention_heads, t, c.head_dim)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, -1))
        h = rms_norm(x, self.norm2, c.rms_norm_eps)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rms_norm(x, w, eps):
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * w.to(x.dtype)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Llama(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed = torch.nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = torch.nn.ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.norm = torch.nn.Parameter(torch.ones(c.hidden_size))
        for n, p in self.named_parameters():
            if p.dim() == 2:
                s = 0.02 if "embed" in n else 1 / math.sqrt(p.shape[1])
                torch.nn.init.normal_(p, 0, s / (math.sqrt(2 * c.num_hidden_layers) if n.endswith(("o.weight", "down.weight")) else 1))

    def forward(self, ids, dtype):
        t, c = ids.shape[1], self.c
        f = torch.arange(t, device=ids.device).float()[:, None] * (
            c.rope_theta ** (-torch.arange(0, c.head_dim, 2, device=ids.device).float() / c.head_dim))[None]
        cos, sin = f.cos().to(dtype), f.sin().to(dtype)
        mask = torch.full((t, t), float("-inf"), device=ids.device).triu(1).to(dtype)
        x = self.embed(ids).to(dtype)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return rms_norm(x, self.norm, c.rms_norm_eps) @ self.embed.weight.to(dtype).T


def orthogonalize(g, steps=5):
    """Newton-Schulz iteration of Muon (Jordan et al., 2024): approximates the nearest semi-
    orthogonal matrix."""
    x = g.bfloat16() / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.T if tall else x).to(g.dtype)


class Muon:
    """Momentum-orthogonalized updates for the 2-D weights of the layers."""
    def __init__(self, params, lr, momentum=0.95, decay=0.01):
        self.params, self.lr, self.momentum, self.decay = list(params), lr, momentum, decay
        self.buf = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self, scale):
        for p, m in zip(self.params, self.buf):
            m.mul_(self.momentum).add_(p.grad)
            u = orthogonalize(p.grad.add(m, alpha=self.momentum))
            p.mul_(1 - self.lr * scale * self.decay)
            p.add_(u, alpha=-self.lr * scale * max(1, p.shape[0] / p.shape[1]) ** 0.5)


NAMES = {"embed.weight": "model.embed_tokens.weight", "norm": "model.norm.weight"}
INNER = {"q.weight": "self_attn.q_proj.weight", "k.weight": "self_attn.k_proj.weight",
         "v.weight": "self_attn.v_proj.weight", "o.weight": "self_attn.o_proj.weight",
         "gate.weight": "mlp.gate_proj.weight", "up.weight": "mlp.up_proj.weight",
         "down.weight": "mlp.down_proj.weight", "norm1": "input_layernorm.weight",
         "norm2": "post_attention_layernorm.weight"}


def hf_name(name):
    """The name that Hugging Face gives to a parameter of this model."""
    if not name.startswith("layers."):
        return NAMES[name]
    i, rest = name.split(".", 2)[1:]
    return f"model.layers.{i}.{INNER[rest]}"


def load(model, folder):
    """Copy the bfloat16 weights of a folder that save() wrote into the model."""
    raw = open(f"{folder}/model.safetensors", "rb").read()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + n])
    with torch.no_grad():
        for name, p in model.named_parameters():
            entry = header[hf_name(name)]
            a, b = entry["data_offsets"]
            p.copy_(torch.frombuffer(bytearray(raw[8 + n + a:8 + n + b]), dtype=torch.bfloat16).view(entry["shape"]).float())


def save(model, tok, out, log):
    c = model.c
    os.makedirs(out, exist_ok=True)
    tok.save(f"{out}/tokenizer.json")
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for n, p in sorted(model.state_dict().items()):
        name = hf_name(n)
        raw = p.detach().cpu().bfloat16().contiguous().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(p.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(f"{out}/model.safetensors", "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + b"".join(blobs))
    fields = {k: getattr(c, k) for k in dir(c) if not k.startswith("_")}
    json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
               "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True, "rope_scaling": None,
               "bos_token_id": tok.bos, "eos_token_id": tok.eos, "torch_dtype": "bfloat16", **fields},
              open(f"{out}/config.json", "w"), indent=2)
    json.dump({"bos_token": bpe.SPECIAL[0], "eos_token": bpe.SPECIAL[1], "model_max_length": c.max_position_embeddings,
               "tokenizer_class": "PreTrainedTokenizerFast"}, open(f"{out}/tokenizer_config.json", "w"), indent=2)
    json.dump(log, open(f"{out}/training.json", "w"), indent=1)


def batches(stream, tok, tokens, length):
    """Pack documents into rows of length + 1 token ids, tokens / length rows at a time: int64
    arrays [rows, length + 1]."""
    rows, want, buf = [], tokens // length, []
    while True:
        while len(buf) < length + 1:
            buf = buf + [tok.bos] + tok.encode(next(stream)) + [tok.eos]
        rows.append(buf[:length + 1])
        # A long remainder of a document is dropped, because its facts would be missing.
        buf = buf[length:] if len(buf) - length < length // 2 else []
        if len(rows) == want:
            yield np.array(rows, dtype=np.int64)
            rows = []


def _work(queue, stories, tok, seed, a, length):
    stream = corpus.documents(stories, seed, recall_share=a.recall, max_chars=int(length * 3.2), kinds=a.kinds.split(","))
    for rows in batches(stream, tok, a.batch_tokens, length):
        queue.put(rows)


def feed(stories, tok, a, length):
    """Batches on the device, made by `a.workers` processes (0: in this one). Returns (iterator,
    stop)."""
    if not a.workers:
        stream = corpus.documents(stories, 100 + length, recall_share=a.recall, max_chars=int(length * 3.2), kinds=a.kinds.split(","))
        source, stop = batches(stream, tok, a.batch_tokens, length), lambda: None
    else:
        queue = multiprocessing.Queue(maxsize=4 * a.workers)
        team = [multiprocessing.Process(target=_work, args=(queue, stories, tok, 1000 * length + i, a, length), daemon=True)
                for i in range(a.workers)]
        for member in team:
            member.start()
        source, stop = (queue.get() for _ in itertools.count()), lambda: [member.terminate() for member in team]

    def pairs():
        for rows in source:
            t = torch.from_numpy(rows).to(a.device, non_blocking=True)
            yield t[:, :-1], t[:, 1:]
    return pairs(), stop


def recall_accuracy(model, tok, stories, device, dtype, n=40, chars=1500):
    """Share of pass-keys whose five digits are all the greedy choice (teacher-forced)."""
    rng = random.Random(7)
    text = lambda k: " ".join(rng.choice(stories).replace("\n", " ") for _ in range(12))[:k]
    hits = 0
    with torch.no_grad():
        for _ in range(n):
            doc = corpus.passkey(rng, text, chars)
            ids = [tok.bos] + tok.encode(doc)
            logits = model(torch.tensor([ids], device=device), dtype)[0].float()
            best = logits.argmax(-1).tolist()
            tail = len(tok.encode(".\n"))
            end = len(ids) - tail
            hits += all(best[end - 6 + j] == ids[end - 5 + j] for j in range(5))
    return hits / n


def echo_loss(model, tok, device, dtype, n=8):
    """Mean loss (nats per token) of the second occurrence in echo documents: near 0 once copying
    heads have formed."""
    rng, total = random.Random(11), 0.0
    with torch.no_grad():
        for _ in range(n):
            doc = corpus.echo(rng, lambda k: "", 0)
            first = doc[:doc.index("\n") + 1]
            ids, start = [tok.bos] + tok.encode(first + first), 1 + len(tok.encode(first)) + 5
            logits = model(torch.tensor([ids], device=device), dtype)[0].float()
            total += F.cross_entropy(logits[start - 1:-1], torch.tensor(ids[start:], device=device)).item()
    return total / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stories", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--batch-tokens", type=int, default=8192)
    p.add_argument("--lengths", default="256:0.3,512:0.4,1024:0.2,2048:0.1",
                   help="row length : share of the time spent at it, in order")
    p.add_argument("--optimizer", choices=("adamw", "muon"), default="adamw",
                   help="for the layers' matrices; muon wants batches of 100,000 tokens and more, so a GPU")
    p.add_argument("--lr", type=float, default=0.02, help="of muon")
    p.add_argument("--adam-lr", type=float, default=0.002)
    p.add_argument("--workers", type=int, default=0, help="processes that make batches; a GPU wants a dozen")
    p.add_argument("--recall", type=float, default=0.4, help="share of recall documents")
    p.add_argument("--kinds", default="passkey,facts,numbers,echo,echo", help="kinds of recall documents, repeated for weight")
    p.add_argument("--init", help="go on from this folder's weights and tokenizer")
    p.add_argument("--tokenizer", help="reuse this tokenizer.json")
    for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"):
        p.add_argument("--" + k.replace("_", "-"), type=int)
    a = p.parse_args()
    for k, v in vars(a).items():
        if v is not None and hasattr(Config, k):
            setattr(Config, k, v)
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    text = open(a.stories, encoding="utf-8", errors="ignore").read()
    stories = corpus.split_stories(text)
    if len(stories) < 400:
        raise SystemExit(f"{a.stories}: {len(stories)} stories; 400 are the least: the first 200 are held out")
    held, stories = stories[:200], stories[200:]
    if a.tokenizer or a.init:
        tok = bpe.Tokenizer.load(a.tokenizer or f"{a.init}/tokenizer.json")
    else:
        gen = corpus.documents(stories, 3)
        tok = bpe.Tokenizer(bpe.train("".join(next(gen) for _ in range(4000)), Config.vocab_size))
    c, dtype = Config(), torch.bfloat16
    model = Llama(c).to(a.device)
    if a.init:
        load(model, a.init)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(stories)} stories", flush=True)
    matrices = [p for n, p in model.named_parameters() if n.startswith("layers") and p.dim() == 2]
    others = [p for n, p in model.named_parameters() if not (n.startswith("layers") and p.dim() == 2)]
    muon = Muon(matrices if a.optimizer == "muon" else [], a.lr)
    groups = [{"params": others, "weight_decay": 0.0}]
    if a.optimizer == "adamw":
        groups.append({"params": matrices, "weight_decay": 0.05})
    adam = torch.optim.AdamW(groups, lr=a.adam_lr, betas=(0.9, 0.98))
    plan = [(int(x.split(":")[0]), float(x.split(":")[1])) for x in a.lengths.split(",")]
    log, began, step, seen = [], time.time(), 0, 0
    held_ids = [[tok.bos] + tok.encode(s + "\n") for s in held[:64]]

    def held_loss():
        total = n = 0
        with torch.no_grad():
            for ids in held_ids:
                t = torch.tensor([ids[:512]], device=a.device)
                lg = model(t[:, :-1], dtype).float()
                total += F.cross_entropy(lg[0], t[0, 1:], reduction="sum").item()
                n += t.shape[1] - 1
        return total / n

    spent = 0.0
    for length, share in plan:
        until = spent + share
        data, stop = feed(stories, tok, a, length)
        while True:
            done = (time.time() - began) / (60 * a.minutes)
            if done >= min(until, 1):
                break
            scale = min(1, (step + 1) / 50) * (1 if done < 0.35 else max(0.02, (1 - done) / 0.65))
            x, y = next(data)
            logits = model(x, dtype)
            loss = F.cross_entropy(logits.view(-1, c.vocab_size).float(), y.reshape(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for g in adam.param_groups:
                g["lr"] = a.adam_lr * scale
            adam.step()
            muon.step(scale)
            for q in model.parameters():
                q.grad = None
            step += 1
            seen += x.numel()
            if step % 50 == 0:
                row = {"step": step, "tokens": seen, "length": length, "loss": round(loss.item(), 4),
                       "minutes": round((time.time() - began) / 60, 2)}
                if step % 100 == 0:
                    row["echo"] = round(echo_loss(model, tok, a.device, dtype), 3)
                if step % 300 == 0:
                    row["held_loss"] = round(held_loss(), 4)
                    row["passkey"] = recall_accuracy(model, tok, held, a.device, dtype, chars=min(1500, int(length * 2.5)))
                    save(model, tok, a.out, log)
                log.append(row)
                print(json.dumps(row), flush=True)
        stop()
        spent = until
    log.append({"step": step, "tokens": seen, "held_loss": round(held_loss(), 4),
                "passkey_1500_chars": recall_accuracy(model, tok, held, a.device, dtype),
                "passkey_4500_chars": recall_accuracy(model, tok, held, a.device, dtype, chars=4500)})
    print(json.dumps(log[-1]), flush=True)
    save(model, tok, a.out, log)


if __name__ == "__main__":
    main()
