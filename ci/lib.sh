# shellcheck shell=bash disable=SC2034
# Sourced by the scripts beside it: what they share.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

libtorch_version=2.11.0
clang_format_version=14.0.6
clang_tidy_version=22.1.8
cache=${XDG_CACHE_HOME:-$HOME/.cache}/leaklab

export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}

# Standard output is for results.
say() { printf '%s\n' "$*" >&2; }
die() {
  say "$1"
  exit "${2:-1}"
}

# Shows what the command printed only when it fails.
quietly() {
  local output code=0
  output=$("$@" 2>&1) || code=$?
  [ "$code" = 0 ] || say "$output"
  return "$code"
}

# install_wheels NAME GIB WHAT ARGUMENT...: pip installs what the arguments name into $cache/NAME,
# for which GIB of disk are needed meanwhile. The folder gets its name when it is complete.
install_wheels() {
  local folder=$cache/$1 need=$2 what=$3 free
  shift 3
  [ ! -d "$folder" ] || return 0
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock -n 9 || {
    say "waiting for another set-up that is installing into $cache"
    flock 9
  }
  if [ ! -d "$folder" ]; then
    free=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "$free" -ge "$need" ] || die "$cache has $free GiB of free disk and $need are needed: \
make room there, or set XDG_CACHE_HOME to a folder on a larger disk."
    say "installing $what into $folder (once)"
    rm -rf "$folder.partial"
    mkdir -p "$folder.partial/tmp"
    trap 'rm -rf "$folder.partial"' EXIT
    quietly python3 -m venv "$folder.partial/venv"
    local pip=("$folder.partial/venv/bin/python" -m pip install --no-deps --no-compile
      --no-cache-dir --only-binary :all: --target "$folder.partial/files")
    # On a terminal pip shows how far the download is.
    if [ -t 2 ]; then
      TMPDIR=$folder.partial/tmp "${pip[@]}" "$@" >&2
    else
      TMPDIR=$folder.partial/tmp quietly "${pip[@]}" --progress-bar off -q "$@"
    fi || die "pip could not install $what; run ci/setup.sh again when the cause above is mended."
    mv "$folder.partial/files" "$folder"
    rm -rf "$folder.partial"
    trap - EXIT
  fi
  exec 9>&-
}

# The formatter and the linter: the same on every machine.
lint_tools=$cache/lint-$clang_format_version-$clang_tidy_version
clang_format=$lint_tools/clang_format/data/bin/clang-format
clang_tidy=$lint_tools/clang_tidy/data/bin/clang-tidy
install_lint_tools() {
  install_wheels "${lint_tools##*/}" 1 "clang-format and clang-tidy" \
    "clang-format==$clang_format_version" "clang-tidy==$clang_tidy_version"
}
