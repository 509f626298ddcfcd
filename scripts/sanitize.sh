#!/bin/sh
# Builds with a sanitizer and runs the tests labelled fast or isa: sanitize.sh asan | tsan.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in asan | tsan) ;; *) echo "usage: $0 asan|tsan" >&2; exit 2 ;; esac
scripts/install-packages.sh check
cmake --preset "$1" -DKEEL_BUILD_BENCHMARKS=OFF >/dev/null
if [ "$1" = tsan ]; then
    # The programs that run on more than one thread. The parsers, eval and the command line have
    # nothing to race with. Of the CPU backend the wide kernels run: they share work among threads
    # as the scalar ones do.
    programs="platform_tests plugin_tests cpu_tests cpu_attention_tests device_tests
        run_tests api_tests"
    # shellcheck disable=SC2086 # a list of words
    cmake --build --preset tsan --target keel_plugins keel_conformance $programs
    # What is left out takes a minute each and has no threads of its own.
    # shellcheck disable=SC2086
    exec ctest --preset tsan -j "$(nproc)" \
        -R "^($(echo $programs | tr ' ' '|')):|^conformance: cpu isa=avx" \
        -E "^run_tests:.*(session|pinned|system prompt|scores|leave)"
fi
cmake --build --preset asan
# Experiments in shards run what whole ones do.
exec ctest --preset asan -j "$(nproc)" -E "^ab_command_tests:.*(shards|mpirun|killed)"
