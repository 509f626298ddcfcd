#!/bin/bash
# Cross-builds for ARM64 and runs the CPU backend's tests labelled isa under emulation, on the processors that are named:
# test-aarch64.sh [neoverse-n1] [max] (default: both). neoverse-n1 has NEON and dotprod, max all that there are kernels for; what the
# first has run the second leaves out. Any other of qemu-aarch64 runs all that it has. Emulation is some 30 times slower than a machine.
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
    # QEMU makes /proc/self/smaps up, flags and all, so what a mapping was advised to be cannot be read there.
    QEMU_CPU=$processor KEEL_TEST_ISAS=$sets ctest --preset aarch64-test -j "$(nproc)" -R "$tests" -E "a reservation takes no huge pages"
done
