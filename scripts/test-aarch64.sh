#!/bin/bash
# Cross-builds for ARM64 and runs the CPU backend's tests labelled isa under emulation, on the named
# processors: test-aarch64.sh [neoverse-n1] [max] (default: both).
# neoverse-n1 has NEON and dotprod. max has all instruction sets that have kernels. Tests that ran
# on the first are not run again on the second. Any other processor of qemu-aarch64 runs all tests
# that it can. Emulation is about 30 times slower than a real processor.
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
    # QEMU invents the content of /proc/self/smaps, including the flags. So tests cannot read there
    # which advice was given for a mapping.
    QEMU_CPU=$processor KEEL_TEST_ISAS=$sets ctest --preset aarch64-test -j "$(nproc)" -R "$tests" -E "a reservation takes no huge pages"
done
