"""The corpus of the tiny model: plain stories mixed with recall documents.

A recall document states facts early, then filler, then asks for the facts. A model
trained on it uses distant tokens, so experiments with KV-cache eviction
are meaningful: if the keys of a fact are evicted, the answer is lost.
"""
import random
import re

SEPARATOR = "<|endoftext|>"
NAMES = ("Lily Tom Anna Ben Mia Sam Lucy Max Sue Tim Amy Jack Emma Leo Rose Bob Ella Finn Zoe Dan "
         "Kim Joe Nina Ted Ivy Roy Jane Carl Ruth Paul").split()
THINGS = ("box bag jar chest basket drawer pocket bucket hat cup cave house boat tree garden").split()
COLORS = "red blue green yellow pink white black brown orange purple gray golden".split()
ITEMS = ("key ball stone shell coin ring leaf book doll kite bell toy map rope lamp spoon feather button").split()


def split_stories(text, chars=2400):
    """The stories of a text, which are the parts between separators. If there are no separators,
    they are runs of paragraphs (divided by empty lines) of about `chars` characters. Parts shorter
    than 100 characters, such as titles, are dropped."""
    if SEPARATOR in text:
        pieces = text.split(SEPARATOR)
    else:
        pieces, size = [[]], 0
        for paragraph in re.split(r"\n\s*\n", text):
            paragraph = " ".join(paragraph.split())
            if size and size + len(paragraph) > chars:
                pieces.append([])
                size = 0
            pieces[-1].append(paragraph)
            size += len(paragraph)
        pieces = ["\n".join(p) for p in pieces]
    return [s.strip() for s in pieces if len(s.strip()) > 100]


def passkey(rng, filler, length):
    """The pass-key task: one random number in `length` characters of filler."""
    key = "".join(rng.choice("0123456789") for _ in range(5))
    needle = f"The pass key is {key}. Remember it. {key} is the pass key.\n"
    text, depth = filler(length), rng.random()
    cut = text.rfind(". ", 0, int(depth * len(text)) + 2)
    cut = 0 if cut < 0 else cut + 2
    return (f"There is a pass key hidden in this text. Find it and remember it.\n{text[:cut]}{needle}{text[cut:]}\n"
            f"What is the pass key? The pass key is {key}.\n")


def facts(rng, filler, length):
    """Several owner-container-content facts, spread over filler, then questions in another
    order."""
    n = rng.randint(2, 6)
    owners = rng.sample(NAMES, n)
    rows = [(o, rng.choice(THINGS), f"{rng.choice(COLORS)} {rng.choice(ITEMS)}") for o in owners]
    parts = ["Remember these facts.\n"]
    for owner, thing, item in rows:
        parts.append(f"Fact: In {owner}'s {thing} there is a {item}.\n")
        if length:
            parts.append(filler(length // n) + "\n")
    rng.shuffle(rows)
    for owner, thing, item in rows:
        parts.append(f"Question: What is in {owner}'s {thing}? Answer: a {item}.\n")
    return "".join(parts)


def numbers(rng, filler, length):
    """A table of names and numbers, then look-ups. This gives many training examples of recall."""
    n = rng.randint(3, 12)
    rows = [(o, "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 5)))) for o in rng.sample(NAMES, n)]
    table = "".join(f"{o}'s number is {v}.\n" for o, v in rows)
    rng.shuffle(rows)
    asks = "".join(f"What is {o}'s number? {o}'s number is {v}.\n" for o, v in rows)
    return table + (filler(length) + "\n" if length else "") + asks


def echo(rng, filler, length):
    """A run of unrelated words and digits, repeated once or more. Every token of a repetition is
    predictable.

    This task teaches a small model to attend to earlier tokens faster than the other tasks,
    which use the copying heads that form here.
    """
    words = [rng.choice((rng.choice(NAMES), rng.choice(THINGS), rng.choice(COLORS), rng.choice(ITEMS),
                         "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 4)))))
             for _ in range(rng.randint(8, 40))]
    if rng.random() < 0.5 and length:
        words += filler(rng.randint(100, 300)).split()
        rng.shuffle(words)
    text = " ".join(words)
    return "".join(f"Say: {text}.\n" for _ in range(rng.randint(2, 4)))


KINDS = {"passkey": passkey, "facts": facts, "numbers": numbers, "echo": echo}


def documents(stories, seed, recall_share=0.3, max_chars=6000, kinds=("passkey", "facts", "numbers", "echo", "echo")):
    """Yield documents for ever: a story with probability 1 - recall_share, else a recall document
    of one of `kinds`."""
    rng = random.Random(seed)

    def filler(chars):
        out, n = [], 0
        while n < chars:
            s = stories[rng.randrange(len(stories))].replace("\n", " ")
            out.append(s)
            n += len(s) + 1
        text = " ".join(out)[:max(chars, 1)]
        end = text.rfind(". ")
        return text[:end + 2] if end > 0 else text

    while True:
        if rng.random() >= recall_share:
            yield stories[rng.randrange(len(stories))] + "\n"
            continue
        length = 0 if rng.random() < 0.3 else int(rng.random() ** 1.5 * max_chars)
        yield KINDS[rng.choice(kinds)](rng, filler, length)
