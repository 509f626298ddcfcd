#!/bin/sh
# Tests scripts/check-skips.sh with generated output of ctest: it finds a skip that is not expected,
# and no other.
set -u
cd "$(dirname "$0")/../.." || exit 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export KEEL_EXPECTED_SKIPS="$folder/expected"
cat >"$folder/expected" <<'LIST'
# a comment
any | vectors: .* | not in the tree
asan tsan | kv: memory of the (system|host) | a sanitizer holds it
LIST
failures=0
# Usage: check STEP EXIT_CODE WORDS. Standard input is the output of ctest. Checks the exit code and
# that the message contains WORDS.
check() {
    cat >"$folder/output"
    message=$(scripts/check-skips.sh "$1" "$folder/output")
    code=$?
    case "$code $message" in "$2 "*"$3"*) return ;; esac
    printf 'step %s: expected code %s and "%s", found code %s and:\n%s\n' "$1" "$2" "$3" $code "$message"
    failures=$((failures + 1))
}

check test 0 "" <<'OUT'
1/2 Test #1: gpu: opens a device ....   Passed    0.01 sec
100% tests passed, 0 tests failed out of 2
OUT
check asan 0 "" <<'OUT'
The following tests did not run:
	  1 - vectors: real vocabularies (Skipped)
	 12 - kv: memory of the system (Skipped)
OUT
check test 1 "  kv: memory of the system" <<'OUT'
The following tests did not run:
	  1 - vectors: real vocabularies (Skipped)
	 12 - kv: memory of the system (Skipped)
OUT
# The regular expression must match the whole name.
check tsan 1 "  gpu: kv: memory of the system" <<'OUT'
	 12 - gpu: kv: memory of the system (Skipped)
OUT
check test 1 "  gpu: opens a device - vulkan" <<'OUT'
	1234 - gpu: opens a device - vulkan (Skipped)
The following tests FAILED:
	  1 - vectors: real vocabularies (Failed)
OUT
echo "any | no reason" >>"$folder/expected"
check test 1 "expected STEPS | NAMES | WHY" </dev/null
exit $failures
