#!/usr/bin/env bash
# Acceptance on a machine with a GPU: what can be measured there, whether every scenario grows as it
# should, whether separate processes agree, and what measuring costs. Needs neither network nor
# compiler: run it where leaklab was built, or carry the build folder to the machine and set
# LD_LIBRARY_PATH to the lib folders of its LibTorch and of what else the programs miss.
# usage: tests/gpu/run.sh FOLDER [BUILD]
#   FOLDER  gets summary.txt, check-N.json, baselines.tar.gz, benchmarks.tar.gz and logs.tar.gz
#   BUILD   where the programs are; default: build/release
set -uo pipefail
export LC_ALL=C

[ $# = 1 ] || [ $# = 2 ] || {
  echo "usage: tests/gpu/run.sh FOLDER [BUILD]" >&2
  exit 2
}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1" || exit 4
out=$(cd "$1" && pwd)
bin=${2:-$root/build/release}/bin
[ -x "$bin/leaklab" ] || {
  echo "there is no leaklab in $bin; build it, or name the build folder as the second argument" >&2
  exit 2
}
stored=()
[ ! -d "$root/baselines" ] || stored=(--baselines "$root/baselines")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/logs" "$work/benchmarks" "$work/baselines"
: >"$out/summary.txt"
failed=0

say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }

# stage NAME COMMAND...: runs it to its end whatever came before, and notes its exit code and time.
stage() {
  local name=$1 begin=$EPOCHREALTIME code=0
  shift
  timeout 600 "$@" >"$work/logs/$name.txt" 2>&1 || code=$?
  [ "$code" = 0 ] || failed=1
  say "$(awk -v name="$name" -v code="$code" -v begin="$begin" -v end="$EPOCHREALTIME" \
    'BEGIN { printf "%-24s exit %-3d %7.2f s", name, code, end - begin }')"
}

# What has to be the same in each process: the event hash of every twin of every scenario.
hashes() { grep -E '"(event_hash|id|twin)":' "$1"; }

stage doctor "$bin/leaklab" doctor
for i in 1 2 3; do
  stage "check-$i" "$bin/leaklab" check --env cuda "${stored[@]}" --json "$out/check-$i.json"
done
if hashes "$out/check-1.json" >"$work/first" && [ "$(grep -c event_hash "$work/first")" -gt 0 ] &&
  hashes "$out/check-2.json" | cmp -s - "$work/first" &&
  hashes "$out/check-3.json" | cmp -s - "$work/first"; then
  say "$(grep -c event_hash "$work/first") event hashes, equal in three processes"
else
  say "the event hashes of the three checks differ, or there are none"
  failed=1
fi
stage record "$bin/leaklab" record --env cuda --baselines "$work/baselines"
for i in 1 2 3; do
  stage "run-$i" "$bin/leaklab" run control_flat --env cuda
done
[ ! -x "$bin/leaklab_torch_tests" ] ||
  stage probes "$bin/leaklab_torch_tests" --gtest_filter='CudaProbes.*'
# One test reads the sources, which need not be here.
[ ! -x "$bin/leaklab_contract_tests" ] ||
  LEAKLAB_TEST_ENV=cuda stage contract "$bin/leaklab_contract_tests" \
    --gtest_filter='-*its_file_is_short*'
for program in "$bin"/*_bench; do
  [ -x "$program" ] || continue
  name=$(basename "$program")
  stage "$name" "$program" --benchmark_out="$work/benchmarks/$name.json" \
    --benchmark_out_format=json
done

for folder in baselines benchmarks logs; do
  tar -czf "$out/$folder.tar.gz" -C "$work" "$folder"
done
say "$([ "$failed" = 0 ] && echo "all is well" || echo "something failed: see logs.tar.gz")"
exit "$failed"
