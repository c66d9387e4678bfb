#!/usr/bin/env bash
# Checks the format of the C++ sources, or mends it.
# usage: ci/format.sh [--fix]
# shellcheck source=ci/lib.sh
source "$(dirname "$0")/lib.sh"

case ${1:-} in
  "") action=(--dry-run -Werror) ;;
  --fix) action=(-i) ;;
  *) die "unknown option $1; usage: ci/format.sh [--fix]" 2 ;;
esac
install_lint_tools
# Sources that git does not know yet count too; deleted ones don't.
git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' |
  while IFS= read -rd '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
  xargs -0r "$clang_format" "${action[@]}" ||
  die "ci/format.sh --fix mends the format."
