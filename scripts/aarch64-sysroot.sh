#!/bin/sh
# Unpacks the ARM64 Debian packages that Keel links to a folder, for cmake/aarch64-linux-gnu.cmake:
#   aarch64-sysroot.sh [FOLDER]   (default: $KEEL_AARCH64_SYSROOT, or build/aarch64-sysroot)
# The script installs nothing, does not change the system's list of architectures, and needs no
# root. apt works in its own folder, with the package sources and keys of the system.
set -eu
cd "$(dirname "$0")/.."
sysroot=${1:-${KEEL_AARCH64_SYSROOT:-$PWD/build/aarch64-sysroot}}
packages="libboost1.74-dev libyaml-cpp-dev libyaml-cpp0.7 libspdlog-dev libspdlog1.10 libfmt-dev libfmt9 libcli11-dev
    nlohmann-json3-dev libpcre2-dev libpcre2-8-0 libedit-dev libedit2 libbsd0 libbsd-dev libmd0 libmd-dev libncurses-dev
    libtinfo6 libutf8proc-dev libutf8proc2 catch2"
[ "$(cat "$sysroot/complete" 2>/dev/null)" != "$packages" ] || exit 0

mkdir -p "$sysroot/apt/lists/partial" "$sysroot/apt/archives/partial" "$sysroot/packages"
: >"$sysroot/apt/status"
apt() {
    command="$1"
    shift
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$sysroot/apt" \
        -o Dir::State::status="$sysroot/apt/status" -o Dir::State::lists="$sysroot/apt/lists" -o Dir::Cache="$sysroot/apt" \
        -o Debug::NoLocking=1 -o APT::Sandbox::User= -o Acquire::Languages=none "$command" "$@"
}
echo "Fetching ARM64 packages into $sysroot"
apt update
# shellcheck disable=SC2086 # a list of words
(cd "$sysroot/packages" && apt download $packages)
for file in "$sysroot"/packages/*.deb; do
    dpkg-deb -x "$file" "$sysroot"
done
# Links that begin with / would point to files of this machine, so they are made relative to the
# sysroot.
find "$sysroot/usr" "$sysroot/lib" -type l -lname '/*' 2>/dev/null | while read -r link; do
    target=$(readlink "$link")
    ln -sfn "$sysroot$target" "$link"
done
rm -rf "$sysroot/apt" "$sysroot/packages"
printf '%s' "$packages" >"$sysroot/complete"
