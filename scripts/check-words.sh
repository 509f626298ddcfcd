#!/bin/sh
# Prints words and phrases of prose that readers must read twice, with the plain word to use instead.
# It looks at comments, string literals and Markdown. scripts/allowed_words.txt has the real uses.
# The benchmark pages are records of measurements, so they stay as they were written.
set -u
cd "$(dirname "$0")/.."

plain='anew=again
in vain=without effect
whoever=the caller, the user
somebody=a user, a program
nobody=no user, no one
thereof=of it
so many=this number of
goes along=is moved with
go along=are moved with
tells of=reports
is asked for=is requested
the former=the name of the thing
by lot=at random
hold against=compare with
held against=compared with
knows of=knows
stands twice=occurs twice
behind=after
mended=fixed'

git ls-files -- '*.c' '*.h' '*.cpp' '*.hpp' '*.inl' '*.cl' '*.comp' '*.glsl' '*.js' '*.css' '*.md' \
    '*.sh' '*.cmake' '*CMakeLists.txt' '*.yaml' '*.py' '.ci/run' |
    grep -vE '^docs/benchmarks/|^tests/(golden|fuzz)/|^scripts/check-words.sh$|^models/' |
    while read -r file; do [ -f "$file" ] && printf '%s\n' "$file"; done |
    xargs awk -v plain="$plain" -v allowed_file=scripts/allowed_words.txt '
    BEGIN {
        n = split(plain, entries, "\n")
        for (i = 1; i <= n; i++) {
            cut = index(entries[i], "=")
            word[i] = substr(entries[i], 1, cut - 1)
            instead[i] = substr(entries[i], cut + 1)
        }
        while ((getline line < allowed_file) > 0)
            if (line !~ /^#/ && line != "") allowed[line] = 1
    }
    # The prose of a line: comments and string literals of code, and all of a page.
    function prose(text,    out, rest) {
        if (FILENAME ~ /\.md$/) return text
        if (FILENAME ~ /\.(sh|cmake|yaml|py)$|CMakeLists|\.ci\/run/)
            return match(text, /(^|[ \t])#.*/) ? substr(text, RSTART) : (text ~ /"/ ? text : "")
        if (text ~ /^[ \t]*(\*|\/\*)/) return text
        out = ""
        rest = text
        while (match(rest, /"([^"\\]|\\.)*"/)) {
            out = out " " substr(rest, RSTART, RLENGTH)
            rest = substr(rest, 1, RSTART - 1) " " substr(rest, RSTART + RLENGTH)
        }
        if (match(rest, /\/\/.*/)) out = out " " substr(rest, RSTART)
        return out
    }
    {
        text = " " tolower(prose($0)) " "
        if (text ~ /^ *$/) next
        gsub(/[^a-z0-9_-]+/, " ", text)
        for (i = 1; i <= n; i++)
            if (index(text, " " word[i] " ") > 0 && !((FILENAME ": " word[i]) in allowed)) {
                printf "%s:%d: \"%s\"; write: %s\n", FILENAME, FNR, word[i], instead[i]
                found = 1
            }
    }
    END { exit found }'
