#!/bin/sh
# Builds with a sanitizer and runs tests labelled fast or isa: sanitize.sh asan | tsan
# Slow tests are left out; see the patterns below.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in asan | tsan) ;; *) echo "usage: $0 asan|tsan" >&2; exit 2 ;; esac
scripts/install-packages.sh check
cmake --preset "$1" -DKEEL_BUILD_BENCHMARKS=OFF >/dev/null
if [ "$1" = tsan ]; then
    # The programs that use several threads. Of the CPU backend only the wide kernels run, because
    # the scalar kernels share work among threads in the same way.
    programs="platform_tests plugin_tests cpu_tests cpu_attention_tests device_tests
        run_tests api_tests"
    # shellcheck disable=SC2086 # a list of words
    cmake --build --preset tsan --target keel_plugins keel_conformance $programs
    # The tests left out take long, and their only threads are the backend's workers, which cpu_tests
    # covers.
    # shellcheck disable=SC2086
    exec ctest --preset tsan -j "$(nproc)" \
        -R "^($(echo $programs | tr ' ' '|')):|^conformance: cpu isa=avx" \
        -E "^run_tests:.*(session|pinned|system prompt|scores|leave)"
fi
cmake --build --preset asan
# These are left out because they take long: shards, mpirun and resuming of experiments.
exec ctest --preset asan -j "$(nproc)" -E "^ab_command_tests:.*(shards|mpirun|killed)"
