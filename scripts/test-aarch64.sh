#!/bin/bash
# Cross-builds for ARM64. Runs the CPU backend's tests with the label isa under emulation, on the
# named processors: test-aarch64.sh [neoverse-n1] [max] (default: both).
# neoverse-n1 has NEON and dotprod. max has all instruction sets that have kernels. Tests that ran
# on the first processor are not repeated on the second. Other processor names of qemu-aarch64 are
# also allowed; they run all tests that they support. Emulation is about 30 times slower than a real
# processor.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- neoverse-n1 max
scripts/install-packages.sh cross
scripts/aarch64-sysroot.sh
programs="cpu_tests cpu_attention_tests cpu_text_tests"
cmake --preset aarch64-test >/dev/null
# shellcheck disable=SC2086 # a list of words
cmake --build --preset aarch64-test --target cpu keel_conformance $programs
for processor in "$@"; do
    case $processor in
    neoverse-n1) sets="neon dotprod" tests="^($(echo "$programs" | tr ' ' '|')):|^conformance: cpu isa=(neon|dotprod) " ;;
    max) sets="fp16 i8mm" tests="^(cpu_tests|cpu_text_tests):|^conformance: cpu isa=(fp16|i8mm) " ;;
    *) sets="" tests="^($(echo "$programs" | tr ' ' '|')):|^conformance: cpu " ;;
    esac
    printf '\n--- ARM64, %s\n' "$processor"
    # QEMU does not show the real content of /proc/self/smaps. So this test cannot read the advice
    # that was given for a mapping.
    QEMU_CPU=$processor KEEL_TEST_ISAS=$sets ctest --preset aarch64-test -j "$(nproc)" -R "$tests" -E "a reservation takes no huge pages"
done
