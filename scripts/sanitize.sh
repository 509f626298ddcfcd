#!/bin/sh
# Builds with a sanitizer and runs the tests with the label fast or isa: sanitize.sh asan | tsan
# Slow tests do not run. The patterns below exclude them.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in asan | tsan) ;; *) echo "usage: $0 asan|tsan" >&2; exit 2 ;; esac
scripts/install-packages.sh check
cmake --preset "$1" -DKEEL_BUILD_BENCHMARKS=OFF >/dev/null
if [ "$1" = tsan ]; then
    # The test programs that use several threads. For the CPU backend, only the tests of the wide
    # kernels run, because the scalar kernels share work among threads in the same way.
    programs="platform_tests plugin_tests cpu_tests cpu_attention_tests device_tests
        run_tests api_tests"
    # shellcheck disable=SC2086 # a list of words
    cmake --build --preset tsan --target keel_plugins keel_conformance $programs
    # The other tests take long. The only threads that they use are the backend's workers, which
    # cpu_tests covers.
    # shellcheck disable=SC2086
    exec ctest --preset tsan -j "$(nproc)" \
        -R "^($(echo $programs | tr ' ' '|')):|^conformance: cpu isa=avx" \
        -E "^run_tests:.*(session|pinned|system prompt|scores|leave)"
fi
cmake --build --preset asan
# These tests do not run, because they take long: shards, mpirun, and resuming experiments.
exec ctest --preset asan -j "$(nproc)" -E "^ab_command_tests:.*(shards|mpirun|killed)"
