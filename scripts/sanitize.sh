#!/bin/sh
# Builds with a sanitizer and runs the tests labelled fast or isa: sanitize.sh asan | tsan.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in asan | tsan) ;; *) echo "usage: $0 asan|tsan" >&2; exit 2 ;; esac
scripts/install-packages.sh test
cmake --preset "$1" -DKEEL_BUILD_BENCHMARKS=OFF >/dev/null
cmake --build --preset "$1"
# no leak check of what stays mapped on purpose: plugins are never closed
exec ctest --preset "$1" -j "$(nproc)"
