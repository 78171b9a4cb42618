"""The referee: a process that holds the outputs of a kernel against the reference. No code of the student is in it.

It draws the inputs again from their seeds, computes the reference, and compares.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from upskill.checks.kernel import store
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


def judge(device: Device, task: Task, run: dict[str, Any], raw: dict[str, Any]) -> str:
    """What is wrong with the outputs of one run, given as bytes; empty where nothing is."""
    drawn = task.inputs(tuple(run["shape"]), device.dtype(run["dtype"]), device.generator(run["seed"]))
    got = {
        name: device.shaped(raw[name], device.dtype(place["dtype"]), place["shape"])
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


def find_wrong(device: Device, request: dict[str, Any], descriptor: int) -> str:
    """The first output of all runs that is not as it should be; empty where all are."""
    task = Task(request["task"])
    seed, before = -1, dict[str, Any]()
    for number, run in enumerate(request["runs"]):
        label = f"{'×'.join(map(str, run['shape']))} {run['dtype']}"
        raw = {
            name: device.from_bytes(one["bytes"], partial(store.read, descriptor, one["at"]))
            for name, one in run["outputs"].items()
        }
        if wrong := judge(device, task, run, raw):
            return f"at {f'timed launch {number + 1}' if request['timed'] else label}: {wrong}"
        again = task.header.exact and seed == run["seed"]
        if again and not all(device.same(raw[name], before[name]) for name in raw):
            return f"at {label}: a second run on the same input gives other bits"
        seed, before = run["seed"], raw
    return ""


def serve(device: Device, request: dict[str, Any], descriptor: int, channel: Channel) -> None:
    channel.say({"done": {"wrong": find_wrong(device, request, descriptor)}})
