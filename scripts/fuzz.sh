#!/bin/sh
# Builds the fuzz targets with clang and runs each for a while: fuzz.sh [SECONDS, default 60].
set -eu
cd "$(dirname "$0")/.."
scripts/install-packages.sh check
cmake --preset fuzz -DKEEL_BUILD_BENCHMARKS=OFF -DKEEL_FUZZ_SECONDS="${1:-60}" >/dev/null
cmake --build --preset fuzz --target keel_fuzz_targets
exec ctest --test-dir build/fuzz/tests/fuzz -L fuzz -j "$(nproc)" --output-on-failure
