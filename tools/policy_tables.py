#!/usr/bin/env python3
"""Makes the tables of docs/benchmarks/2026-11-policy-quality.md from the results of an experiment.

    tools/policy_tables.py RESULTS               prints the tables
    tools/policy_tables.py RESULTS PAGE NAME     writes them to PAGE, between the lines
                                                 <!-- tables of NAME --> and <!-- end of NAME -->

RESULTS is the output folder of `keel ab`. summary.json has the numbers and the verdicts; the table
of sweeps (arms with budgets in tokens) is computed from results.jsonl, because it has a row for
each length of prompts.
"""
import json
import pathlib
import sys

AWARE, BLIND = "whole_prompt", "question_blind"
BUDGETS = {"ratio:0.25": "1/4", "ratio:0.5": "1/2"}
VERDICTS = {"not distinguishable": "n. d.", "equal in every item": "equal"}


def rows_of(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def cells_of(summary):
    key = ("arm", "budget", "protocol", "task", "metric")
    return {tuple(cell[k] for k in key): cell for cell in summary["cells"]}


def divergences_of(summary):
    """The sizes of kld: (arm, budget) -> contrast with the reference."""
    return {(c["a"], c["a_budget"]): c for c in summary["contrasts"]
            if c["metric"] == "kld" and c["b"] == summary["header"]["reference"]}


def size_text(contrast):
    if contrast is None:
        return ""
    text = f"{contrast['effect']:.3g}"
    if contrast["interval"]:
        text += " [{:.3g}, {:.3g}]".format(*contrast["interval"])
    return text


def hits(cells, arm, budget, task):
    found = [cells.get((arm, budget, protocol, task, "hit")) for protocol in (AWARE, BLIND)]
    return "" if None in found else " / ".join(f"{cell['mean']:.2f}" for cell in found)


def quality_table(summary):
    """Hit rates and divergences of all arms at both budgets."""
    cells, kld = cells_of(summary), divergences_of(summary)
    arms = [arm[0] for arm in summary["header"]["arms"]]
    rows = []
    for arm in arms:
        row = [f"`{arm}`"]
        for budget in BUDGETS:
            is_whole = (arm, "full", AWARE, "passkey", "hit") in cells
            at = "full" if is_whole else budget
            if is_whole and row[1:] or (arm, at, AWARE, "passkey", "hit") not in cells:
                row += ["", "", ""]
                continue
            row += [hits(cells, arm, at, "passkey"), hits(cells, arm, at, "facts"),
                    size_text(kld.get((arm, at)))]
        if any(row[1:]):
            rows.append(row)
    header = ["arm"]
    for name in BUDGETS.values():
        header += [f"{name}: pass-key aware / blind", "facts aware / blind", "KL"]
    return rows_of(header, rows)


def effect_text(contrast):
    is_ratio = contrast["effect_is"] == "ratio"

    def number(v):
        if v == 0:
            return "0"
        text = f"{100 * v:+.0f}%" if is_ratio else f"{v:+.2f}"
        is_rounded_away = text.strip("+-0.%") == ""
        return text if not is_rounded_away else f"{100 * v:+.1g}%" if is_ratio else f"{v:+.1g}"

    text = number(contrast["effect"])
    if contrast["interval"]:
        left = "(" if "low" in contrast["open_ends"] else "["
        right = ")" if "high" in contrast["open_ends"] else "]"
        low, high = (number(v) for v in contrast["interval"])
        text += f" {left}{low}, {high}{right}"
    return text + " " + VERDICTS.get(contrast["verdict"], contrast["verdict"])


def verdict_table(summary, task, metric, other, protocols):
    """The planned contrasts with the arm `other`: effect, simultaneous interval, verdict."""
    found = {(c["a"], c["a_budget"], c["protocol"]): c for c in summary["contrasts"]
             if c["planned"] and (c["task"], c["metric"], c["b"]) == (task, metric, other)}
    columns = [(b, p) for b in BUDGETS for p in protocols]
    rows = []
    for arm, _ in summary["header"]["arms"]:
        row = [found.get((arm, b, p)) or (found.get((arm, "full", p)) if b == "ratio:0.25" else None)
               for b, p in columns]
        if any(row):
            rows.append([f"`{arm}`"] + [effect_text(c) if c else "" for c in row])
    words = {AWARE: ", aware", BLIND: ", blind", "": ""}
    return rows_of(["arm"] + [BUDGETS[b] + words[p] for b, p in columns], rows) if rows else []


def sweep_table(results, summary):
    """Hit rates of the arms with budgets in tokens, aware, by the length of the prompt."""
    sums = {}
    for line in results.open():
        item = json.loads(line)
        if item.get("kind") != "item" or item["task"] != "passkey" or item["protocol"] != AWARE:
            continue
        if item["budget"].startswith("tokens:"):
            key = (item["arm"], item["length"], int(item["budget"].split(":")[1]))
            count, total = sums.get(key, (0, 0))
            sums[key] = (count + 1, total + item["value"])
    # A prompt may be a few tokens shorter than the length in the task. So lengths that differ by at
    # most 16 tokens are one group, which is named after its longest prompt.
    groups = []
    for length in sorted({key[1] for key in sums}, reverse=True):
        groups.append(groups[-1] if groups and groups[-1] - length <= 16 else length)
    group_of = dict(zip(sorted({key[1] for key in sums}, reverse=True), groups))
    grouped = {}
    for (arm, length, budget), (count, total) in sums.items():
        old = grouped.get((arm, group_of[length], budget), (0, 0))
        grouped[arm, group_of[length], budget] = (old[0] + count, old[1] + total)
    sums = grouped
    budgets = sorted({key[2] for key in sums})
    rows = []
    for arm, length in sorted({key[:2] for key in sums}):
        mean = [sums.get((arm, length, budget)) for budget in budgets]
        rows.append([f"`{arm}`, prompts of {length}"] + [f"{m[1] / m[0]:.2f}" if m else "" for m in mean])
    return rows_of(["tokens kept"] + [str(b) for b in budgets], rows) if rows else []


def tables(folder):
    summary = json.loads((folder / "summary.json").read_text())
    family = next(c["family_size"] for c in summary["contrasts"] if c["planned"] and c["p"] is not None)
    documents = {}
    for cell in summary["cells"]:
        documents[cell["task"]] = max(cell["documents"], documents.get(cell["task"], 0))
    counts = ", ".join(f"{task} {count}" for task, count in documents.items())
    parts = [[f"Documents: {counts}. Planned contrasts in the family: {family}."], quality_table(summary)]
    for other in (summary["header"]["reference"], "random"):
        table = verdict_table(summary, "passkey", "hit", other, (AWARE, BLIND))
        if table:
            parts += [[f"Pass-key, difference from `{other}`:"], table]
    table = verdict_table(summary, "continuation", "kld", "random", ("",))
    if table:
        parts += [["KL, relative to that of `random`:"], table]
    table = sweep_table(folder / "results.jsonl", summary)
    if table:
        parts += [["Pass-key by tokens kept, aware:"], table]
    return "\n\n".join("\n".join(part) for part in parts)


def main(arguments):
    if len(arguments) not in (1, 3):
        sys.exit(__doc__)
    text = tables(pathlib.Path(arguments[0]))
    if len(arguments) == 1:
        print(text)
        return
    page, name = pathlib.Path(arguments[1]), arguments[2]
    begin, end = f"<!-- tables of {name} -->\n", f"<!-- end of {name} -->\n"
    old = page.read_text()
    if old.count(begin) != 1 or old.count(end) != 1:
        sys.exit(f"{page}: expected one line {begin.strip()} and one line {end.strip()}")
    before, rest = old.split(begin)
    page.write_text(before + begin + "\n" + text + "\n\n" + end + rest.split(end)[1])


main(sys.argv[1:])
