#!/usr/bin/env bash
# Configures and builds a preset, or one target of it; on a terminal with its progress.
# usage: ci/build.sh PRESET [TARGET]
# shellcheck source=ci/lib.sh
source "$(dirname "$0")/lib.sh"

[ $# = 1 ] || [ $# = 2 ] || die "usage: ci/build.sh PRESET [TARGET]" 2
# A LibTorch that is named wins over the one that an earlier build of this folder has used.
quietly cmake --preset "$1" ${LIBTORCH:+-DLEAKLAB_TORCH_ROOT="$LIBTORCH"} ||
  die "CMake could not configure the preset $1."
quiet=(--)
[ -t 1 ] || quiet+=(--quiet)
cmake --build --preset "$1" ${2:+--target "$2"} "${quiet[@]}" || die "The preset $1 could not be built."
