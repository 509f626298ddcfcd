#!/bin/sh
# Checks the links of all Markdown pages: check-links.sh [FOLDER] (default: this tree). The rules
# are:
#
#  - A relative link points to a file or folder that git tracks. If the link has an anchor
#    (page.md#heading), the page has this heading.
#  - If a file mentions the path of a page in docs/, for example in a comment or in a help text, the
#    page exists.
#  - docs/README.md links to each page below docs/, or to the folder that contains the page.
#
# Links in code and links with a scheme (https:) are not checked. Anchors are formed like GitHub's:
# the heading in lower case, with "-" for spaces, and without all characters except letters, digits,
# "_" and "-". The second heading with the same name gets "-1" at its end. Prints each error. If
# there is one, the exit code is 1.
set -eu
cd "${1:-$(dirname "$0")/..}"

files=$(git ls-files 2>/dev/null || true)
[ -n "$files" ] || files=$(find . -type f | sed 's#^\./##')
pages=$(printf '%s\n' "$files" | grep '\.md$' || true)
# shellcheck disable=SC2086 # a list of files
wrong=$(
    printf '%s\n' "$files" | awk '
    function folder_of(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "" }
    # Returns the path without "." and "..". The result begins with ".." if the path leaves the
    # tree.
    function plain(path,    parts, piece, i, n, kept) {
        parts = split(path, piece, "/")
        n = 0
        for (i = 1; i <= parts; ++i) {
            if (piece[i] == "" || piece[i] == ".") continue
            if (piece[i] == ".." && n > 0 && kept[n] != "..") { --n; continue }
            kept[++n] = piece[i]
        }
        path = n > 0 ? kept[1] : "."
        for (i = 2; i <= n; ++i) path = path "/" kept[i]
        return path
    }
    function anchor_of(heading) {
        gsub(/\]\([^)]*\)/, "", heading) # removes the target of a link in the heading
        heading = tolower(heading)
        gsub(/[^a-z0-9_ -]/, "", heading)
        gsub(/ /, "-", heading)
        return heading
    }
    FILENAME == "-" { # reads the list of files of the tree and their folders
        exists[$0] = 1
        for (path = folder_of($0); path != ""; path = folder_of(path)) exists[path] = 1
        exists["."] = 1
        next
    }
    FNR == 1 { code = 0 }
    /^ *```/ { code = !code; next }
    code { next }
    /^#+ / {
        heading = $0
        sub(/^#+ +/, "", heading)
        sub(/ +$/, "", heading)
        anchor = anchor_of(heading)
        if ((FILENAME, anchor) in has) anchor = anchor "-" ++again[FILENAME, anchor]
        has[FILENAME, anchor] = 1
    }
    {
        line = $0
        gsub(/`[^`]*`/, "", line)
        while (match(line, /\]\([^) ]+/)) {
            target = substr(line, RSTART + 2, RLENGTH - 2)
            line = substr(line, RSTART + RLENGTH)
            if (target ~ /^[a-z]+:/) continue
            links[++count] = target
            place[count] = FILENAME ":" FNR
            page[count] = FILENAME
        }
    }
    END {
        for (i = 1; i <= count; ++i) {
            path = links[i]
            anchor = ""
            if (at = index(path, "#")) {
                anchor = substr(path, at + 1)
                path = substr(path, 1, at - 1)
            }
            path = path == "" ? page[i] : plain(folder_of(page[i]) "/" path)
            if (page[i] == "docs/README.md") mapped[path] = 1
            if (!(path in exists)) print place[i] ": no such file: " links[i]
            else if (anchor != "" && !((path, anchor) in has)) print place[i] ": no such heading: " links[i]
        }
        for (path in exists) {
            if (path !~ /^docs\/.*\.md$/ || path == "docs/README.md") continue
            if (!(path in mapped) && !(folder_of(path) in mapped)) print path ": docs/README.md does not link this page"
        }
    }' - $pages
    printf '%s\n' "$files" | grep -vE '^(docs|tests/scripts)/' | tr '\n' '\0' |
        xargs -0 grep -IHnoE '(^|[^A-Za-z0-9_.-])docs/[A-Za-z0-9_./-]+\.md' 2>/dev/null |
        sed 's#^\([^:]*:[0-9]*\):.*\(docs/.*\)#\1 \2#' | while read -r place path; do
        printf '%s\n' "$files" | grep -qxF "$path" || printf '%s: no such page: %s\n' "$place" "$path"
    done
)
[ -z "$wrong" ] || { printf '%s\n' "$wrong" | sort; exit 1; }
