#!/usr/bin/env python3
"""Writes grad_scaler.json: what torch.amp.GradScaler does on the CPU, for tests/torch/amp_test.cpp.

Each case has two optimizers (SGD, learning rate 0.25) of one parameter with four values. In step s,
the loss of optimizer o is sum(parameter ** 2 * c) * factor with c[i] = ((3 s + 5 i + o) mod 7 - 3) / 4:
no result depends on how a processor orders or fuses operations. `poison` holds [step, optimizer,
value], a value that stands in for c[0]. Numbers are exact: the shortest texts that give the same
float64 again.

    python3 tests/data/make_grad_scaler.py > tests/data/grad_scaler.json
"""

import json

import torch

CASES = [
    {
        "name": "grows after each interval and backs off after each overflow",
        "options": {"growth_interval": 3},
        "steps": 16,
        "poison": [[2, 0, "inf"], [7, 1, "nan"], [8, 0, "-inf"], [12, 0, "nan"], [12, 1, "inf"]],
    },
    {
        "name": "factors that float32 has to round",
        "options": {
            "init_scale": 1000.1,
            "growth_factor": 1.1,
            "backoff_factor": 0.3,
            "growth_interval": 2,
        },
        "steps": 12,
        "poison": [[1, 0, "inf"], [5, 1, "inf"], [6, 1, "nan"]],
    },
    {
        "name": "a scale that would leave the range of float32 stays",
        "options": {"init_scale": 2.0**124, "growth_factor": 4.0, "growth_interval": 1},
        "factor": 2.0**-8,
        "steps": 6,
        "poison": [[3, 0, "inf"]],
    },
    {
        "name": "unscaled by hand before the step, and a scale set by hand",
        "options": {"init_scale": 8.0, "growth_interval": 2},
        "steps": 10,
        "poison": [[4, 1, "inf"]],
        "unscale_first": True,
        "new_scale": [[5, 1024.0]],
    },
    {
        "name": "switched off",
        "options": {"enabled": False},
        "steps": 4,
        "poison": [],
    },
]


def run(case):
    scaler = torch.amp.GradScaler(device="cpu", **case["options"])
    parameters = [torch.tensor([1.0, -2.0, 0.5, 4.0], requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([parameter], lr=0.25) for parameter in parameters]
    stepped = [0, 0]
    for which, optimizer in enumerate(optimizers):
        optimizer.register_step_post_hook(
            lambda *_, which=which: stepped.__setitem__(which, stepped[which] + 1)
        )
    records = []
    for step in range(case["steps"]):
        before = list(stepped)
        for which, optimizer in enumerate(optimizers):
            optimizer.zero_grad()
            c = torch.tensor([((3 * step + 5 * i + which) % 7 - 3) / 4 for i in range(4)])
            for at, target, value in case["poison"]:
                if at == step and target == which:
                    c[0] = float(value)
            loss = (parameters[which] ** 2 * c).sum() * case.get("factor", 1.0)
            scaler.scale(loss).backward()
        for optimizer in optimizers:
            if case.get("unscale_first", False):
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
        scaler.update(dict(case.get("new_scale", [])).get(step))
        records.append(
            {
                "stepped": [now > then for now, then in zip(stepped, before)],
                "scale": scaler.get_scale(),
                "growth_tracker": scaler._get_growth_tracker(),
                "parameters": [parameter.tolist() for parameter in parameters],
            }
        )
    return records


def one_line_each(values):
    return ",\n".join(json.dumps(value, sort_keys=True) for value in values)


def main():
    cases = []
    for case in CASES:
        records = one_line_each(run(case))
        cases.append(json.dumps(case, sort_keys=True)[:-1] + f',\n"records": [\n{records}]}}')
    text = ",\n".join(cases)
    print(f'{{"torch": "{torch.__version__}",\n"cases": [\n{text}]}}')


if __name__ == "__main__":
    main()
