#!/usr/bin/env bash
# Configures and builds a preset, quietly unless on a terminal.
# usage: ci/build.sh PRESET [FOLDER [CMAKE_ARGUMENT...]]     FOLDER is build/PRESET by default
# shellcheck source=ci/lib.sh
source "$(dirname "$0")/lib.sh"

[ $# -ge 1 ] || die "usage: ci/build.sh PRESET [FOLDER [CMAKE_ARGUMENT...]]"
preset=$1
folder=${2:-build/$preset}
quietly cmake --preset "$preset" -B "$folder" "${@:3}" || die "CMake could not configure $preset."
if [ -t 1 ]; then
  cmake --build "$folder"
else
  cmake --build "$folder" -- --quiet
fi || die "$preset could not be built in $folder."
