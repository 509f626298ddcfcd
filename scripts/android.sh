#!/bin/sh
# Copies the android-arm64 build to a device with adb, runs it and copies results back. This script
# was NEVER TESTED, because neither an NDK nor a device was available.
#   android.sh push [MODEL ...]   copies the build, the configs and the named models (default:
#                                 models/tiny) to /data/local/tmp/keel
#   android.sh run ARGUMENTS ...  runs `keel ARGUMENTS` on the device, for example:
#                                 android.sh run run configs/quickstart.yaml
#   android.sh collect [FOLDER]   copies the results in the device's out/ to FOLDER (default:
#                                 build/android-arm64/out)
# Environment variables:
#   KEEL_ANDROID_BUILD            the build folder (default: build/android-arm64)
#   ANDROID_NDK_HOME, KEEL_ANDROID_PREFIX   the same as for the build
#   ANDROID_SERIAL                chooses one of several devices, as in adb
set -eu
cd "$(dirname "$0")/.."
build=${KEEL_ANDROID_BUILD:-build/android-arm64}
there=/data/local/tmp/keel
command=${1:-}
[ $# -eq 0 ] || shift
case $command in
push)
    [ -x "$build/bin/keel" ] || { echo "$0: no $build/bin/keel: cmake --preset android-arm64 && cmake --build --preset android-arm64" >&2; exit 1; }
    [ $# -gt 0 ] || set -- models/tiny
    adb shell "mkdir -p $there/bin $there/lib $there/out $there/models"
    adb push "$build/bin/keel" "$there/bin/"
    adb push "$build/lib/keel" "$there/lib/"
    adb push configs "$there/"
    adb push "${ANDROID_NDK_HOME:?}"/toolchains/llvm/prebuilt/*/sysroot/usr/lib/aarch64-linux-android/libc++_shared.so "$there/lib/"
    for library in "${KEEL_ANDROID_PREFIX:?}"/lib/*.so; do
        [ ! -e "$library" ] || adb push "$library" "$there/lib/"
    done
    for model in "$@"; do
        adb push "$model" "$there/models/"
    done
    ;;
run)
    line=
    for word in "$@"; do # quotes each word for the shell on the device
        line="$line '$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'"
    done
    exec adb shell "cd $there && LD_LIBRARY_PATH=$there/lib bin/keel$line"
    ;;
collect)
    folder=${1:-$build/out}
    mkdir -p "$folder"
    adb pull "$there/out/." "$folder"
    ;;
*)
    echo "usage: $0 push [MODEL ...] | run ARGUMENTS ... | collect [FOLDER]" >&2
    exit 2
    ;;
esac
