#!/bin/sh
# check-layers.sh and check-sizes.sh accept a good tree and refuse each bad example.
set -eu
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/core/base" "$tree/core/kv/store" "$tree/core/run" "$tree/eval/stats" "$tree/plugins/cpu" "$tree/scripts" \
    "$tree/api" "$tree/apps/keel" "$tree/sdk/policy_check" "$tree/tests/kv" "$tree/tests/base"
fresh() {
    printf '#pragma once\n' >"$tree/core/base/error.hpp"
    printf '#include "base/error.hpp"\n' >"$tree/core/kv/store/arena.cpp"
    printf '#include "eval/stats/spread.hpp"\n' >"$tree/eval/stats/spread.cpp"
    printf '#include "cpu/context.hpp"\n#include "kernels.inc"\n' >"$tree/plugins/cpu/context.cpp"
    printf '#include "kv/store/arena.hpp"\n' >"$tree/core/run/session.hpp"
    printf '#include "run/session.hpp"\n' >"$tree/api/keel.cpp"
    printf '#include "eval/stats/spread.hpp"\n' >"$tree/eval/stats/spread.hpp"
    printf '#include "eval/ab/run.hpp"\n#include "usage.hpp"\n' >"$tree/apps/keel/main.cpp"
    printf '#include "policy_check/check.hpp"\n' >"$tree/sdk/policy_check/check.cpp"
    printf '#include "kv/store/arena.hpp"\n#include "support/skip.hpp"\n' >"$tree/tests/kv/rig.hpp"
    printf '#include "base/error.hpp"\n' >"$tree/tests/base/error_test.cpp"
    rm -f "$tree/scripts/long_files.txt"
}
# Usage: refused SCRIPT TEXT. Checks that the script fails and prints TEXT.
refused() {
    if output=$("$scripts/$1" "$tree" 2>&1); then
        echo "$1 accepted what it has to refuse: $2"
        exit 1
    fi
    case $output in *"$2"*) ;; *) printf '%s printed\n%s\ninstead of: %s\n' "$1" "$output" "$2"; exit 1 ;; esac
}
lines() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; ++i) print "int x" i ";" }'; }

fresh
"$scripts/check-layers.sh" "$tree"
"$scripts/check-sizes.sh" "$tree"

printf '#include "kv/store/arena.hpp"\n' >"$tree/core/base/error.hpp"
refused check-layers.sh 'core/base may not include core/kv'
fresh
printf '#include "run/session.hpp"\n' >"$tree/eval/stats/spread.cpp"
refused check-layers.sh 'eval/stats may not include core/run'
fresh
printf '#include "gpu/view.hpp"\n' >"$tree/plugins/cpu/context.cpp"
refused check-layers.sh 'plugins/cpu may not include plugins/gpu'
printf '#include "base/error.hpp"\n' >"$tree/plugins/cpu/context.cpp"
refused check-layers.sh 'plugins include no layer of the core'
fresh
mkdir -p "$tree/core/odd"
printf '#include "base/error.hpp"\n' >"$tree/core/odd/odd.cpp"
refused check-layers.sh 'core/odd/odd.cpp:1:#include "base/error.hpp": the file is in no layer'
rm -r "$tree/core/odd"
printf '#include "eval/stats/spread.hpp"\n' >"$tree/api/keel.cpp"
refused check-layers.sh 'api may not include eval/stats'
fresh
printf '#include "kv/store/arena.hpp"\n' >"$tree/apps/keel/main.cpp"
refused check-layers.sh 'apps/keel may not include core/kv'
printf '#include "cpu/context.hpp"\n' >"$tree/apps/keel/main.cpp"
refused check-layers.sh 'apps/keel may include layers of this tree only'
fresh
printf '#include "run/session.hpp"\n' >"$tree/sdk/policy_check/check.cpp"
refused check-layers.sh 'sdk/policy_check may not include core/run'
fresh
# This header is in another folder of tests/, whose name is also a layer of the core.
printf '#include "kv/rig.hpp"\n' >"$tree/tests/base/error_test.cpp"
refused check-layers.sh 'tests/base may not include tests/kv'
printf '#include "run/session.hpp"\n' >"$tree/tests/kv/rig.hpp"
refused check-layers.sh 'tests/kv may not include core/run'
fresh
mkdir -p "$tree/tests/odd"
printf '#include "base/error.hpp"\n' >"$tree/tests/odd/odd_test.cpp"
refused check-layers.sh 'tests/odd/odd_test.cpp:1:#include "base/error.hpp": the file is in no layer'
rm -r "$tree/tests/odd"

printf '// %0101d\n' 0 >"$tree/core/base/error.hpp"
refused check-sizes.sh 'core/base/error.hpp:1'
fresh
lines 401 >"$tree/core/base/error.hpp"
refused check-sizes.sh 'core/base/error.hpp: 401 lines'
printf 'core/base/error.hpp | one table\n' >"$tree/scripts/long_files.txt"
"$scripts/check-sizes.sh" "$tree"
lines 801 >"$tree/core/base/error.hpp"
refused check-sizes.sh 'core/base/error.hpp: 801 lines'
lines 10 >"$tree/core/base/error.hpp"
refused check-sizes.sh 'remove its line'
