"""Makes tiny_perplexity.json: scores of transformers for models/tiny on the first tokens of models/tiny/heldout.txt, in float32.

    pip install torch==2.2.2 transformers==4.51.3 tokenizers safetensors "numpy<2"
    python tests/golden/make_perplexity_golden.py # works in any folder; takes some seconds

There are three ways to score, with the windows and places that docs/reference/eval.md describes: windows; a prefix and its continuation
with a full cache; and the same after an eviction at the end of the prefix, which keeps the first SINKS and the last BUDGET - SINKS slots.
Keys keep their positions, so an attention mask for the continuation hides the evicted slots. For each window, the file has its begin, the
number of scored tokens, and the mean negative log likelihood in nats, summed in float64. Each window begins with begin-of-text.
"""
import json
import pathlib

import golden_common as common
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "models" / "tiny"
BOS = 4094
TOKENS, WINDOW, STRIDE = 1000, 128, 48
PREFIX, CONTINUATION, PLACES = 160, 40, 5
BUDGET, SINKS = 48, 4


def nll(model, inputs, targets, first, mask=None):
    """Returns the mean -log p of targets[first:]. targets[i] is the token after inputs[i]."""
    with torch.inference_mode():
        logits = model(torch.tensor([inputs]), attention_mask=mask, use_cache=False).logits[0].double()
    p = torch.log_softmax(logits, -1)
    return -float(sum(p[i, targets[i]] for i in range(first, len(targets)))) / (len(targets) - first)


def windows(model, ids):
    out, begin, scored = [], 0, 0
    while scored < len(ids):
        # input: BOS and WINDOW - 1 tokens; one more token is a target
        end = min(begin + WINDOW, len(ids))
        inputs, targets = [BOS] + ids[begin:end - 1], ids[begin:end]
        out.append({"begin": begin, "tokens": end - scored, "nll": nll(model, inputs, targets, scored - begin)})
        begin, scored = begin + STRIDE, end
    return out


def eviction_mask(n):
    """Returns an additive mask [1, 1, n, n]: causal, and tokens after the prefix do not see the evicted slots."""
    seen = torch.tril(torch.ones(n, n, dtype=torch.bool))
    seen[PREFIX:, SINKS:PREFIX - (BUDGET - SINKS)] = False
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]


def places(model, ids, evict):
    # text tokens of the prefix (the begin-of-text token is one of the prefix), and the one that is
    # not scored
    before = PREFIX - 1 + 1
    length = before + CONTINUATION
    out = []
    for i in range(PLACES):
        begin = (len(ids) - length) * i // (PLACES - 1)
        text = ids[begin:begin + length]
        inputs = [BOS] + text[:-1]
        mask = eviction_mask(len(inputs)) if evict else None
        out.append({"begin": begin, "tokens": CONTINUATION, "nll": nll(model, inputs, text, before, mask)})
    return out


def main():
    model = common.load_model(FOLDER)
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    text = (FOLDER / "heldout.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode(text, add_special_tokens=False).ids[:TOKENS]
    golden = {
        "made_by": "tests/golden/make_perplexity_golden.py",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokens": TOKENS,
        "window": WINDOW,
        "stride": STRIDE,
        "prefix": PREFIX,
        "continuation": CONTINUATION,
        "places": PLACES,
        "budget": BUDGET,
        "sinks": SINKS,
        "windows": windows(model, ids),
        "full": places(model, ids, False),
        "evicted": places(model, ids, True),
    }
    (HERE / "tiny_perplexity.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
