"""Third stage of the tiny model's training: recall over 512 to 2,048 tokens, with more weight for
answers in the loss.

    python3 recall.py --stories tales.txt --init stage2 --out tiny --minutes 50

A batch of the plain mixture has only a few answer tokens among thousands of filler tokens. So the
gradient that teaches recall is too weak. Here, answers have their own loss in addition to the loss
of a sample of the other tokens. Documents are as long as the rows, and no document is cut between a
fact and its question.
"""
import argparse
import json
import random
import re
import time

import numpy as np
import torch
import torch.nn.functional as F

import corpus
import tokenizer as bpe
import train

KINDS = "passkey passkey passkey facts facts facts facts numbers echo".split()
ANSWERS = {"passkey": re.compile(r"What is the pass key\? The pass key is (\d{5}\.)\n$"),
           "facts": re.compile(r"Answer: a ([a-z ]+\.)\n"),
           "numbers": re.compile(r"\? \w+'s number is (\d+\.)\n")}
OTHER_TOKENS = 0.4  # share of the tokens outside of answers that go through the output projection
# weight of the answers' mean loss; the mean loss of the other tokens has weight 1
ANSWER_WEIGHT = 0.7
# Characters per token of filler. This is slightly below the value of the stories, so that most
# documents fit into their row.
CHARS_A_TOKEN = 2.75


class Marker:
    """Token ids of a recall document, with a 1 for each token of an answer."""

    def __init__(self, tok, folder):
        self.tok = tok
        table = json.load(open(f"{folder}/tokenizer.json"))
        # The vocabulary is byte-level, so a token has one character for each byte.
        self.bytes = {i: len(t) for t, i in table["model"]["vocab"].items()}

    def __call__(self, kind, doc):
        ids = self.tok.encode(doc)
        ends = np.cumsum([self.bytes[i] for i in ids])
        starts = ends - np.array([self.bytes[i] for i in ids])
        size = lambda end: len(doc[:end].encode())
        if kind == "echo":  # marks the second occurrence, except its first words
            spans = [(size(doc.index("\n") + 1) + 20, size(len(doc)))]
        else:
            spans = [(size(m.start(1)), size(m.end(1))) for m in ANSWERS[kind].finditer(doc)]
        mark = np.zeros(len(ids), np.float32)
        for start, end in spans:
            mark[(ends > start) & (starts < end)] = 1
        return ids, mark


def filler_of(rng, stories):
    def filler(chars):
        out, n = [], 0
        while n < chars:
            story = stories[rng.randrange(len(stories))].replace("\n", " ")
            out.append(story)
            n += len(story) + 1
        text = " ".join(out)[:max(chars, 1)]
        end = text.rfind(". ")
        return text[:end + 2] if end > 0 else text
    return filler


def batches(rng, stories, mark, tok, a, row):
    """Yields rows of row + 1 token ids and their marks, a.batch_tokens / row rows at a time."""
    filler = filler_of(rng, stories)

    def story():
        ids = tok.encode(stories[rng.randrange(len(stories))] + "\n")
        return ids, np.zeros(len(ids), np.float32)

    def document():
        if rng.random() < a.stories_share:
            return story()
        kind = rng.choice(KINDS)
        return mark(kind, getattr(corpus, kind)(rng, filler, int(rng.random() * row * CHARS_A_TOKEN)))

    rows = []
    while True:
        ids, marks = [], []
        while len(ids) < row + 1:
            more, more_marks = document()
            if len(ids) + len(more) > row + 40 and len(ids) > row * 0.75:
                more, more_marks = story()  # this document would be truncated
            ids += [tok.bos] + more + [tok.eos]
            marks += [0.0] + list(more_marks) + [0.0]
        rows.append((ids[:row + 1], marks[:row + 1]))
        if len(rows) == max(1, a.batch_tokens // row):
            yield torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])
            rows = []


def accuracy(model, mark, tok, held, kind, chars, n):
    """Returns the share of answers whose tokens are all the most likely choice, and the mean number
    of tokens of a document."""
    rng = random.Random(7)
    filler, hits, answers, tokens = filler_of(rng, held), 0, 0, 0
    with torch.no_grad():
        for _ in range(n):
            ids, marks = mark(kind, getattr(corpus, kind)(rng, filler, chars))
            x = torch.tensor([[tok.bos] + ids])
            best = model(x, torch.bfloat16)[0].float().argmax(-1)
            ok, i = (best[:-1] == x[0, 1:]).numpy(), 0
            tokens += len(ids)
            while i < len(ids):
                j = i
                while j < len(ids) and marks[j]:
                    j += 1
                if j > i:
                    hits, answers = hits + ok[i:j].all(), answers + 1
                i = max(j, i + 1)
    return round(float(hits / answers), 3), tokens // n


def hidden(model, c, ids, dtype):
    """The final norm's output [rows, tokens, hidden]. The caller computes the output projection,
    because it needs only a few tokens."""
    f = torch.arange(ids.shape[1]).float()[:, None] * (
        c.rope_theta ** (-torch.arange(0, c.head_dim, 2).float() / c.head_dim))[None]
    x = model.embed(ids).to(dtype)
    for layer in model.layers:
        x = layer(x, f.cos().to(dtype), f.sin().to(dtype), None)
    return train.rms_norm(x, model.norm, c.rms_norm_eps)


def held_loss(model, tok, held, dtype):
    total = n = 0
    with torch.no_grad():
        for story in held[:48]:
            ids = torch.tensor([([tok.bos] + tok.encode(story + "\n"))[:512]])
            logits = model(ids[:, :-1], dtype).float()
            total += F.cross_entropy(logits[0], ids[0, 1:], reduction="sum").item()
            n += ids.shape[1] - 1
    return round(total / n, 4)


def card(model, mark, tok, held, dtype, n, lengths):
    row = {"held_loss": held_loss(model, tok, held, dtype)}
    for kind in ("passkey", "facts"):
        for chars in lengths:
            row[f"{kind}_{chars}_chars"], row[f"{kind}_{chars}_tokens"] = accuracy(model, mark, tok, held, kind, chars, n)
    return row


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stories", required=True)
    p.add_argument("--init", required=True, help="a folder that train.py wrote")
    p.add_argument("--out", required=True)
    p.add_argument("--minutes", type=float, default=50)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.001)
    p.add_argument("--batch-tokens", type=int, default=8192)
    p.add_argument("--stories-share", type=float, default=0.35)
    p.add_argument("--lengths", default="1024:0.55,2048:0.45", help="row length : share of the time spent at it, in order")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(3)
    stories = corpus.split_stories(open(a.stories, encoding="utf-8", errors="ignore").read())
    held, stories = stories[:200], stories[200:]
    tok = bpe.Tokenizer.load(f"{a.init}/tokenizer.json")
    mark, c, dtype = Marker(tok, a.init), train.Config(), torch.bfloat16
    model = train.Llama(c)
    train.load(model, a.init)
    named = list(model.named_parameters())
    matrices = [q for n, q in named if n.startswith("layers") and q.dim() == 2]
    others = [q for n, q in named if not (n.startswith("layers") and q.dim() == 2)]
    adam = torch.optim.AdamW([{"params": others, "weight_decay": 0.0}, {"params": matrices, "weight_decay": 0.05}],
                             lr=a.lr, betas=(0.9, 0.98))
    log, began, step, seen, spent = [], time.time(), 0, 0, 0.0
    for part in a.lengths.split(","):
        row, share = int(part.split(":")[0]), float(part.split(":")[1])
        spent += share
        data = batches(random.Random(1000 * row), stories, mark, tok, a, row)
        while True:
            done = (time.time() - began) / (60 * a.minutes)
            if done >= spent:
                break
            scale = min(1, (step + 1) / 30) * (1 if done < 0.3 else max(0.02, (1 - done) / 0.7))
            x, marks = next(data)
            h, y = hidden(model, c, x[:, :-1], dtype).reshape(-1, c.hidden_size), x[:, 1:].reshape(-1)
            is_answer = marks[:, 1:].reshape(-1) > 0
            pick = is_answer | (torch.rand(y.shape) < OTHER_TOKENS)
            logits = (h[pick] @ model.embed.weight.to(dtype).T).float()
            losses, is_answer = F.cross_entropy(logits, y[pick], reduction="none"), is_answer[pick]
            answers = losses[is_answer].mean() if is_answer.any() else torch.zeros(())
            rest = losses[~is_answer].mean()
            (rest + ANSWER_WEIGHT * answers).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for g in adam.param_groups:
                g["lr"] = a.lr * scale
            adam.step()
            adam.zero_grad(set_to_none=True)
            step += 1
            seen += x.numel()
            if step % 25:
                continue
            entry = {"step": step, "tokens": seen, "length": row, "loss": round(rest.item(), 3),
                     "answer_loss": round(answers.item(), 3), "minutes": round((time.time() - began) / 60, 2)}
            if step % 100 == 0:
                entry.update(card(model, mark, tok, held, dtype, 30, (1500, 3100)))
                train.save(model, tok, a.out, log)
            log.append(entry)
            print(json.dumps(entry), flush=True)
    log.append({"step": step, "tokens": seen, **card(model, mark, tok, held, dtype, 60, (1500, 3100, 5800))})
    print(json.dumps(log[-1]), flush=True)
    train.save(model, tok, a.out, log)


if __name__ == "__main__":
    main()
