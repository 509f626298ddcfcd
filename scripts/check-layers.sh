#!/bin/sh
# Checks that each layer includes only the layers that the table below allows: check-layers.sh
# [FOLDER] (default: this tree). Prints each include that is not allowed. If there is one, the exit
# code is 1.
#
# The layer of a file is the longest folder in the table that contains the file. All layers may
# include the headers of the SDK (<keel/...>). Plugins may include nothing else of the core. CMake
# also restricts the core and eval to the targets that they link to. This table is stricter, because
# CMake also allows targets that are linked indirectly.
#
# In the table, a name without a slash is a folder of core/, except in the first column.
set -eu
cd "${1:-$(dirname "$0")/..}"

allowed='
core/base:
core/numbers: base
core/platform: base
core/format: base numbers platform
core/plugin: base numbers platform
core/reference: base numbers
core/device: base platform plugin reference
core/ops: base platform plugin device reference
core/text: base platform format
core/model: base numbers platform format device
core/graph: base numbers platform device ops model
core/convert: base numbers platform format model text
core/kv: base numbers platform plugin device ops graph
core/config: base platform format plugin text
core/run: base numbers platform plugin reference device ops text model graph kv config
core/schedule: base plugin text kv config run
eval/stats: base
eval/page: base platform
eval/scoring: base text config run eval/stats
eval/compare: base numbers platform device ops reference text run eval/scoring
eval/replay: base numbers platform plugin device ops reference eval/compare
eval/bench: base numbers platform device ops config run eval/stats eval/page eval/compare
eval/evictions: base platform kv eval/page
eval/ab: base platform plugin reference device text config run eval/stats eval/page eval/scoring
plugins/common:
plugins/gpu: plugins/common
plugins/cpu: plugins/common
plugins/opencl: plugins/common plugins/gpu
plugins/vulkan: plugins/common plugins/gpu
api: base plugin config run schedule
server/http: base
server/service: base platform text config server/http
apps/keel: server/http server/service base platform plugin reference device ops text model convert config run schedule eval/page eval/scoring eval/compare eval/replay eval/bench eval/evictions eval/ab
sdk/conformance: numbers reference
sdk/policy_check: base plugin
tests/abi:
tests/api: tests/support
tests/apps: reference tests/eval tests/server tests/support
tests/bad_plugins: base platform plugin tests/support
tests/base: base tests/support
tests/config: base platform config tests/support
tests/conformance: reference sdk/conformance
tests/device: reference device ops tests/support
tests/eval: base platform plugin reference device text config run eval/stats eval/page eval/scoring eval/compare eval/replay eval/bench eval/evictions eval/ab tests/support
tests/fuzz: server/http server/service base format text model config kv run eval/replay eval/bench eval/evictions eval/ab tests/support
tests/graph: device ops graph kv tests/support
tests/install: plugin
tests/kv: base platform plugin reference ops kv tests/support
tests/model: numbers platform format model convert run tests/run tests/support
tests/numbers: numbers tests/support
tests/ops: base platform ops tests/support
tests/platform: platform tests/support
tests/plugin: base plugin tests/support
tests/plugins: base numbers plugin device run schedule plugins/cpu plugins/gpu plugins/opencl plugins/vulkan sdk/conformance tests/run tests/support
tests/policies: plugin kv sdk/policy_check tests/support
tests/reference: numbers reference sdk/conformance
tests/server: base text server/http server/service tests/support
tests/run: base platform format plugin device text model convert graph kv config run schedule sdk/conformance tests/kv tests/support
tests/schedule: base platform plugin device text config kv run schedule tests/run tests/support
tests/support: base numbers format plugin reference device ops graph kv config run schedule sdk/conformance
tests/text: base format text tests/support
'
folders='core eval plugins api server apps sdk tests'
# shellcheck disable=SC2086 # a list of folders
sources=$(git ls-files $folders 2>/dev/null || true)
# shellcheck disable=SC2086
[ -n "$sources" ] || sources=$(find $folders -type f 2>/dev/null || true)
sources=$(printf '%s\n' "$sources" | grep -E '\.(c|h|cpp|hpp|inl)$')
# shellcheck disable=SC2086 # a list of files
wrong=$(printf '%s\n' "$sources" | grep -vE '^(core|api)/include/' |
    xargs grep -Hn '^ *#include "' | awk -v table="$allowed" -v sources="$sources" '
    BEGIN {
        rows = split(table, row, "\n")
        for (i = 1; i <= rows; ++i) {
            if (split(row[i], part, ":") < 2) continue
            layers[part[1]] = 1
            names = split(part[2], name, " ")
            for (k = 1; k <= names; ++k) may[part[1], name[k]] = 1
        }
        count = split(sources, list, "\n")
        for (i = 1; i <= count; ++i) is_file[list[i]] = 1
        # The folders in which the compiler searches for an include, by the top folder of the
        # including file.
        roots["core"] = roots["eval"] = roots["server"] = roots["api"] = roots["apps"] = ". core/"
        roots["plugins"] = "plugins/"
        roots["sdk"] = "sdk/ core/"
        roots["tests"] = "tests/ sdk/ plugins/ . core/"
    }
    # Returns the layer of a path that begins at the root of the tree, or "" if there is none.
    function layer_of(path,    parts, piece) {
        parts = split(path, piece, "/")
        if (parts > 2 && ((piece[1] "/" piece[2]) in layers)) return piece[1] "/" piece[2]
        return parts > 1 && (piece[1] in layers) ? piece[1] : ""
    }
    # Returns the layer of an include. The first root that contains the file decides. For generated
    # files, the first root that contains the folder decides.
    function target_layer(top, target,    i, count, root, path, to, first) {
        count = split(roots[top], root, " ")
        for (i = 1; i <= count; ++i) {
            path = root[i] == "." ? target : root[i] target
            to = layer_of(path)
            if (to == "") continue
            if (path in is_file) return to
            if (first == "") first = to
        }
        return first
    }
    {
        file = $0; sub(/:.*/, "", file)
        target = $0; sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
        from = layer_of(file)
        if (from == "") { print $0 ": the file is in no layer of scripts/check-layers.sh"; next }
        if (target !~ /\//) next # the included file is in the same folder
        top = from; sub(/\/.*/, "", top)
        to = target_layer(top, target)
        if (to == from) next
        if (to == "") { print $0 ": " (top == "plugins" ? "plugins include no layer of the core" : from " may include layers of this tree only"); next }
        short = to; sub(/^core\//, "", short)
        if (!((from, short) in may)) print $0 ": " from " may not include " to
    }')
[ -z "$wrong" ] || { printf '%s\n' "$wrong"; exit 1; }
