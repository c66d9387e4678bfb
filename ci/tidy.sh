#!/usr/bin/env bash
# Runs clang-tidy over what build/release compiles. A file that passed is looked at again only when
# it, a header, the rules or its flags have changed.
# shellcheck source=ci/lib.sh
source "$(dirname "$0")/lib.sh"

built=build/release/compile_commands.json
[ -f "$built" ] || die "$built is missing: run ci/build.sh release first."
install_lint_tools
export clang_tidy
work=build/tidy
mkdir -p "$work/passed"

# clang-tidy can't read the compiler's precompiled header. A module that it keeps in its own format
# does the same for it: a file that includes LibTorch then takes a third of the time.
torch=$(grep -om1 '[^ ]*/torch/csrc/api/include' "$built" || true)
cat >"$work/torch.modulemap" <<END
module torch [system] {
  header "$torch/torch/torch.h"
  export *
}
END
module="-fmodules -fno-implicit-module-maps -fmodule-map-file=$PWD/$work/torch.modulemap \
-fmodules-cache-path=$PWD/$work/modules -include torch/torch.h"
sed -E '/"command"/ {
  /csrc\/api\/include/ s:"command"\: "[^ ]+:& '"$module"':
  s: -Winvalid-pch::; s: -Xclang -include-pch -Xclang [^ ]+::
  s: (-Xclang )?-include (-Xclang )?[^ ]+/cmake_pch.hxx::
  s: -Werror::
}' "$built" >"$work/compile_commands.json"

common=$({ echo "$clang_tidy"; git ls-files -z --cached --others --exclude-standard '*.clang-tidy' \
  '*.h' ci/tidy.sh | xargs -0 cat; } | sha256sum)
stamp_of() {
  { echo "$common"; grep "\"command\".*/$1\"" "$work/compile_commands.json"; cat "$1"; } |
    sha256sum | cut -c 1-32
}

check() {
  local found
  if found=$("$clang_tidy" --quiet -p build/tidy "$1" 2>&1); then
    touch "$2"
  else
    printf '%s\n' "$found" >&2
    return 1
  fi
}
export -f check

sed -n "s:^ *\"file\"\: \"$PWD/\(.*\)\".*:\1:p" "$built" | grep -v '^build/' | sort -u |
  while read -r source; do
    stamp=$work/passed/$(stamp_of "$source")
    [ -e "$stamp" ] || printf '%s\0' "$source" "$stamp"
  done |
  xargs -0r -n 2 -P "$(nproc)" bash -c 'check "$@"' _ ||
  die "clang-tidy found something."
