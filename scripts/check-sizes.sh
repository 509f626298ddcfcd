#!/bin/sh
# Checks the size of source files: check-sizes.sh [FOLDER] (default: this tree). A line may have at
# most 100 columns, and a file at most 400 lines. scripts/long_files.txt lists at most ten
# exceptions with their reasons; these files may have at most 800 lines. The script prints each
# error. If there is one, the exit code is 1.
set -eu
cd "${1:-$(dirname "$0")/..}"
failed=0
complain() { printf '%s\n' "$1"; failed=1; }

sources=$(git ls-files 2>/dev/null || true)
[ -n "$sources" ] || sources=$(find . -type f | sed 's#^\./##')
sources=$(printf '%s\n' "$sources" | grep -E '\.(c|h|cpp|hpp|inl|cl|comp|js|css)$' |
    grep -v '^tests/abi/abi_frozen\.c$') # a script generates this file

# mawk counts bytes, so a character of several bytes is first reduced to one byte.
wide=$(printf '%s\n' "$sources" | xargs awk '
    length > 100 { line = $0; gsub(/[\200-\277]/, "", line); if (length(line) > 100) print FILENAME ":" FNR }')
[ -z "$wide" ] || complain "lines of more than 100 columns:
$wide"

exceptions=scripts/long_files.txt
allowed=$( [ -f $exceptions ] && sed -n 's/^\([^#|]*[^ |]\) *| *[^ ].*$/\1/p' $exceptions || true)
[ "$(printf '%s\n' "$allowed" | grep -c .)" -le 10 ] || complain "$exceptions: more than ten exceptions"
long=$(printf '%s\n' "$sources" | xargs wc -l | awk '$2 != "total" && $1 > 400 { print $2, $1 }')
for file in $allowed; do
    printf '%s\n' "$long" | grep -q "^$file " || complain "$exceptions: $file has no more than 400 lines; remove its line"
done
long=$(printf '%s\n' "$long" | while read -r file lines; do
    [ -n "$file" ] || continue
    if [ "$lines" -gt 800 ] || ! printf '%s\n' "$allowed" | grep -qxF "$file"; then
        printf '%s: %s lines\n' "$file" "$lines"
    fi
done)
[ -z "$long" ] || complain "files of more than 400 lines that $exceptions does not list, or of more than 800:
$long"
exit $failed
