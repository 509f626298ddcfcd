#!/bin/sh
# Checks that each layer includes only the layers that the table below allows: check-layers.sh [FOLDER]
# (default: this tree). Prints each include that is not allowed and exits with 1.
#
# A layer is the longest folder of the table that holds the file. Headers of the SDK (<keel/...>) are
# open to all layers; plugins see nothing else of the core. CMake holds the core and eval to their
# links as well; this table is stricter, because it does not follow links of links.
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
eval/stats: base
eval/page: base platform
eval/scoring: base text config run eval/stats
eval/compare: base numbers platform device ops reference text run eval/scoring
eval/replay: base numbers platform plugin device ops reference eval/compare
eval/bench: base platform device ops config run eval/stats eval/page eval/compare
eval/evictions: base platform kv eval/page
eval/ab: base platform plugin reference device text config run eval/stats eval/page eval/scoring
plugins/common:
plugins/gpu: plugins/common
plugins/cpu: plugins/common
plugins/opencl: plugins/common plugins/gpu
plugins/vulkan: plugins/common plugins/gpu
'
sources=$(git ls-files core eval plugins 2>/dev/null || true)
[ -n "$sources" ] || sources=$(find core eval plugins -type f)
# shellcheck disable=SC2086 # a list of files
wrong=$(printf '%s\n' "$sources" | grep -E '\.(c|h|cpp|hpp|inl)$' | grep -v '^core/include/' |
    xargs grep -Hn '^ *#include "' | awk -v table="$allowed" '
    BEGIN {
        rows = split(table, row, "\n")
        for (i = 1; i <= rows; ++i) {
            if (split(row[i], part, ":") < 2) continue
            layers[part[1]] = 1
            names = split(part[2], name, " ")
            for (k = 1; k <= names; ++k) may[part[1], name[k]] = 1
        }
    }
    # The layer of a path that begins at the root of the tree, or "".
    function layer_of(path,    parts, piece) {
        parts = split(path, piece, "/")
        return parts > 2 && ((piece[1] "/" piece[2]) in layers) ? piece[1] "/" piece[2] : ""
    }
    {
        file = $0; sub(/:.*/, "", file)
        target = $0; sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
        from = layer_of(file)
        if (from == "") { print $0 ": the file is in no layer of scripts/check-layers.sh"; next }
        if (from ~ /^plugins\// && target ~ /\//) {
            to = layer_of("plugins/" target)
            if (to == "") { print $0 ": plugins include no layer of the core"; next }
        } else {
            to = target ~ /^eval\// ? layer_of(target) : layer_of("core/" target)
        }
        if (to == "" || to == from) next
        short = to; sub(/^core\//, "", short)
        if (!((from, short) in may)) print $0 ": " from " may not include " to
    }')
[ -z "$wrong" ] || { printf '%s\n' "$wrong"; exit 1; }
