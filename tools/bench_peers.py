#!/usr/bin/env python3
"""Measures `keel bench` and the benchmark programs of its peers in turns, on the same GGUF files, and writes one table.

    tools/bench_peers.py --keel BUILD/bin/keel --peer "llama.cpp=LLAMA/build/bin/llama-bench" \\
        --peer "ik=IK/build/bin/llama-bench" --peer "ik -rtr=IK/build/bin/llama-bench -rtr 1" \\
        --model q4_0.gguf --model q8_0.gguf --prefill 512 --decode 64 --depth 0,2048 --rounds 5 -o table.md

Build the peer programs before you run this script. A peer is a name and a command. Two settings of one program are two peers. Each round
runs every program once on every file. A run takes one reading after its own warm-up. Every second round has the reverse order, so that other
load on the machine affects all programs in the same way. Each run of `keel bench` measures the memory bandwidth, so "of read" is a share of
the bandwidth in that round.

Columns: the median of each program, and "x best". "x best" compares Keel with the peer that has the best median in that row. It is the
median of the rounds' ratios. The numbers in brackets are the smallest and the largest ratio; with six rounds or more, they are the 95%
interval of the median by order statistics. Decoding at a depth needs a peer that can measure it: `-d` of newer versions of llama-bench, `-gp`
of the llama-bench of ik_llama.cpp, or a program `llama-batched-bench` in the same folder. Other peers show "-".

Needs Python 3.8 or later. If a program fails, its cells show "failed", its last line goes to standard error, and the exit code is 1.
"""
import argparse
import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys


class Peer:
    def __init__(self, text):
        name, equals, command = text.partition("=")
        if not equals or not name or not command:
            raise argparse.ArgumentTypeError("expected NAME=COMMAND, found %r" % text)
        self.name, self.command = name.strip(), shlex.split(command)
        try:
            help_text = subprocess.run(self.command[:1] + ["--help"], capture_output=True, text=True, timeout=60)
        except OSError as error:
            raise argparse.ArgumentTypeError("%s cannot be run: %s" % (self.command[0], error.strerror))
        options = help_text.stdout + help_text.stderr
        self.has_depth, self.has_gp = "--n-depth" in options, "-gp <" in options
        program = shutil.which(self.command[0]) or self.command[0]
        self.batched = os.path.join(os.path.dirname(os.path.abspath(program)), "llama-batched-bench")

    def run(self, model, threads, prefill, decode, depths):
        """Returns {(kind, length): tokens/s}."""
        command = self.command + ["-m", model, "-t", str(threads), "-r", "1", "-o", "json",
                                  "-p", ",".join(map(str, prefill)) or "0", "-n", str(decode if 0 in depths else 0)]
        deep = [d for d in depths if d > 0] if decode else []
        results = {}
        for row in run_json(command) if prefill or (decode and 0 in depths) else []:
            kind = ("prefill", row["n_prompt"]) if row["n_gen"] == 0 else ("decode", 0)
            results[kind] = row["avg_ts"]
        for depth in deep:
            if self.has_depth:
                more = ["-p", "0", "-n", str(decode), "-d", str(depth)]
            elif self.has_gp:
                more = ["-p", "0", "-n", "0", "-gp", "%d,%d" % (depth, decode)]
            elif os.access(self.batched, os.X_OK):
                results["decode", depth] = self.run_batched(model, threads, depth, decode)
                continue
            else:
                continue
            command = self.command + ["-m", model, "-t", str(threads), "-r", "1", "-o", "json"] + more
            for row in run_json(command):
                results["decode", depth] = row["avg_ts"]
        return results

    def run_batched(self, model, threads, depth, decode):
        """Returns the tokens/s of one sequence after a prompt of `depth` tokens."""
        row = run_json([self.batched, "-m", model, "-t", str(threads), "-c", str(depth + decode), "-npp", str(depth),
                        "-ntg", str(decode), "-npl", "1", "--output-format", "jsonl"] + self.command[1:])
        return row["speed_tg"]


class Keel:
    def __init__(self, name, program, arguments):
        self.name, self.program, self.arguments = name, program, arguments

    def run(self, model, threads, prefill, decode, depths):
        command = [self.program, "bench", model, "--threads", str(threads), "-r", "1", "--no-ops", "--json",
                   "--prefill", ",".join(map(str, prefill)) or "0", "--decode", str(decode),
                   "--depth", ",".join(map(str, depths)) or "0"] + self.arguments
        report = run_json(command)
        results = {("prefill", r["tokens"]): r["tokens_per_second"]["median"] for r in report["prefill"]}
        for r in report["decode"]:
            results["decode", r["depth"]] = r["tokens_per_second"]["median"]
            if r["of_bandwidth"] is not None:
                results["share", r["depth"]] = r["of_bandwidth"]
        results["load", 0] = report["load_seconds"]
        results["resident", 0] = report["peak_resident_bytes"]
        self.machine, self.description = report["machine"], report["backend"]["description"]
        self.version = "%s (%s)" % (report["version"], report["commit"] or "commit unknown")
        return results


class Failed(Exception):
    pass


def run_json(command):
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        if done.returncode != 0:
            raise ValueError
        return json.loads(done.stdout)
    except ValueError:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise Failed("%s: exit code %d: %s" % (" ".join(command), done.returncode, lines[-1]))


def interval(values):
    """Returns the median and its 95% interval by order statistics. For fewer than six values, the
    interval is their range."""
    values = sorted(values)
    n, k = len(values), 0
    # Finds the largest k with P(at most k of n fair coins show heads) <= 2.5%.
    tail = 0.0
    for i in range(n):
        tail += math.comb(n, i) / 2.0 ** n
        if tail > 0.025:
            break
        k = i
    return statistics.median(values), values[k], values[n - 1 - k]


def numbers(text):
    try:
        return [int(n) for n in text.split(",") if int(n) > 0 or n.strip() == "0"]
    except ValueError:
        raise argparse.ArgumentTypeError("expected numbers with commas, found %r" % text)


def table(readings, programs, keel, models, prefill, decode, depths):
    peers = [p for p in programs if p is not keel]
    head = ["file", "test", keel.name] + [p.name for p in peers] + ["x best", "of read"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    tests = [("prefill", n) for n in prefill if n] + ([("decode", d) for d in depths] if decode else [])
    for model in models:
        for kind, length in tests:
            row = [os.path.basename(model), "prefill %d" % length if kind == "prefill" else "decode at %d" % length]
            rounds = {p.name: readings[p.name, model] for p in programs}

            def values(name):
                return [r[kind, length] for r in rounds[name] if r and (kind, length) in r]
            best, best_median = None, 0.0
            for p in [keel] + peers:
                of = values(p.name)
                failed = any(r is None for r in rounds[p.name])
                row.append("%.1f" % statistics.median(of) if of else "failed" if failed else "-")
                if of and p is not keel and statistics.median(of) > best_median:
                    best, best_median = p.name, statistics.median(of)
            ratios = [] if best is None else [
                mine[kind, length] / theirs[kind, length] for mine, theirs in zip(rounds[keel.name], rounds[best])
                if mine and theirs and (kind, length) in mine and (kind, length) in theirs]
            row.append("%.2f [%.2f, %.2f]" % interval(ratios) if ratios else "-")
            shares = [r["share", length] for r in rounds[keel.name] if r and ("share", length) in r]
            row.append("%.0f%%" % (100 * statistics.median(shares)) if kind == "decode" and shares else "-")
            lines.append("| " + " | ".join(row) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", required=True, metavar="PROGRAM")
    parser.add_argument("--keel-args", default="", metavar="'ARGS'", help="more arguments of `keel bench`, e.g. '--set backend.params.isa=avx2'")
    parser.add_argument("--peer", action="append", type=Peer, default=[], metavar="NAME=COMMAND")
    parser.add_argument("--model", action="append", required=True, metavar="FILE.gguf")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prefill", type=numbers, default=[512], metavar="N,N")
    parser.add_argument("--decode", type=int, default=64, metavar="N")
    parser.add_argument("--depth", type=numbers, default=[0], metavar="N,N")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", metavar="FILE.md", help="also write the table there")
    parser.add_argument("--json", metavar="FILE", help="write every reading there")
    args = parser.parse_args()
    keel = Keel("Keel", args.keel, shlex.split(args.keel_args))
    if any(word.startswith("--batch") for word in keel.arguments):
        parser.error("--keel-args: --batch: peers decode one sequence here, several of Keel's would stand beside one of theirs")
    programs = [keel] + args.peer
    if len({p.name for p in programs}) != len(programs):
        parser.error("two programs have the same name")
    prefill = [n for n in args.prefill if n]
    readings = {(p.name, m): [] for p in programs for m in args.model}
    failed = False
    for r in range(args.rounds):
        for model in args.model:
            for p in programs if r % 2 == 0 else reversed(programs):
                try:
                    reading = p.run(model, args.threads, prefill, args.decode, args.depth)
                except Failed as error:
                    print(error, file=sys.stderr)
                    failed, reading = True, None
                readings[p.name, model].append(reading)
                print("round %d of %d: %s, %s: %s" % (
                    r + 1, args.rounds, os.path.basename(model), p.name, "failed" if reading is None else ", ".join(
                        "%s %d %.1f" % (k[0], k[1], v) for k, v in reading.items() if k[0] in ("prefill", "decode"))), file=sys.stderr)
    lines = []
    if hasattr(keel, "machine"):
        lines += ["%s, %d processors, %.1f GiB; %d threads; %d rounds; Keel %s: %s" % (
            keel.machine["cpu"], keel.machine["processors"], keel.machine["memory_bytes"] / 2 ** 30, args.threads, args.rounds,
            keel.version, keel.description), ""]
    lines += table(readings, programs, keel, args.model, prefill, args.decode, args.depth)
    loads = ["%s %.2f s, %.2f of the file" % (
        os.path.basename(m), statistics.median(r["load", 0] for r in readings[keel.name, m] if r),
        statistics.median(r["resident", 0] for r in readings[keel.name, m] if r) / os.path.getsize(m))
        for m in args.model if any(readings[keel.name, m])]
    lines += ["", "Keel's loading and most resident memory: " + "; ".join(loads)]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if args.output:
        with open(args.output, "w") as file:
            file.write(text)
    if args.json:
        with open(args.json, "w") as file:
            json.dump([{"program": p.name, "model": m, "rounds": [
                None if r is None else {"%s %d" % k: v for k, v in r.items()} for r in readings[p.name, m]]}
                for p in programs for m in args.model], file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
