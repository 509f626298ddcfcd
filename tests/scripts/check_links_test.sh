#!/bin/sh
# check-links.sh accepts a good tree and refuses each bad example.
set -eu
script=$(cd "$(dirname "$0")/../../scripts" && pwd)/check-links.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/docs/reference" "$tree/docs/results" "$tree/core"
fresh() {
    printf '# Map\n[Keys](reference/keys.md), [results](results/), [web](https://example.com/none.md)\n' >"$tree/docs/README.md"
    {
        printf '# Keys\n\n## A `key`: [its](../README.md#map) range!\n\n## Twice\n\n## Twice\n\n'
        printf '[a](#a-key-its-range), [b](keys.md#twice-1), [c](../../core), [d](../../core/main.cpp)\n'
        printf '`[code](none.md)`\n\n```\n# no heading\n[code](none.md)\n```\n'
    } >"$tree/docs/reference/keys.md"
    printf '# One\n' >"$tree/docs/results/one.md"
    printf '// See %s.\n' docs/reference/keys.md >"$tree/core/main.cpp"
}
# Usage: refused TEXT. Checks that the script fails and prints TEXT.
refused() {
    if output=$("$script" "$tree" 2>&1); then
        echo "check-links.sh accepted what it has to refuse: $1"
        exit 1
    fi
    case $output in *"$1"*) ;; *) printf 'check-links.sh printed\n%s\ninstead of: %s\n' "$output" "$1"; exit 1 ;; esac
    fresh
}

fresh
"$script" "$tree"

echo '[x](none.md)' >>"$tree/docs/results/one.md"
refused 'docs/results/one.md:2: no such file: none.md'
echo '[good](one.md), ![x](../../none.svg)' >>"$tree/docs/results/one.md"
refused 'docs/results/one.md:2: no such file: ../../none.svg'
echo '[x](../../../one.md)' >>"$tree/docs/results/one.md"
refused 'docs/results/one.md:2: no such file: ../../../one.md'
echo '[x](../reference/keys.md#none)' >>"$tree/docs/results/one.md"
refused 'docs/results/one.md:2: no such heading: ../reference/keys.md#none'
echo '[x](#no-heading)' >>"$tree/docs/reference/keys.md"
refused 'no such heading: #no-heading'
printf '# New\n' >"$tree/docs/reference/new.md"
refused 'docs/reference/new.md: docs/README.md does not link this page'
rm "$tree/docs/reference/new.md"
printf 'int x;\n"see %s"\n' docs/none.md >"$tree/core/main.cpp"
refused 'core/main.cpp:2: no such page: docs/none.md'
"$script" "$tree"
