#!/usr/bin/env python3
"""Draws which tokens of a prompt four policies keep: docs/pictures/evictions.svg.

    tools/eviction_picture.py build/release/bin/keel >docs/pictures/evictions.svg

Runs models/tiny on docs/pictures/evictions.txt under each policy, reads the eviction logs, and writes an
SVG. The prompt hides a pass-key in a tale and asks for it at the end.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/tiny"
PROMPT = ROOT / "docs/pictures/evictions.txt"
FACT = "The pass key is 71385. Remember it. 71385 is the pass key."
ANSWER = "71385"
POLICIES = ["sliding_window", "h2o", "snapkv", "kvzip"]
BUDGET = 160

WIDTH, LEFT, ROW, GAP = 960, 190, 5, 26  # in pixels
DARK, LIGHT, MARK, TEXT, QUIET = "#1f6feb", "#e7ecf3", "#d9480f", "#1b1f24", "#57606a"


def keel(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def token_count(program, text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        return len(keel(program, "tokenize", MODEL, "-f", file.name).split())


def evicted(program, policy, folder):
    """Returns the tokens that the policy keeps in each layer and head, as runs of token numbers,
    and the answer."""
    log = pathlib.Path(folder) / f"{policy}.jsonl"
    answer = keel(program, "run", MODEL, "-f", PROMPT, "-n", 6, "--greedy", "-q", "--policy", policy, "--budget", BUDGET,
                  "--set", f"policy.log={log}", "--set", "policy.log_positions=true",
                  "--set", "policy.trigger.on=[prefill_end]").strip()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    heads = [head for record in sorted(records, key=lambda r: r["layer"]) for head in record["kept_tokens"]]
    return records[0]["tokens"], heads, answer


def runs_path(heads, x_of, top):
    """Returns one SVG path that has a rectangle for each run."""
    parts = []
    for row, runs in enumerate(heads):
        y = top + row * ROW
        parts += [f"M{x_of(a):.1f} {y}h{x_of(b) - x_of(a):.1f}v{ROW - 1}h-{x_of(b) - x_of(a):.1f}z" for a, b in runs]
    return "".join(parts)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: eviction_picture.py KEEL >OUT.svg")
    program = sys.argv[1]
    prompt = PROMPT.read_text()
    first = token_count(program, prompt[:prompt.index(FACT)])
    fact = (first, first + token_count(program, FACT))
    with tempfile.TemporaryDirectory() as folder:
        panels = [(policy, *evicted(program, policy, folder)) for policy in POLICIES]
    tokens = panels[0][1]
    rows = len(panels[0][2])
    x_of = lambda token: LEFT + token * (WIDTH - LEFT - 10) / tokens
    panel_height = rows * ROW
    height = 62 + (len(panels) + 1) * (panel_height + GAP)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
           f'font-family="system-ui, sans-serif" font-size="13" fill="{TEXT}">',
           f"<title>Which of {tokens} tokens four policies keep in each head of models/tiny</title>",
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="20" fill="{QUIET}">One column for each token of the prompt, one row for each layer and head. '
           "Blue tokens are in the cache.</text>",
           f'<text x="{x_of(fact[0]):.1f}" y="42" fill="{MARK}" text-anchor="middle">the pass-key</text>',
           f'<text x="{WIDTH - 10}" y="42" fill="{MARK}" text-anchor="end">the question</text>']
    top = 52
    everything = [[(0, tokens)]] * rows
    for name, heads, note in [("before", everything, f"all {tokens} tokens")] + \
            [(policy, heads, f"writes {answer}") for policy, _, heads, answer in panels]:
        good = name == "before" or note.endswith(ANSWER)
        out += [f'<text x="10" y="{top + 18}" font-weight="600">{name}</text>',
                f'<text x="10" y="{top + 36}" fill="{QUIET if name == "before" else "#1a7f37" if good else MARK}">'
                f'{note}{"" if name == "before" else " (right)" if good else " (wrong)"}</text>',
                f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - 10}" height="{panel_height - 1}" fill="{LIGHT}"/>',
                f'<path fill="{DARK}" d="{runs_path(heads, x_of, top)}"/>',
                f'<path fill="none" stroke="{MARK}" d="M{x_of(fact[0]):.1f} {top - 3}V{top + panel_height + 2}'
                f'M{x_of(fact[1]):.1f} {top - 3}V{top + panel_height + 2}"/>']
        top += panel_height + GAP
    out += [f'<text x="{LEFT}" y="{top - 8}" fill="{QUIET}">models/tiny, {tokens} tokens, {BUDGET} of them stay in each head '
            "on average. Made by tools/eviction_picture.py.</text>", "</svg>"]
    print("\n".join(out))


main()
