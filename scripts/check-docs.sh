#!/bin/sh
# Checks docs/ with an installation: the links of the installed pages, the projects whose files
# pages print, and the commands of the tutorials.
#   check-docs.sh [BUILD]
# BUILD (default: build/release) is installed to a temporary folder, as
# docs/how-to/write-a-backend.md describes. In the pages listed below, the first line of a fenced
# block says how the block is used:
#   // PROJECT/FILE, or # PROJECT/FILE   the rest of the block is the text of this file
#   # in PROJECT/                        the block has commands, which run in the project's folder;
#                                        PREFIX in the commands is the installation
# Other blocks are not checked. All blocks of commands (sh) of a tutorial run in their order, in
# this folder, as a reader would run them. If the project's CMakeLists.txt names FILE and the page
# links to it as [FILE](PATH), then PATH is copied to the project.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
pages="docs/how-to/write-a-backend.md docs/how-to/write-a-policy.md"
fail() { printf '%s: %s\n' "$0" "$1" >&2; exit 1; }
[ -f "$build/cmake_install.cmake" ] || fail "no build in $build: run scripts/quickstart.sh first"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$build" --prefix "$folder/prefix" >"$folder/log" 2>&1 ||
    { cat "$folder/log"; fail "cmake --install $build failed"; }
export PREFIX="$folder/prefix"
unset KEEL_PLUGIN_PATH CXXFLAGS CFLAGS LDFLAGS

# Reads a page from standard input. Writes its blocks to the files "$1"/PROJECT/FILE, and its
# commands to "$1"/PROJECT/commands.sh.
extract() {
    awk -v folder="$1" '
        function open(name) {
            file = folder "/" name
            project = file
            sub(/\/[^\/]*$/, "", project)
            system("mkdir -p \"" project "\"")
        }
        /^```/ { if (inside) { if (file != "") close(file); file = "" } inside = !inside; first = inside; next }
        inside && first {
            first = 0
            if ($0 ~ /^(\/\/|#) [a-z0-9_]+\/[A-Za-z0-9_.]+$/) { open($2); next }
            if ($0 ~ /^# in [a-z0-9_]+\/$/) { open($3 "commands.sh"); next }
        }
        inside && file != "" { print >file }'
}

# Every link of an installed page must point to an installed file.
broken=$(find "$PREFIX/share/keel" -name '*.md' | while read -r page; do
    grep -oE '\]\([^)# ]+' "$page" | sed 's/^](//' | grep -vE '^[a-z]+:' | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || printf '  %s: %s\n' "${page#"$PREFIX/"}" "$link"
    done
done)
[ -z "$broken" ] || fail "links of installed pages that lead nowhere (cmake/KeelInstall.cmake installs the pages):
$broken"

for page in $pages; do
    projects=$folder/$(basename "$page" .md)
    extract "$projects" <"$page"
    found=$(find "$projects" -name CMakeLists.txt 2>/dev/null)
    [ -n "$found" ] || fail "$page: expected a block that begins with '# PROJECT/CMakeLists.txt', found none"
    for list in $found; do
        project=$(dirname "$list") name=$(basename "$(dirname "$list")")
        [ -f "$project/commands.sh" ] || fail "$page: expected a block that begins with '# in $name/', found none"
        sed -n 's/.*\[\([A-Za-z0-9_]*\.[a-z]*\)](\([^)#]*\)).*/\1 \2/p' "$page" | while read -r file path; do
            if grep -qw -- "$file" "$list" && [ ! -e "$project/$file" ]; then cp "$(dirname "$page")/$path" "$project/$file"; fi
        done
        printf '%s: %s\n' "$page" "$name"
        (cd "$project" && sh -eux commands.sh) >"$folder/log" 2>&1 ||
            { cat "$folder/log"; fail "$page: the commands of $name failed, see above"; }
        grep -q '^100% tests passed' "$folder/log" || fail "$page: $name: expected ctest to run its tests, it ran none"
    done
done
for page in docs/tutorial/*.md; do
    printf '%s\n' "$page"
    rm -rf build/tutorial
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$page" >"$folder/commands.sh"
    [ -s "$folder/commands.sh" ] || fail "$page: expected blocks of commands (\`\`\`sh), found none"
    sh -eux "$folder/commands.sh" >"$folder/log" 2>&1 </dev/null ||
        { cat "$folder/log"; fail "$page: a command failed, see above"; }
done

echo "links, the projects of $pages, and the tutorials: ok"
