"""Makes tiny_greedy.json: results of transformers for models/tiny, in float32 with eager attention.

    pip install torch==2.2.2 transformers==4.46.3 tokenizers==0.20.3 safetensors "numpy<2"
    python tests/golden/make_tiny_golden.py # works in any folder; takes half a minute on two cores

For each of ten prompts, the file has its token ids (begin-of-text first), 200 greedy tokens, and logits at chosen positions.
Generation continues after the end token; `eos_at` lists the steps with end tokens (empty: none). `position` counts input
tokens from 0, so the logits at position len(ids) - 1 choose greedy[0], and those at len(ids) + n - 1 are computed after
greedy[n-1] was fed. `min_gap` is the smallest distance between the best and the second best logit over the 200 steps (prompts under
1e-3 are refused). `close` lists every [step, gap] under 0.01: at these steps, a backend with quantized weights or cache may choose
the other token. `float64_error` is the largest distance of a logit from a float64 computation (golden_common.py).
"""
import pathlib

import golden_common as common
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "models" / "tiny"
STEPS = 200
FED = (0, 1, 2, 51, 200)  # after these numbers of generated tokens, logits are recorded
STRIDE = 64
BOS, EOS = 4094, 4095

LONG_TALE = (
    "Once upon a time there lived at the edge of a great forest an old woodcutter who had three sons. The eldest was "
    "strong, the second was clever, and the youngest was called Simple Hans, because he gave away whatever he had. One "
    "winter the snow lay so deep that no one could go to the mill, and there was no bread in the house. Then said the "
    "father: \"One of you must go through the forest to the king's castle and ask for a sack of flour.\" The eldest took "
    "his axe and set out. When he had walked half the day he met a little grey man, who said: \"Good day, my son. Give me "
    "a bite of your cake, for I am hungry.\" But the eldest answered: \"If I give you my cake I shall have none for "
    "myself,\" and went on. Before long he lost the path, and had to turn back. The second son fared no better. At last "
    "Hans begged his father to let him go. \"You know nothing of the forest,\" said the old man, but Hans begged so long "
    "that he was allowed to go. He too met the little grey man, and he broke his cake in two and gave him the larger half. "
    "\"Because you have a good heart,\" said the little man, \"I will give you good fortune. Yonder stands an old tree; cut "
    "it down, and you will find something at the roots.\" Hans went and cut down the tree, and there in the roots sat a "
    "goose with feathers of pure gold."
)
PASSKEY = (
    "There is a pass key hidden in this text. Find it and remember it.\nThe old king walked in the garden every "
    "morning. The pass key is 48213. Remember it. 48213 is the pass key.\nThe birds sang in the trees, and the children "
    "ran down to the river to see the boats go by. In the evening all the people of the village sat by the fire and told "
    "stories of the sea. \nWhat is the pass key? The pass key is"
)
FACTS = (
    "Remember these facts.\nFact: In Zoe's jar there is a golden ball.\nFact: In Carl's tree there is a black rope.\n"
    "Fact: In Ivy's bag there is a brown book.\nQuestion: What is in Zoe's jar? Answer: a"
)
PROMPTS = {
    "bos_only": "",
    "once": "Once upon a time",
    "queen": "There was once a queen who had a little daughter, and the child was still so young that",
    "dialogue": "\"Who are you?\" said the fox.\n\"I am the wind,\" answered",
    "passkey": PASSKEY,
    "facts": FACTS,
    "echo": "Say: red stone 42 Lily garden 7 kite Tom blue 913 boat.\nSay: red stone 42",
    "code": "def add(a, b):\n    # sum of two\n\treturn a + b\n\nfor (int i = 0; i < n; ++i) { x[i] += 0x1F; }\n",
    "unicode": "Der K\u00f6nig sprach: \u201eGr\u00fc\u00df Gott!\u201c \u2014 caf\u00e9, na\u00efve \u65e5\u672c\u8a9e "
               "\u041f\u0440\u0438\u0432\u0435\u0442, \U0001f98a\U0001f469\u200d\U0001f680 e\u0301!",
    "long_tale": LONG_TALE,
}


def case(model, tokenizer, name, text):
    ids = [BOS] + tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == tokenizer.encode(text).ids, "the tokenizer adds begin-of-text by itself"
    tokens, logits = common.greedy(model, ids, STEPS)
    error, twin = common.check(FOLDER, ids + tokens, logits)
    gap = common.gaps(logits[len(ids) - 1:len(ids) - 1 + STEPS])
    differ = [i for i, t in enumerate(tokens) if twin[len(ids) - 1 + i] != t]
    assert gap.min() > 1e-3, f"{name}: a near-tie; change the prompt, so that every right backend gives the same text"
    print(f"{name}: {len(ids)} tokens, float64 error {error:.2e}, least gap {gap.min():.4f}, differing argmax {differ}")
    return {
        "name": name,
        "text": text,
        "ids": ids,
        "greedy": tokens,
        "continuation": tokenizer.decode(tokens, skip_special_tokens=False),
        "eos_at": [i for i, t in enumerate(tokens) if t == EOS],
        "min_gap": common.number(gap.min()),
        "close": [[i, common.number(g)] for i, g in enumerate(gap) if g < 0.01],
        "float64_error": common.number(error),
        "logits": [common.sample(logits, len(ids) - 1 + n, STRIDE) for n in FED],
    }


def main():
    model = common.load_model(FOLDER)
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    head = {
        "made_by": "tests/golden/make_tiny_golden.py",
        "model": "models/tiny",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "weights": "float32",
        "attention": "eager",
    }
    cases = [case(model, tokenizer, name, text) for name, text in PROMPTS.items()]
    common.write_json(HERE / "tiny_greedy.json", head, cases)


if __name__ == "__main__":
    main()
