#!/usr/bin/env bash
# Makes this machine able to build leaklab: system packages and LibTorch, each only where missing.
# usage: ci/setup.sh [--lint] [--clang]     prints the folder of LibTorch
#   --lint   the formatter, the linter and shellcheck as well
#   --clang  clang++ as well
# shellcheck source=ci/lib.sh
source "$(dirname "$0")/lib.sh"

packages=(g++ cmake ninja-build git ca-certificates python3 python3-venv libfmt-dev libcli11-dev
  nlohmann-json3-dev libgtest-dev libgmock-dev libbenchmark-dev)
lint=
for option in "$@"; do
  case $option in
    --lint) lint=1 packages+=(shellcheck) ;;
    --clang) packages+=(clang) ;;
    *) die "unknown option $option; usage: ci/setup.sh [--lint] [--clang]" 2 ;;
  esac
done

install_packages() {
  command -v apt-get dpkg-query >/dev/null || {
    say "This machine has no apt-get, so its packages are taken as they are: leaklab needs a C++20" \
      "compiler, CMake 3.25, Ninja, Python 3, fmt, CLI11, nlohmann-json, GoogleTest and Google" \
      "Benchmark."
    return 0
  }
  local present missing=() package as_root=()
  present=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qxF "installed $package" <<<"$present" || missing+=("$package")
  done
  [ ${#missing[@]} != 0 ] || return 0

  if [ "$(id -u)" != 0 ]; then
    # sudo may ask for a password on a terminal only.
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      die "Neither root nor sudo is at hand; as root, run: apt-get install ${missing[*]}"
    fi
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"}
    apt-get -q -o DPkg::Lock::Timeout=300)
  say "installing ${missing[*]}"
  # A source that can't be reached matters only if a package was to come from it.
  quietly "${apt[@]}" update || true
  quietly "${apt[@]}" install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install these packages: ${missing[*]}"
}

is_libtorch() {
  [ -f "$1/include/torch/csrc/api/include/torch/torch.h" ] && [ -f "$1/lib/libtorch_cpu.so" ]
}

version_of() {
  sed -n "s/^__version__ = '\(.*\)'/\1/p" "$1/version.py" 2>/dev/null || cat "$1/build-version"
}

# LIBTORCH, CMAKE_PREFIX_PATH, the active Python's torch, the cache: the order of the CMake files.
find_libtorch() {
  local prefix prefixes candidate
  if [ -n "${LIBTORCH:-}" ]; then
    is_libtorch "$LIBTORCH" || die "LIBTORCH is $LIBTORCH, where no LibTorch lies: set it to a folder \
with include/torch and lib/libtorch_cpu.so in it, or unset it to have LibTorch installed."
    realpath "$LIBTORCH"
    return
  fi
  IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    for candidate in "$prefix" "$prefix/torch" "$prefix/../.." "$prefix/../../.."; do
      if is_libtorch "$candidate"; then
        realpath "$candidate"
        return
      fi
    done
  done
  candidate=$(python3 -c 'from importlib.util import find_spec
torch = find_spec("torch")
print(torch.submodule_search_locations[0] if torch and torch.submodule_search_locations else "")')
  if [ -n "$candidate" ] && is_libtorch "$candidate"; then
    if printf '%s\n' 2.9 "$(version_of "$candidate")" | sort -CV; then
      echo "$candidate"
      return
    fi
    say "LibTorch $(version_of "$candidate") in $candidate is older than 2.9 and is not used"
  fi
  # In a cache of its own the wheel lacks what only Python needs.
  install_wheels "libtorch-$libtorch_version-cu13" 8 "LibTorch $libtorch_version (4 GB)" -r ci/libtorch.txt
  echo "$cache/libtorch-$libtorch_version-cu13/torch"
}

install_packages
libtorch=$(find_libtorch)
[ -z "$lint" ] || install_lint_tools
say "LibTorch $(version_of "$libtorch") in $libtorch"
echo "$libtorch"
