#!/bin/sh
# Compares the tests that ctest skipped with tests/expected_skips.txt: check-skips.sh STEP [FILE]
# STEP is a step of .ci/run. FILE is the output of ctest in this step (default: standard input).
# Prints each skipped test that the list does not allow in this step. If there is one, the exit code
# is 1. A listed test may also run instead of being skipped.
set -eu
step=$1 output=${2:--}
list=${KEEL_EXPECTED_SKIPS:-$(dirname "$0")/../tests/expected_skips.txt}
unexpected=$(awk -v step="$step" '
    NR == FNR {
        if (/^#/ || NF == 0) next
        if (split($0, part, / +\| +/) != 3) { print FILENAME ":" FNR ": expected STEPS | NAMES | WHY"; next }
        if ((" " part[1] " ") ~ (" (any|" step ") ")) allowed[++n] = "^(" part[2] ")$"
        next
    }
    /^\t *[0-9]+ - .* \(Skipped\)$/ {
        sub(/^\t *[0-9]+ - /, ""); sub(/ \(Skipped\)$/, "")
        for (i = 1; i <= n; ++i) if ($0 ~ allowed[i]) next
        print "  " $0
    }' "$list" "$output")
[ -z "$unexpected" ] && exit 0
printf 'skipped in step %s, but not expected in tests/expected_skips.txt (ctest -V -R NAME shows why):\n%s\n' \
    "$step" "$unexpected"
exit 1
