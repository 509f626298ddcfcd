#!/bin/sh
# Builds the fuzz targets (in the build tree of the preset asan) and runs each of them for SECONDS:
# fuzz.sh [SECONDS]
# By default, all runs together take about 80 s, and a single run takes at most 60 s. The time for
# the build is not included.
set -eu
cd "$(dirname "$0")/.."
scripts/install-packages.sh check
if [ $# -gt 0 ]; then
    seconds=$1
else
    seconds=$((80 * $(nproc) / $(grep -c '^keel_fuzz(' tests/fuzz/CMakeLists.txt)))
    [ "$seconds" -le 60 ] || seconds=60
fi
cmake --preset asan -DKEEL_BUILD_BENCHMARKS=OFF -DKEEL_FUZZ_SECONDS="$seconds" >/dev/null
cmake --build --preset asan --target keel_fuzz_targets
exec ctest --test-dir build/asan/tests/fuzz -L fuzz -j "$(nproc)" --output-on-failure
