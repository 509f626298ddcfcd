#!/bin/sh
# For a new clone: installs missing packages, builds the program and its plugins, and runs
# configs/quickstart.yaml.
set -eu
cd "$(dirname "$0")/.."
scripts/install-packages.sh build
cmake --preset release -DKEEL_BUILD_TESTS=OFF -DKEEL_BUILD_BENCHMARKS=OFF >/dev/null
cmake --build --preset release
echo
exec build/release/bin/keel run configs/quickstart.yaml "$@"
