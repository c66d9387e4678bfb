#!/usr/bin/env bash
# Builds snapshot_fuzz with clang and runs it: tests/fuzz/run.sh [SECONDS]. What it finds is left in
# build/fuzz/found; its corpus stays in build/fuzz/corpus for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-600}

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target snapshot_fuzz
work=build/fuzz
mkdir -p "$work/corpus" "$work/found"
python3 tests/fuzz/make_seeds.py "$work/seeds" \
  $(find tests/data/snapshots -name '*.pickle' -size -40k | sort)
# A file of 32 KiB justifies no allocation of 32 MiB.
exec "$work/bin/snapshot_fuzz" -max_total_time="$seconds" -max_len=32768 -timeout=5 \
  -rss_limit_mb=1024 -malloc_limit_mb=32 -dict=tests/fuzz/snapshot.dict -print_final_stats=1 \
  -artifact_prefix="$work/found/" "$work/corpus" "$work/seeds"
