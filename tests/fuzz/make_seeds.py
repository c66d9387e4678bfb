"""Seeds for snapshot_fuzz: make_seeds.py FOLDER SNAPSHOT...

Writes each of the snapshots in every form that the reader knows, and those of older versions of
PyTorch that no file in tests/data has.
"""

import json
import pathlib
import pickle
import sys

frame = {"filename": "train.py", "line": 12, "name": "step"}
stack = [frame, {"filename": "", "line": 18446744073709551615, "name": "??"}]
version_2_0 = [
    {
        "device": 0,
        "address": 139680190365696,
        "total_size": 2097152,
        "allocated_size": 512,
        "active_size": 512,
        "stream": 94311,
        "segment_type": "small",
        "blocks": [
            {
                "size": 512,
                "state": "active_allocated",
                "history": [{"addr": 139680190365696, "real_size": 4, "frames": stack}],
            },
            {"size": 2096640, "state": "inactive"},
        ],
    }
]
odd = {
    "device_traces": [
        [
            {"action": "snapshot", "addr": 0, "size": 512, "stream": 0, "frames": []},
            {"action": "oom", "device_free": 5, "size": 1 << 40, "stream": 0, "pool_id": (0, 0)},
            {"action": "new", "addr": 7, "size": 1, "stream": 0, "frames": stack, "extra": 0.5},
            {"action": "free_completed", "addr": None, "size": 1, "stream": 3, "more": stack},
        ],
        [],
    ],
    "segments": [],
    "unknown": {"list": [1, None, True, -1, 1 << 62, [stack]], "n": (1, 2), "state": "x", "size": 1},
    "external_annotations": [{"stage": "END", "name": "step 1", "device": 0, "time_us": 5, "x": []}],
}


def main(folder, *files):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {"version_2_0": version_2_0, "odd": odd, "bare": []}
    for file in files:
        seeds[pathlib.Path(file).stem] = pickle.loads(pathlib.Path(file).read_bytes())
    for name, snapshot in seeds.items():
        for protocol in range(2, 6):
            (folder / f"{name}.{protocol}").write_bytes(pickle.dumps(snapshot, protocol))
        (folder / f"{name}.json").write_text(json.dumps(snapshot))


if __name__ == "__main__":
    main(*sys.argv[1:])
