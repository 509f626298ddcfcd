#!/bin/sh
# Builds everything and runs all tests. The arguments are passed to ctest (-L fast, -R kv, ...).
set -eu
cd "$(dirname "$0")/.."
scripts/install-packages.sh test
cmake --preset release -DKEEL_BUILD_TESTS=ON -DKEEL_BUILD_BENCHMARKS=ON >/dev/null
cmake --build --preset release
exec ctest --preset release -j "$(nproc)" "$@"
