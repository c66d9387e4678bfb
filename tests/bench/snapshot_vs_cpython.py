"""The snapshot reader against CPython's pickle.load, on one file, in processes of their own.

    python3 tests/bench/snapshot_vs_cpython.py [BUILD_FOLDER [EVENTS [ROUNDS]]]

Writes a file of EVENTS made events (4,000,000: 218 MB) and lets both read it ROUNDS times in turn.
Prints the best times, the peaks of memory and their ratios; exit code 1 where the reader is less
than 10 times as fast, or takes more than a fifth of the memory.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

CPYTHON = """
import json, pickle, resource, sys, time
with open(sys.argv[1], "rb") as file:
    start = time.perf_counter()
    snapshot = pickle.load(file)
    seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
events = sum(len(trace) for trace in snapshot["device_traces"])
print(json.dumps({"seconds": seconds, "peak_bytes": peak, "events": events}), flush=True)
__import__("os")._exit(0)
"""


def run(*command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main(build="build/core", events="4000000", rounds="3"):
    program = str(pathlib.Path(build) / "bin" / "snapshot_bench")
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "made.pickle")
        subprocess.run([program, "--make", path, events], check=True)
        size = os.path.getsize(path)
        ours, theirs = [], []
        for _ in range(int(rounds)):
            theirs.append(run(sys.executable, "-c", CPYTHON, path))
            ours.append(run(program, "--read", path))
    if ours[0]["events"] != theirs[0]["events"]:
        sys.exit(f"{ours[0]['events']} events are read, and {theirs[0]['events']} by CPython")

    def best(key, results):
        return min(result[key] for result in results)

    seconds, peak = best("seconds", ours), best("peak_bytes", ours)
    cpython_seconds, cpython_peak = best("seconds", theirs), best("peak_bytes", theirs)
    faster, leaner = cpython_seconds / seconds, cpython_peak / peak
    print(f"file     {size / 1e6:8.1f} MB, {ours[0]['events']:,} events, load {os.getloadavg()[0]:.1f}")
    print(f"CPython  {cpython_seconds:8.3f} s {cpython_peak / 1e6:8.1f} MB")
    print(f"leaklab  {seconds:8.3f} s {peak / 1e6:8.1f} MB, {peak / size:.2f} times the file")
    print(f"         {faster:8.1f} times as fast, 1/{leaner:.1f} of the memory")
    return 0 if faster >= 10 and leaner >= 5 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
