"""The referee: a process that holds the outputs of a kernel against the reference. No code of the student is in it.

It draws the inputs again from their seeds, computes the reference, and compares.
"""

from __future__ import annotations

import mmap
from typing import Any

from upskill.checks.kernel.device import Device
from upskill.checks.kernel.runner import Channel, Task


def compare(device: Device, got: Any, want: Any, tolerance: tuple[float, float]) -> str:
    """What is wrong with an output; empty where it is right.

    Not a number and infinite are right only where the reference has them too.
    """
    xp = device.xp
    if tuple(got.shape) != tuple(want.shape):
        return f"the reference has the shape {tuple(want.shape)}, not {tuple(got.shape)}"
    relative, absolute = tolerance
    got, want = device.precise(got).reshape(-1), device.precise(want).reshape(-1)
    special = xp.isnan(want) | xp.isinf(want)
    alike = (got == want) | (xp.isnan(got) & xp.isnan(want))
    near = xp.abs(got - want) <= absolute + relative * xp.abs(want)
    wrong = ~xp.where(special, alike, near)
    count = int(wrong.sum())
    if not count:
        return ""
    first = int(xp.where(wrong)[0][0])
    unwritten = int((wrong & xp.isnan(got)).sum())
    more = f", {unwritten:,} of them not a number" if unwritten else ""
    return (
        f"{count:,} of {len(got):,} elements are wrong{more}; element {first} is {float(got[first]):.6g}"
        f" and should be {float(want[first]):.6g} (± {absolute:g} and {relative:g} of it)"
    )


def judge(device: Device, task: Task, run: dict[str, Any], stored: mmap.mmap) -> str:
    drawn = task.inputs(tuple(run["shape"]), device.dtype(run["dtype"]), device.generator(run["seed"]))
    got = {
        name: device.from_bytes(
            bytearray(stored[place["at"] : place["at"] + place["bytes"]]), device.dtype(place["dtype"]), place["shape"]
        )
        for name, place in run["outputs"].items()
    }
    if task.accept is not None:
        return task.accept(got, **drawn)
    wanted: Any = task.reference(**drawn)
    if not isinstance(wanted, dict):
        wanted = {next(iter(got)): wanted}
    for name, output in got.items():
        tolerance = task.header.tolerance_of(run["outputs"][name]["dtype"])
        if wrong := compare(device, output, wanted[name], tolerance):
            return f"{name}: {wrong}"
    return ""


def serve(device: Device, request: dict[str, Any], store: int, channel: Channel) -> None:
    task = Task(request["task"])
    before: dict[str, Any] = {}
    with mmap.mmap(store, 0, prot=mmap.PROT_READ) as stored:
        for number, run in enumerate(request["runs"]):
            label = f"{'×'.join(map(str, run['shape']))} {run['dtype']}"
            which = f"timed launch {number + 1}" if request["timed"] else label
            if wrong := judge(device, task, run, stored):
                channel.say({"done": {"wrong": f"at {which}: {wrong}"}})
                return
            data = {name: stored[one["at"] : one["at"] + one["bytes"]] for name, one in run["outputs"].items()}
            if task.header.exact and before.get("seed") == run["seed"] and before["data"] != data:
                channel.say({"done": {"wrong": f"at {label}: a second run on the same input gives other bits"}})
                return
            before = {"seed": run["seed"], "data": data}
    channel.say({"done": {"wrong": ""}})
