"""The snapshot reader against CPython's pickle.load, on files of several shapes, in processes of
their own.

    python3 tests/bench/snapshot_vs_cpython.py [BUILD_FOLDER [EVENTS [ROUNDS]]]

Of each shape a file of EVENTS made events (4,000,000; the usual one has 218 MB) is written, and both
read it ROUNDS times in turn; and so what pickle.dump makes of two of them, which numbers every
entry. Prints the best times, the peaks of memory and their ratios; exit code 1 where the reader is
slower than it may be for such a file, or takes more memory than it may or than a fifth of CPython's.
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
if len(sys.argv) > 2:
    with open(sys.argv[2], "wb") as file:
        pickle.dump(snapshot, file, protocol=4)
__import__("os")._exit(0)
"""

# How many times as fast the reader must be. An entry without a time and frames is little work for
# CPython too.
FASTER = {"usual": 10, "devices": 10, "short": 4, "framed": 10}
# How many times the file's size it may take: see read_snapshot().
MOST = 1.5


def run(*command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def compare(program, name, path, rounds, fast):
    size = os.path.getsize(path)
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(run(sys.executable, "-c", CPYTHON, path))
        ours.append(run(program, "--read", path))
    events = ours[0]["events"]
    if events != theirs[0]["events"]:
        sys.exit(f"{events} events are read, and {theirs[0]['events']} by CPython")

    def best(key, results):
        return min(result[key] for result in results)

    seconds, peak = best("seconds", ours), best("peak_bytes", ours)
    cpython_seconds, cpython_peak = best("seconds", theirs), best("peak_bytes", theirs)
    faster, leaner, share = cpython_seconds / seconds, cpython_peak / peak, peak / size
    print(f"{name:15}{size / 1e6:6.1f} MB, {events:,} events, load {os.getloadavg()[0]:.1f}")
    print(f"  CPython {cpython_seconds:8.3f} s {cpython_peak / 1e6:8.1f} MB")
    print(f"  leaklab {seconds:8.3f} s {peak / 1e6:8.1f} MB, {share:.2f} times the file, "
          f"{peak / events:.0f} bytes an event")
    print(f"          {faster:8.1f} times as fast, 1/{leaner:.1f} of the memory", flush=True)
    return faster >= fast and leaner >= 5 and share <= MOST


def main(build="build/core", events="4000000", rounds="3"):
    program = str(pathlib.Path(build) / "bin" / "snapshot_bench")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        path, dumped = (str(pathlib.Path(folder) / name) for name in ("made", "dumped"))
        for shape, fast in FASTER.items():
            subprocess.run([program, "--make", path, events, shape], check=True)
            good &= compare(program, shape, path, int(rounds), fast)
            if shape in ("devices", "short"):
                run(sys.executable, "-c", CPYTHON, path, dumped)
                good &= compare(program, f"dumped {shape}", dumped, int(rounds), fast)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
