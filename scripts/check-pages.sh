#!/bin/sh
# Opens a report of `keel ab` in headless Chromium: check-pages.sh KEEL [SCREENSHOTS]
# Runs tests/pages/report.yaml with the program KEEL (default: build/release/bin/keel), then
# tests/pages/report_page.py on its report. SCREENSHOTS is a folder for pictures of the page.
# KEEL_CHROMIUM names another browser. Exits with 77 if there is no Chromium or no Python.
set -eu
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1
keel=${1:-build/release/bin/keel} pictures=${2:-}
if ! command -v python3 >/dev/null; then
    echo "SKIPPED: check-pages.sh needs python3; install it"
    exit 77
fi
if ! (cd tests/pages && python3 -c 'import browser, sys; sys.exit(not browser.find_chromium())'); then
    echo "SKIPPED: check-pages.sh needs Chromium; install the Debian package chromium, or set KEEL_CHROMIUM"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$keel" ab tests/pages/report.yaml -q -o "$folder/out" >/dev/null
# The same results as an older program wrote them.
mkdir "$folder/old"
grep -v '"kind":"prompt"' "$folder/out/results.jsonl" | sed 's/,"kept":"[^"]*"//' >"$folder/old/results.jsonl"
"$keel" ab report "$folder/old" >/dev/null
[ -z "$pictures" ] || mkdir -p "$pictures"
python3 tests/pages/report_page.py "$folder/out" "$folder/old" $pictures
