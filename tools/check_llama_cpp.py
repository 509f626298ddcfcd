#!/usr/bin/env python3
"""Checks the GGUF files that `keel quantize` writes, by comparison with llama.cpp.

    tools/check_llama_cpp.py --keel BUILD/bin/keel --llama LLAMA_CPP/build/bin --model models/tiny

For each type, the script does two comparisons:
1. It writes the model with this type. `llama-simple` and `keel run --greedy` continue the same prompts with this file. The script
   counts the prompts for which both texts are the same. The prompts are tales, in which tokens can have nearly equal probabilities,
   and texts to recall (sayings, facts and pass-keys), in which the most likely token of models/tiny has a large lead.
2. `llama-quantize --pure` makes a file of this type from Keel's f32 file. The script compares the bytes of each tensor.
The output is Markdown. The exit code is 1 if a byte, a recalled text, or a tale of the f32 file differs. Tales of other types may
differ, because llama.cpp also rounds activations: to f16 for f16 weights, to bf16 for bf16 weights, to q8_0 for q8_0 and q4_0 weights.

Needs Python 3.8 or later and programs of llama.cpp: llama-simple, llama-quantize.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

PROMPTS = [
    "Once upon a time there was a king",
    "The wolf said to the little girl",
    "In a dark forest there lived an old woman who",
    "\"Who are you?\" asked the princess.",
    "There were once three brothers, and the youngest",
    "The ship sailed for many days until",
    "He opened the door of the castle and saw",
    "The giant was so angry that he",
    "When the sun rose, the shepherd",
    "She took the golden ring and",
    "A fox once met a bear in the wood",
    "The queen had a daughter who was",
    "\"Give me your gold,\" said the robber",
    "Far away beyond the mountains",
    "The old man sat by the fire and told",
    "One day the cat went to the mill and",
]
WORDS = ("Lily box red key 72 Tom jar stone Anna 508 garden blue ring Ben hat coin cup 9 Mia leaf cave green doll Sam 314 boat "
         "kite Lucy yellow bell tree toy 66 Max map rope house lamp Sue white spoon chest feather Tim 120 drawer button").split()


def recall_prompts():
    """Returns pairs (prompt, number of tokens to generate). The prompt contains the answer, and the
    number is the number of the answer's tokens."""
    prompts = []
    for i in range(8):
        saying = " ".join((WORDS[i * 5:] + WORDS)[:24])
        prompts.append(("Say: %s.\nSay: %s.\nSay:" % (saying, saying), 24))
    for i in range(4):
        owners, things, colors, items = ("Tom", "Anna", "Leo"), ("bag", "hat", "boat"), ("red", "green", "white"), ("key", "ring", "doll")
        order = [(i + j) % 3 for j in range(3)]
        facts = "".join("Fact: In %s's %s there is a %s %s.\n" % (owners[j], things[j], colors[order[j]], items[j]) for j in range(3))
        prompts.append(("Remember these facts.\n%sQuestion: What is in %s's %s? Answer: a" % (facts, owners[i % 3], things[i % 3]), 3))
    for key in ("48213", "90576", "11702", "63958"):
        prompts.append(("There is a pass key hidden in this text. Find it and remember it.\nThe king went to the wood. The pass key is %s. "
                        "Remember it. %s is the pass key.\nThe wolf ran home. The sun rose.\nWhat is the pass key? The pass key is" % (key, key), 6))
    return prompts


SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# ggml type: (elements, bytes) of a block
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 30: (1, 2)}


def tensors(path):
    """Returns name -> (ggml type, bytes) for the tensors of a GGUF file."""
    with open(path, "rb") as file:
        data = file.read()
    at = 8

    def number(code):
        nonlocal at
        value = struct.unpack_from("<" + code, data, at)[0]
        at += struct.calcsize("<" + code)
        return value

    def text():
        nonlocal at
        size = number("Q")
        at += size
        return data[at - size:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            element, count = number("I"), number("Q")
            return [value(element) for _ in range(count)]
        return number(SCALARS[kind])

    count, keys = number("Q"), number("Q")
    metadata = {}
    for _ in range(keys):
        key = text()
        metadata[key] = value(number("I"))
    rows = []
    for _ in range(count):
        name = text()
        elements = 1
        for _ in range(number("I")):
            elements *= number("Q")
        rows.append((name, elements, number("I"), number("Q")))
    align = metadata.get("general.alignment", 32)
    start = (at + align - 1) // align * align
    found = {}
    for name, elements, kind, offset in rows:
        if kind not in BLOCKS:
            found[name] = (kind, None)
            continue
        per, size = BLOCKS[kind]
        found[name] = (kind, data[start + offset:start + offset + elements // per * size])
    return found


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit("%s failed:\n%s" % (" ".join(command), done.stderr.decode(errors="replace")[-2000:]))
    return done.stdout


def keel_tokens(args, file, prompt, tokens):
    """Returns for each token that Keel generates its text, and the lead of its log-probability over
    the second best token, in nats."""
    command = [args.keel, "run", file, "-p", prompt, "--greedy", "-n", str(tokens), "--json", "-q", "--logprobs", "2"]
    for setting in args.set:
        command += ["--set", setting]
    tokens = json.loads(run(command))["logprobs"]
    return [(t["token"], t["top"][0]["logprob"] - t["top"][1]["logprob"]) for t in tokens]


def first_difference(tokens, theirs):
    """Returns None if the texts are the same. Otherwise returns the number (counted from 1) of Keel's
    first different token, and its lead."""
    text = ""
    for number, (token, lead) in enumerate(tokens, 1):
        text += token
        if not theirs.startswith(text.rstrip("\n")):
            return number, lead
    return None if text.rstrip("\n") == theirs else (len(tokens), tokens[-1][1] if tokens else 0.0)


def llama_text(args, file, prompt, tokens):
    program = os.path.join(args.llama, "llama-simple")
    out = run([program, "-m", file, "-n", str(tokens), "-ngl", "0", prompt])
    out = out.decode(errors="replace")
    at = out.find(prompt)  # the output starts with the prompt's tokens, including the begin token
    if at < 0:
        sys.exit("llama-simple did not print the prompt %r: %r" % (prompt, out))
    return out[at + len(prompt):].rstrip("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", required=True, help="the program keel")
    parser.add_argument("--llama", required=True, help="the folder with llama.cpp's programs")
    parser.add_argument("--model", default="models/tiny", help="a model folder")
    parser.add_argument("--types", default="f32,f16,bf16,q8_0,q4_0")
    parser.add_argument("--tokens", type=int, default=48, help="tokens to generate after each prompt")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the built-in prompts")
    parser.add_argument("--set", action="append", default=[], help="passed to keel run")
    args = parser.parse_args()
    failed = False
    print("| type | recalled: same text | tales: same text | first token that differs (its lead over the next, nats) | tensors with the same bytes |")
    print("|---|---|---|---|---|")
    recalls, tales = recall_prompts(), [(prompt, args.tokens) for prompt in PROMPTS[:args.prompts]]

    def places(file, prompts):
        found = [first_difference(keel_tokens(args, file, p, n), llama_text(args, file, p, n)) for p, n in prompts]
        return [place for place in found if place is not None]

    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "f32.gguf")
        run([args.keel, "quantize", args.model, plain, "--type", "f32"])
        for kind in args.types.split(","):
            file = plain
            if kind != "f32":
                file = os.path.join(folder, kind + ".gguf")
                run([args.keel, "quantize", args.model, file, "--type", kind])
            recalled, parted = places(file, recalls), places(file, tales)
            bytes_same = "(made from this one)"
            if kind != "f32":
                peer = os.path.join(folder, kind + "-peer.gguf")
                run([os.path.join(args.llama, "llama-quantize"), "--pure", plain, peer, kind.upper()])
                ours, others = tensors(file), tensors(peer)
                same = sum(1 for name in ours if ours[name][1] is not None and ours[name] == others.get(name))
                bytes_same = "%d of %d" % (same, max(len(ours), len(others)))
                failed = failed or same != len(ours) or len(ours) != len(others)
            failed = failed or bool(recalled) or (bool(parted) and kind == "f32")
            where = ", ".join("%d (%.3f)" % place for place in sorted(parted)) or "none"
            print("| %s | %d of %d | %d of %d | %s | %s |" % (kind, len(recalls) - len(recalled), len(recalls), len(tales) - len(parted),
                                                             len(tales), where, bytes_same), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
