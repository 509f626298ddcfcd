#!/usr/bin/env python3
"""Draws a few decode steps of a real trace: docs/pictures/trace.svg.

    tools/trace_picture.py build/release/bin/keel >docs/pictures/trace.svg

Runs models/tiny with a small budget and --trace, finds the first eviction, and draws the steps around it.
"""
import html
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, LEFT, ROW, TOP = 960, 90, 30, 84  # in pixels
TEXT, QUIET, GRID = "#1b1f24", "#57606a", "#e7ecf3"
COLOURS = {"attention": "#d9480f", "qkv": "#1f6feb", "gate up": "#1a7f37", "down": "#8250df",
           "output": "#bf8700"}
OTHER = "#9aa4af"
STEPS_BEFORE, STEPS_AFTER = 1, 1  # decode steps in the picture, around the one before the eviction


def record(program):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "trace.json"
        subprocess.run([program, "run", ROOT / "models/tiny", "-p", "Once upon a time there was", "-n", "24", "--greedy",
                        "--policy", "sliding_window", "--budget", "16", "--trace", file, "-q"],
                       check=True, capture_output=True)
        return json.loads(file.read_text())["traceEvents"]


def colour_of(name):
    return next((colour for key, colour in COLOURS.items() if name.startswith(key)), OTHER)


def draw(events):
    spans = [e for e in events if e["ph"] == "X"]
    eviction = next(e for e in spans if e["name"] == "eviction")
    steps = [e for e in spans if e["name"] == "decode"]
    at = max(i for i, step in enumerate(steps) if step["ts"] < eviction["ts"])
    steps = steps[at - STEPS_BEFORE:at + STEPS_AFTER + 1]
    begin, end = steps[0]["ts"], steps[-1]["ts"] + steps[-1]["dur"]
    scale = (WIDTH - LEFT - 10) / (end - begin)
    out = []

    def x(time):
        return LEFT + (time - begin) * scale

    def bar(span, row, colour, text=""):
        width = max(span["dur"] * scale, 0.6)
        out.append(f'<rect x="{x(span["ts"]):.1f}" y="{TOP + row * ROW}" width="{width:.1f}" height="22" fill="{colour}"/>')
        if text and width > 8 * len(text):
            out.append(f'<text x="{x(span["ts"]) + 4:.1f}" y="{TOP + row * ROW + 15}" fill="#ffffff" font-size="11">'
                       f"{html.escape(text)}</text>")

    for row, name in enumerate(["steps", "ops", "evictions", "slots"]):
        out.append(f'<text x="10" y="{TOP + row * ROW + 15}" font-weight="600">{name}</text>')
        out.append(f'<path d="M{LEFT} {TOP + row * ROW + 25.5}H{WIDTH - 10}" stroke="{GRID}"/>')
    inside = [e for e in spans if begin <= e["ts"] < end]
    for span in inside:
        if span["cat"] == "step":
            bar(span, 0, "#57606a", "decode")
        elif span["cat"] == "op":
            bar(span, 1, colour_of(span["name"]))
        elif span["name"] == "eviction":
            bar(span, 2, "#d9480f")
    args = eviction["args"]
    note = f'{eviction["dur"]:.0f} us: {args["held"]} slots before, {args["kept_max"]} after'
    out.append(f'<text x="{x(eviction["ts"] + eviction["dur"]) + 6:.1f}" y="{TOP + 2 * ROW + 15}" fill="#d9480f" '
               f'font-size="12">{note}</text>')
    counters = [e for e in events if e["ph"] == "C" and e["name"] == "slots of the longest head" and begin <= e["ts"] < end]
    for i, counter in enumerate(counters):
        stop = counters[i + 1]["ts"] if i + 1 < len(counters) else end
        value = counter["args"]["value"]
        out.append(f'<rect x="{x(counter["ts"]):.1f}" y="{TOP + 3 * ROW + 22 - value}" '
                   f'width="{max((stop - counter["ts"]) * scale - 1, 1):.1f}" height="{value}" fill="#b6d4fe"/>')
        if (stop - counter["ts"]) * scale > 24:
            out.append(f'<text x="{x(counter["ts"]) + 4:.1f}" y="{TOP + 3 * ROW + 18}" font-size="11">{value}</text>')
    bottom = TOP + 4 * ROW + 20
    left = LEFT
    for name, colour in [*COLOURS.items(), ("other ops", OTHER)]:
        out.append(f'<rect x="{left}" y="{bottom - 10}" width="11" height="11" fill="{colour}"/>')
        out.append(f'<text x="{left + 16}" y="{bottom}" fill="{QUIET}" font-size="12">{name}</text>')
        left += 30 + 8 * len(name)
    height = bottom + 16
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'font-family="system-ui, sans-serif" font-size="13" fill="{TEXT}">',
            "<title>Decode steps around an eviction, from a trace of models/tiny</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="10" y="26" font-size="15" font-weight="600">{len(steps)} decode steps of models/tiny, from a trace</text>',
            f'<text x="10" y="48" fill="{QUIET}">{(end - begin) / 1000:.1f} ms of sliding_window with a budget of 16 tokens. '
            f"The eviction follows a step. The next step has fewer slots.</text>"]
    return "\n".join(head + out + ["</svg>"]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(draw(record(sys.argv[1])))
