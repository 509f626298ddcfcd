#!/bin/sh
# Installs missing Debian packages of scripts/packages.txt:
#   install-packages.sh build | test | check | cross
# Each word includes the packages of the words before it. The script needs root (or sudo) only if a
# package is missing.
set -eu
step=${1:-build}
list=$(dirname "$0")/packages.txt
case $step in build | test | check | cross) ;; *) echo "usage: $0 build|test|check|cross" >&2; exit 2 ;; esac

wanted=$(awk -v last="$step" '
    /^#/ || /^$/ {next}
    /^\[/ {if (done) exit; if ($0 == "[" last "]") done = 1; next}
    {print}' "$list")
missing=
for package in $wanted; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "Installing:$missing"
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "$0: not root and no sudo; install by hand:$missing" >&2; exit 1; }
    as_root=sudo
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
