#!/usr/bin/env python3
"""Compares Keel's rendering of chat templates with that of Hugging Face transformers.

    compare_chat_templates.py KEEL FOLDER        (KEEL: the program, such as build/release/bin/keel)

FOLDER has templates: files NAME.jinja. Each template renders the conversations of chat_conversations.py. The text must be
equal. If transformers refuses a conversation, Keel must refuse it too. The exit code is 1 if a rendering differs.
Published templates are not a part of this tree; collect them from the models that you use.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from transformers.utils.chat_template_utils import _compile_jinja_template

from chat_conversations import CONVERSATIONS

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARKS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}


def expected(template, request):
    messages = request["messages"]
    return template.render(messages=messages, tools=request.get("tools"), documents=request.get("documents"),
                           add_generation_prompt=request.get("add_generation_prompt", messages[-1]["role"] != "assistant"),
                           **MARKS, **request.get("chat_template_kwargs", {}))


def compare(keel, path, work):
    shutil.copy(path, work / "chat_template.jinja")
    try:
        template = _compile_jinja_template(path.read_text(encoding="utf-8"))
    except Exception as error:  # transformers cannot read the template
        print(f"{path.name}: not read by transformers ({error})")
        return 0
    equal, refused, bad = 0, 0, []
    for name, request in CONVERSATIONS.items():
        try:
            want = expected(template, request)
        except Exception as error:
            want = error
        (work / "talk.json").write_text(json.dumps(request, ensure_ascii=False), encoding="utf-8")
        got = subprocess.run([keel, "tokenize", work, "--chat", work / "talk.json", "--text"], capture_output=True)
        text = got.stdout.decode()
        if isinstance(want, Exception):
            refused += 1
            if got.returncode != 2:
                bad.append(f"  {name}: transformers refuses it ({want!r}), Keel gives {text[:200]!r}")
        elif got.returncode != 0:
            bad.append(f"  {name}: Keel refuses it: {got.stderr.decode()[:600]}")
        elif text != want:
            at = next((i for i, (a, b) in enumerate(zip(text, want)) if a != b), min(len(text), len(want)))
            bad.append(f"  {name}: at {at} expected {want[max(0, at - 40):at + 60]!r}, found {text[max(0, at - 40):at + 60]!r}")
        else:
            equal += 1
    print(f"{path.name}: {equal} equal, {refused} refused by transformers, {len(bad)} different")
    print("\n".join(bad), end="\n" if bad else "")
    return len(bad)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    paths = sorted(pathlib.Path(sys.argv[2]).glob("*.jinja"))
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ROOT / "models/tiny" / name, work / name)
        different = sum(compare(sys.argv[1], path, work) for path in paths)
    print(f"{len(paths)} templates, {different} different renderings")
    sys.exit(1 if different or not paths else 0)


if __name__ == "__main__":
    main()
