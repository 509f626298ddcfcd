"""Runs lm-evaluation-harness against a Keel server: lm_eval_client.py URL KEEL FOLDER

KEEL is the program, which measures the perplexity of the same text. FOLDER is for temporary files.
"""
import json
import math
import os
import pathlib
import subprocess
import sys

url, keel, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
root = pathlib.Path(__file__).resolve().parents[2]
model = root / "models" / "tiny"
os.environ["HF_HUB_OFFLINE"] = "1"

# Documents: pieces of the held-out text that fit into the context.
text = (model / "heldout.txt").read_text()
pieces = [text[i:i + 600].strip() for i in range(0, 3000, 600)]
with open(folder / "documents.jsonl", "w") as file:
    for piece in pieces:
        words = piece.split(" ")
        right, wrong = " " + words[-1], " zebra xylophone"
        file.write(json.dumps({"text": piece, "context": " ".join(words[:-1]), "choices": [right, wrong]}) + "\n")
for task in (root / "tests" / "clients" / "tasks").glob("*.yaml"):
    (folder / task.name).write_text(task.read_text().replace("FOLDER", str(folder)))


def run(name, tasks, options="", served="tiny"):
    arguments = f"model={served},base_url={url}/v1/completions,max_length=1024{options}"
    output = folder / name
    command = ["lm_eval", "--model", "local-completions", "--model_args", arguments, "--tasks", tasks,
               "--include_path", str(folder), "--output_path", str(output), "--log_samples"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)
    found = next(output.rglob("results*.json"))
    return json.loads(found.read_text())["results"]


def keel_nats():
    """The sum of -log p of all documents by `keel eval`, each with the begin token in front."""
    total = 0.0
    for i, piece in enumerate(pieces):
        path = folder / f"piece{i}.txt"
        path.write_text(piece)
        result = subprocess.run([keel, "eval", "perplexity", str(model), "--text", str(path), "--json", "-q"],
                                capture_output=True, text=True, check=True)
        total += sum(w["nll"] * w["tokens"] for w in json.loads(result.stdout)["windows"])
    return total


# Once with the server's tokenizer (/tokenizer_info, /tokenize), once with that of Hugging Face and
# several requests at once. With tokenizer= but without tokenizer_backend=, lm_eval 0.4.13 puts a
# second begin token before texts that it scores.
alone = run("alone", "keel_rolling,keel_choice,keel_generate")
batched = run("batched", "keel_rolling,keel_choice,keel_generate",
              f",tokenizer={model},tokenizer_backend=huggingface,num_concurrent=4")
for task in ("keel_rolling", "keel_choice", "keel_generate"):
    numbers = {k: v for k, v in alone[task].items() if isinstance(v, float)}
    other = {k: v for k, v in batched[task].items() if isinstance(v, float)}
    assert numbers == other, (task, numbers, other)
print("lm_eval:", {t: {k: v for k, v in r.items() if isinstance(v, float)} for t, r in alone.items()})
assert alone["keel_choice"]["acc,none"] == 1.0, alone

bytes_total = sum(len(p.encode()) for p in pieces)
by_server = alone["keel_rolling"]["bits_per_byte,none"] * bytes_total * math.log(2)
by_keel = keel_nats()
print(f"nats of the text: lm_eval {by_server:.4f}, keel eval {by_keel:.4f}")
assert abs(by_server - by_keel) < 1e-3 * by_keel, (by_server, by_keel)

window = run("window", "keel_rolling", served="tiny@window")
assert window["keel_rolling"] != alone["keel_rolling"], "the alias has no effect"
