#!/usr/bin/env python3
"""Writes document_divergences.json: nll and kld of each document of models/tiny with five caches, for tests/eval/ab/coverage_test.cpp.

make_document_divergences.py KEEL: runs the experiment document_divergences.yaml with the program KEEL. This takes ten seconds.
"""
import json
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        config = os.path.join(here, "document_divergences.yaml")
        subprocess.run([sys.argv[1], "ab", config, "-o", out, "-q"], check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "results.jsonl")) as f:
            for line in f:
                record = json.loads(line)
                if record.get("kind") != "item" or record["arm"].endswith("#again"):
                    continue
                if record["metric"] == "nll" or (record["metric"] == "kld" and record["arm"] != "full"):
                    items = numbers.setdefault(record["metric"], {}).setdefault(record["arm"], {})
                    items[int(record["item"])] = float("%.6g" % record["value"])
    for arms in numbers.values():
        for arm in arms:
            arms[arm] = [arms[arm][item] for item in sorted(arms[arm])]
    with open(os.path.join(here, "document_divergences.json"), "w") as f:
        f.write(json.dumps(numbers).replace("], ", "],\n ").replace("}, ", "},\n") + "\n")


main()
