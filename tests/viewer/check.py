"""Whether what opens PyTorch's snapshots opens those that leaklab writes, and shows the same.

    python3 tests/viewer/check.py [--build build/core] [--viewer MemoryViz.js] SNAPSHOT...

Reads each snapshot, writes it as a pickle and as JSON, and compares with the original: what Python's
two unpicklers make of it; where torch is found (PYTHONPATH may name the folder that ci/setup.sh put
LibTorch's wheel into), what each command of torch.cuda._memory_viz prints and what its functions
return; with --viewer (torch/utils/viz/MemoryViz.js of PyTorch's repository) and node, what the
viewer's own unpickler makes of it.
"""

import argparse
import importlib.util
import json
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile

COMMANDS = ["stats", "trace", "trace_plot", "segment_plot"]  # the others load flamegraph.pl
# Its functions by name: segsum(), which "stats" prints, and those of flame graphs, which give the
# lines that flamegraph.pl would draw. In one process: torch loads slowly.
FUNCTIONS = """
import pickle, sys
import torch.cuda._memory_viz as viz

def read(path):
    with open(path, "rb") as file:
        data = pickle.load(file)
    return {"segments": data, "device_traces": []} if isinstance(data, list) else data

def lines(graph):
    return lambda data: graph(data, format_flamegraph=lambda text: text)

theirs, copy = map(read, sys.argv[1:])
for name, function in (("segsum", viz.segsum), ("segments", lines(viz.segments)),
                       ("memory", lines(viz.memory))):
    expected = function(theirs)
    assert expected and function(copy) == expected, name
    print(name + "()")
"""
# What unpickle() of MemoryViz.js gives, big integers as text.
NODE = """
const fs = require("fs");
const source = fs.readFileSync(process.argv[2], "utf8");
const from = source.indexOf("function unpickle(");
const to = source.indexOf("\\n}\\n", from) + 3;
const unpickle = eval("(" + source.slice(from, to) + ")");
const bytes = fs.readFileSync(process.argv[3]);
const value = unpickle(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
process.stdout.write(JSON.stringify(value, (k, v) => typeof v === "bigint" ? v.toString() : v));
"""


def lists(value):
    """`value` with lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        return {key: lists(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [lists(inner) for inner in value]
    return value


def big_as_text(value):
    if isinstance(value, dict):
        return {key: big_as_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [big_as_text(inner) for inner in value]
    return str(value) if type(value) is int and value >= 2**63 else value


def memory_viz(command, path, folder):
    output = folder / "output"
    output.unlink(missing_ok=True)
    arguments = [sys.executable, "-W", "ignore", "-m", "torch.cuda._memory_viz", command, str(path)]
    if command not in ("stats", "trace"):
        arguments += ["-o", str(output)]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    # The plots hold the pickle itself in base64.
    text = output.read_text() if output.exists() else done.stdout.decode()
    return re.sub(r'"base64": "[^"]*"', "", text)


def check(path, options, folder):
    copy, as_json = folder / "copy.pickle", folder / "copy.json"
    program = str(pathlib.Path(options.build) / "bin" / "snapshot_bench")
    for target in (copy, as_json):
        subprocess.run([program, "--copy", path, str(target)], check=True)
    expected = lists(pickle.loads(pathlib.Path(path).read_bytes()))
    passed = ["pickle", "json"]
    assert lists(pickle.loads(copy.read_bytes())) == expected
    with open(copy, "rb") as file:
        assert lists(pickle._Unpickler(file).load()) == expected
    assert json.loads(as_json.read_text()) == expected
    if importlib.util.find_spec("torch"):
        for command in COMMANDS:
            theirs = memory_viz(command, path, folder)
            assert theirs and memory_viz(command, copy, folder) == theirs, command
            passed.append(command)
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", FUNCTIONS, path, str(copy)],
                              check=True, stdout=subprocess.PIPE)
        passed += done.stdout.decode().split()
    if options.viewer:
        (folder / "unpickle.js").write_text(NODE)
        done = subprocess.run(["node", str(folder / "unpickle.js"), options.viewer, str(copy)],
                              check=True, stdout=subprocess.PIPE)
        assert json.loads(done.stdout) == big_as_text(expected)
        passed.append("viewer")
    print(f"{path}: {', '.join(passed)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("snapshots", nargs="+")
    parser.add_argument("--build", default="build/core")
    parser.add_argument("--viewer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for path in options.snapshots:
            check(path, options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
