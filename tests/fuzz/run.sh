#!/usr/bin/env bash
# Builds a fuzz target with clang and runs it: tests/fuzz/run.sh [SECONDS [TARGET [OPTION...]]], where
# TARGET is snapshot_fuzz, the reader and the writer, or diagnose_fuzz, the analysis, and the options
# are libFuzzer's; 0 seconds: without a limit. What it finds is left in build/fuzz/found; its corpus
# stays in build/fuzz/corpus for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-600}

target=${2:-snapshot_fuzz}
options=("${@:3}")

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "$target"
work=build/fuzz
mkdir -p "$work/corpus/$target" "$work/found"
if [[ $target == snapshot_fuzz ]]; then
  find tests/data/snapshots -name '*.pickle' -size -40k -print0 | sort -z |
    xargs -0 python3 tests/fuzz/make_seeds.py "$work/seeds"
  # A file of 32 KiB justifies no allocation of 32 MiB.
  set -- -max_len=32768 -malloc_limit_mb=32 -dict=tests/fuzz/snapshot.dict "$work/seeds"
else
  set -- -max_len=2048
fi
exec "$work/bin/$target" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 \
  -print_final_stats=1 -artifact_prefix="$work/found/" "$work/corpus/$target" "$@" \
  "${options[@]}"
