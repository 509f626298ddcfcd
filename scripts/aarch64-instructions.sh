#!/bin/bash
# Counts the instructions that the CPU backend's ops execute on ARM64, under emulation. The counts
# replace speed measurements if there is no ARM64 machine. They are the same in each run. The script
# prints a Markdown table with one column for each instruction set. A number is instructions per
# multiply-add with one thread; for ops on rows of elements it is instructions per element. The
# script needs gcc and the packages that scripts/test-aarch64.sh needs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${KEEL_AARCH64_BUILD:-build/aarch64}
if [ -z "${KEEL_AARCH64_BUILD:-}" ]; then
    scripts/install-packages.sh cross
    scripts/aarch64-sysroot.sh
    cmake --preset aarch64 >/dev/null
    cmake --build --preset aarch64 --target op_instructions
fi
sysroot=${KEEL_AARCH64_SYSROOT:-$PWD/build/aarch64-sysroot}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -shared -fPIC -o "$work/count.so" tools/emulation/count_instructions.c
kinds="scalar:exact neon:exact neon:fast dotprod:fast fp16:fast i8mm:fast"
for kind in $kinds; do
    qemu-aarch64 -cpu max -plugin "$work/count.so" -d plugin -D "$work/counts" -L /usr/aarch64-linux-gnu \
        -E LD_LIBRARY_PATH="$sysroot/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib" \
        "$build/bin/op_instructions" "${kind%:*}" "${kind#*:}" >"$work/labels"
    paste -d'|' "$work/labels" "$work/counts" >"$work/$kind"
done
# An output line is KERNEL|WHAT|WORK|instructions COUNT. The name of the kernel contains its op, its
# dtypes, its instruction set, and "exact" or "fast".
cd "$work"
# shellcheck disable=SC2086 # a list of files
awk -F'|' '
    FNR == 1 {columns[++n] = FILENAME; row = 0}
    {split($1, word, " "); split($4, count, " "); ++row
     name[row] = word[1] ~ /attention/ ? word[1] " " word[2] " " word[3] : word[1] ~ /matmul/ ? word[1] " " word[2] : word[1]
     what[row] = $2; value[row, n] = sprintf("%.3f", count[2] / $3)}
    END {line = "| op | shape |"; rule = "|---|---|"
         for (i = 1; i <= n; ++i) {sub(":", " ", columns[i]); line = line " " columns[i] " |"; rule = rule "---|"}
         print line; print rule
         for (r = 1; r <= row; ++r) {line = "| " name[r] " | " what[r] " |"; for (i = 1; i <= n; ++i) line = line " " value[r, i] " |"; print line}}
' $kinds
