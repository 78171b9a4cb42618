"""Runner and referee, two processes beside the GPU, neither of which holds the student's host code.

The runner names its calls, gets their plans, and only then draws inputs and runs them. Buffers lie between guard
zones, outputs hold poison before a launch, and guards and inputs are checked after it. No reference output is ever in
the runner's memory: the referee draws the inputs again from their seeds, computes the reference, and compares.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from random import Random
from types import ModuleType
from typing import Any, NoReturn

from upskill.checks.kernel.device import Device, KernelFailed, Missing
from upskill.checks.kernel.task import Shape, TaskHeader, read_task

GUARD = 2**18  # bytes before and behind a buffer
TASK_MODULE = "upskill_kernel_task"
POISONS = (0xFF, 0x7B)  # not a number in every float format; the second tells what was not written
MAX_STORED = (
    2**32
)  # bytes of outputs of one fixture's runs; of larger ones, most runs hand over parts
PARTS, PART_BYTES = 64, 2**20  # of an output: how many, and how large
CHUNK = 2**26  # elements that are compared at a time


class Task:
    def __init__(self, source: str) -> None:
        self.header: TaskHeader = read_task(source)
        module = sys.modules[TASK_MODULE] = ModuleType(
            TASK_MODULE
        )  # torch.compile imports what it compiles
        linecache.cache[TASK_MODULE] = (
            len(source),
            None,
            source.splitlines(keepends=True),
            TASK_MODULE,
        )
        exec(compile(source, TASK_MODULE, "exec"), module.__dict__)  # noqa: S102 - what the suite's author wrote
        names = vars(module)
        self.inputs: Callable[..., dict[str, Any]] = names["inputs"]
        self.outputs: Callable[..., dict[str, Any]] = names["outputs"]
        self.reference: Callable[..., Any] = names["reference"]
        self.eager: Callable[..., Any] = names.get("eager", self.reference)
        self.bytes_moved: Callable[..., int] | None = names.get("bytes_moved")
        self.accept: Callable[..., str] | None = names.get("accept")


@dataclass
class Buffer:
    """Memory between two guards, seen as an array."""

    device: Device
    dtype: Any
    shape: Sequence[int]
    strides: Sequence[int]
    seed: int  # of the bytes around it, and between its elements

    def __post_init__(self) -> None:
        reach = (
            sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
            + 1
        )
        self.size = reach * self.device.itemsize(self.dtype)
        self.padded = GUARD + self.size + GUARD
        self.memory = self.device.pattern(self.padded, self.seed)

    @property
    def address(self) -> int:
        return self.device.address(self.memory) + GUARD

    @property
    def data(self) -> Any:
        return self.memory[GUARD : GUARD + self.size]

    def put(self, value: Any, memory: Any = None) -> None:
        inner = self.data if memory is None else memory[GUARD : GUARD + self.size]
        self.device.assign(self.device.view(inner, self.dtype, self.shape, self.strides), value)

    def holds(self, value: Any) -> bool:
        """Whether it and everything around it is as it was when this was put there."""
        expected = self.device.pattern(self.padded, self.seed)
        self.put(value, expected)
        return self.device.same(expected, self.memory)

    def guards_hold(self) -> str:
        """Which guard was written to; empty where none was."""
        expected = self.device.pattern(self.padded, self.seed)
        if not self.device.same(expected[:GUARD], self.memory[:GUARD]):
            return "in front of"
        end = GUARD + self.size
        return "" if self.device.same(expected[end:], self.memory[end:]) else "behind"


def seed_of(secret: int, *what: str | int) -> int:
    """A seed for this alone: whoever finds out one of them knows none of the others."""
    purpose = json.dumps([secret, *what]).encode()
    return int.from_bytes(hashlib.blake2b(purpose, digest_size=8).digest(), "big") >> 1


class Fixture:
    """The buffers for one dtype and shape, and the arguments of a call on them."""

    def __init__(self, device: Device, task: Task, dtype: str, shape: Shape, seed: int) -> None:
        self.device, self.task, self.dtype, self.shape = device, task, dtype, shape
        drawn = self.draw(seed)
        self.inputs = {
            name: Buffer(device, *device.layout(value), seed_of(seed, "input", name))
            for name, value in drawn.items()
            if device.is_array(value)
        }
        self.outputs: dict[str, Buffer] = {}
        for name, (sizes, kind) in task.outputs(shape, device.dtype(dtype)).items():
            size = tuple(sizes)
            strides = [1] * len(size)
            for axis in reversed(range(len(size) - 1)):
                strides[axis] = strides[axis + 1] * size[axis + 1]
            self.outputs[name] = Buffer(device, kind, size, strides, seed_of(seed, "output", name))
        buffers = self.inputs | self.outputs
        values = {name: value for name, value in drawn.items() if name not in buffers}
        values |= {name: buffer.address for name, buffer in buffers.items()}
        if unknown := [
            argument.name for argument in task.header.arguments if argument.name not in values
        ]:
            raise ValueError(
                f"SIGNATURE names {unknown[0]!r}, which is neither an input nor an output"
            )
        self.words = task.header.to_words(values)

    @property
    def label(self) -> str:
        return f"{'×'.join(map(str, self.shape))} {self.dtype}"

    def draw(self, seed: int) -> dict[str, Any]:
        return self.task.inputs(
            self.shape, self.device.dtype(self.dtype), self.device.generator(seed)
        )

    def fill(self, seed: int, poison: int) -> None:
        drawn = self.draw(seed)
        for name, buffer in self.inputs.items():
            buffer.put(drawn[name])
        for buffer in self.outputs.values():
            self.device.fill(buffer.data, poison)
        self.device.finish()

    def inspect(self, seed: int) -> None:
        """KernelFailed where anything but the outputs has changed."""
        drawn = self.draw(seed)
        for name, buffer in (self.inputs | self.outputs).items():
            if side := buffer.guards_hold():
                raise KernelFailed(f"it writes outside its buffers, {side} {name}")
        for name, buffer in self.inputs.items():
            if not buffer.holds(drawn[name]):
                raise KernelFailed(f"it changes its input {name}")

    def ranges(self) -> list[tuple[int, int]]:
        return [
            (buffer.address, buffer.address + buffer.size)
            for buffer in (self.inputs | self.outputs).values()
        ]


class Runner:
    def __init__(self, device: Device, request: dict[str, Any], descriptor: int) -> None:
        self.device, self.request, self.store, self.stored = device, request, descriptor, 0
        self.task = Task(request["task"])
        self.secret: int = request["seed"]
        self.scratch = device.pattern(self.task.header.scratch, seed_of(self.secret, "scratch"))
        shapes = [tuple(shape) for shape in request["shapes"]]
        self.fixtures = [
            Fixture(device, self.task, dtype, shape, seed_of(self.secret, "setting", number))
            for number, (dtype, shape) in enumerate(product(self.task.header.dtypes, shapes))
        ]

    def calls(self) -> list[dict[str, Any]]:
        return [
            {"entry": self.task.header.entry(fixture.dtype), "words": fixture.words}
            for fixture in self.fixtures
            for _ in range(self.request["repeat"])
        ]

    def check(self, plans: Sequence[Sequence[Sequence[Any]]]) -> dict[str, Any]:
        """Run every fixture as often as asked: twice on one input, then on others."""
        repeat, runs = self.request["repeat"], list[dict[str, Any]]()
        for number, fixture in enumerate(self.fixtures):
            for again in range(repeat):
                seed = seed_of(self.secret, "check", number, max(0, again - 1))
                steps = self._prepare(fixture, plans[number * repeat + again])
                fixture.fill(seed, POISONS[again % 2])
                self._launch(fixture, partial(self.device.run, steps), seed)
                runs.append(self._store(fixture, seed, whole=again == repeat - 1))
        return {"runs": runs, "watched": self._keep_inputs() if self.request["watched"] else None}

    def time(
        self, plans: Sequence[Sequence[Sequence[Any]]], rivals: dict[str, Callable[..., Any]]
    ) -> dict[str, Any]:
        """Time every fixture against its rivals, taking turns; every launch has an input and an output of its own."""
        repeat, warmup = self.request["repeat"], self.request["warmup"]
        fixture, runs = self.fixtures[0], list[dict[str, Any]]()
        times: dict[str, list[float]] = {name: [] for name in ("kernel", *rivals)}
        for number in range(repeat):
            order = ["kernel", *rivals]
            for turn in range(len(order)):
                name = order[(turn + number) % len(order)]
                seed = seed_of(self.secret, "time", number, name)
                if name == "kernel":
                    steps = self._prepare(fixture, plans[number])
                    fixture.fill(seed, POISONS[number % 2])
                    took = self._launch(
                        fixture, partial(self.device.seconds, partial(self.device.run, steps)), seed
                    )
                    runs.append(self._store(fixture, seed))
                else:
                    drawn = fixture.draw(seed)
                    took = self.device.seconds(partial(rivals[name], **drawn))
                if number >= warmup:
                    times[name].append(took)
        return {"runs": runs, "times": times}

    def _prepare(self, fixture: Fixture, plan: Sequence[Sequence[Any]]) -> list[Callable[[], None]]:
        """A plan may fill and copy only what its call was given."""
        mine = self.device.address(self.scratch)
        ranges = [*fixture.ranges(), (mine, mine + self.task.header.scratch)]
        for kind, *operands in plan:
            pointers = {"memset": operands[:1], "memcpy": operands[:2]}.get(kind, [])
            for pointer in pointers:
                if not any(
                    first <= pointer and pointer + operands[2] <= last for first, last in ranges
                ):
                    raise KernelFailed(f"at {fixture.label}: its {kind} goes outside its buffers")
        try:
            return self.device.prepare(plan)
        except KernelFailed as error:
            raise KernelFailed(f"at {fixture.label}: {error}") from error

    def _launch(self, fixture: Fixture, work: Callable[[], Any], seed: int) -> Any:
        try:
            result = work()
            self.device.finish()
            fixture.inspect(seed)
        except KernelFailed as error:
            raise KernelFailed(f"at {fixture.label}: {error}") from error
        return result

    def _keep_inputs(self) -> dict[str, Any]:
        """A small call as it was made, for `watched`: of more than one element, behind which something could lie."""
        sizes = [
            sum(buffer.size for buffer in fixture.outputs.values()) for fixture in self.fixtures
        ]
        fixture = min(
            zip(sizes, self.fixtures, strict=True), key=lambda pair: (pair[0] < 64, pair[0])
        )[1]
        names = [argument.name for argument in self.task.header.arguments]
        buffers = [
            {
                "word": names.index(name),
                "bytes": buffer.size,
                "at": self._put(buffer.data) if name in fixture.inputs else None,
            }
            for name, buffer in (fixture.inputs | fixture.outputs).items()
            if name in names
        ]
        return {
            "entry": self.task.header.entry(fixture.dtype),
            "words": fixture.words,
            "buffers": buffers,
        }

    def _put(self, data: Any) -> int:
        """Where in the store these bytes are from now on."""
        at = self.stored
        for chunk in self.device.to_bytes(data):
            write_store(self.store, memoryview(chunk).cast("B"), self.stored)
            self.stored += len(chunk)
        return at

    def _store(self, fixture: Fixture, seed: int, *, whole: bool = False) -> dict[str, Any]:
        """Hand the outputs over, out of reach of any launch that follows. Of large ones, parts that nobody foresees:
        the same for the same input."""
        size = sum(buffer.size for buffer in fixture.outputs.values()) * self.request["repeat"]
        whole = whole or size <= MAX_STORED or self.task.accept is not None
        stored: dict[str, Any] = {}
        for name, buffer in fixture.outputs.items():
            itemsize = self.device.itemsize(buffer.dtype)
            parts = (
                None
                if whole
                else choose_parts(buffer.size // itemsize, itemsize, seed_of(seed, "parts", name))
            )
            spans = [buffer.data[first * itemsize : last * itemsize] for first, last in parts or ()]
            data = self.device.xp.concatenate(spans) if spans else buffer.data
            stored[name] = {
                "at": self._put(data),
                "bytes": len(data),
                "dtype": self.device.name_of(buffer.dtype),
                "shape": list(buffer.shape),
                "parts": parts,
            }
        return {
            "dtype": fixture.dtype,
            "shape": list(fixture.shape),
            "seed": seed,
            "outputs": stored,
        }


def serve_runner(
    device: Device, request: dict[str, Any], descriptor: int, channel: Channel
) -> None:
    if request["mode"] == "probe":
        drawn = device.pattern(2**20, 1)
        channel.say({"done": device.same(drawn, device.pattern(2**20, 1))})
        return
    device.check_runs(request["arch"])
    runner = Runner(device, request, descriptor)
    rivals: dict[str, Callable[..., Any]] = {}
    facts: dict[str, Any] = {"device": device.name}
    if request["mode"] == "time":
        fixture = runner.fixtures[0]
        size = sum(buffer.size for buffer in fixture.outputs.values())
        request["repeat"] = max(request["warmup"] + 10, min(request["repeat"], MAX_STORED // size))
        known = {
            "eager": lambda: runner.task.eager,
            "compile": lambda: device.compile(runner.task.eager),
        }
        rivals = {name: known[name]() for name in request["than"]}
        for name, rival in rivals.items():  # the first call compiles
            for _ in range(3):
                rival(**fixture.draw(seed_of(runner.secret, "compiled")))
            device.finish()
            channel.say({"warm": name})
        facts["copy_bandwidth"] = device.copy_bandwidth()
        if runner.task.bytes_moved:
            facts["bytes"] = runner.task.bytes_moved(fixture.shape, device.dtype(fixture.dtype))
    scratch = device.address(runner.scratch)
    channel.say({"calls": runner.calls(), "attributes": device.attributes(), "scratch": scratch})
    plans = channel.receive()["plans"]
    try:
        device.load(bytes.fromhex(request["cubin"]))
        measured = runner.check(plans) if request["mode"] == "check" else runner.time(plans, rivals)
    except device.out_of_memory as error:  # all memory that is taken here is ours
        raise Missing(
            f"the GPU has too little free memory: {str(error).splitlines()[0]}"
        ) from error
    except (KernelFailed, RuntimeError) as error:  # PyTorch tells of what a kernel broke, too
        channel.say({"failed": str(error).splitlines()[0]})
        return
    channel.say({"done": measured | facts})


class Channel:
    """A line of JSON each way. What a kernel prints goes elsewhere."""

    def __init__(self, descriptor: int) -> None:
        self._out = os.fdopen(descriptor, "w", encoding="utf-8")
        self._in = os.fdopen(os.dup(0), encoding="utf-8")

    def say(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def receive(self) -> dict[str, Any]:
        return json.loads(self._in.readline())


def main(
    make: Callable[[], Device], serve: Callable[..., None], output: int, descriptor: int
) -> NoReturn:
    """Serve one request and end, without waiting for anything that may still hang on the GPU."""
    channel = Channel(output)
    try:
        request = channel.receive()
        device = make()
        if request.get("warm"):  # it has made its context; what to do is said later
            channel.say({"warm": device.name})
            request = channel.receive()
        serve(device, request, descriptor, channel)
    except Missing as error:
        channel.say({"missing": str(error)})
    except Exception as error:
        channel.say({"broken": f"{type(error).__name__}: {error}"})
    os._exit(0)


def write_store(store: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(store, data, at)
        data, at = data[written:], at + written


def read_store(store: int, at: int, target: memoryview) -> None:
    while target:
        count = os.preadv(store, [target], at)
        if not count:
            raise EOFError("the runner stored less than it claims")
        target, at = target[count:], at + count


def choose_parts(count: int, itemsize: int, seed: int) -> list[tuple[int, int]] | None:
    """Ranges of so many elements: the first, the last, and others by chance; None if they are no less than all."""
    length, random = PART_BYTES // itemsize, Random(seed)  # noqa: S311 - nobody is told the seed
    if count <= PARTS * length:
        return None
    starts = [0, count - length, *(random.randrange(count - length) for _ in range(PARTS - 2))]
    return [(start, start + length) for start in starts]


def compare(
    device: Device,
    got: Any,
    want: Any,
    tolerance: tuple[float, float],
    parts: Sequence[Sequence[int]] | None = None,
) -> str:
    """What is wrong with an output, or with these parts of it; empty where it is right. NaN and ∞ are right only where
    the reference has them."""
    xp = device.xp
    if parts is None and tuple(got.shape) != tuple(want.shape):
        return f"the reference has the shape {tuple(want.shape)}, not {tuple(got.shape)}"
    relative, absolute = tolerance
    got, want = got.reshape(-1), want.reshape(-1)
    compared = count = unwritten = 0
    example = ""
    for first, last in parts or [
        (at, min(at + CHUNK, len(got))) for at in range(0, len(got), CHUNK)
    ]:
        ours = device.precise(got[compared : compared + last - first])
        theirs = device.precise(want[first:last])
        compared += last - first
        special = xp.isnan(theirs) | xp.isinf(theirs)
        alike = (ours == theirs) | (xp.isnan(ours) & xp.isnan(theirs))
        near = xp.abs(ours - theirs) <= absolute + relative * xp.abs(theirs)
        wrong = ~xp.where(special, alike, near)
        if found := int(wrong.sum()):
            at = int(xp.where(wrong)[0][0])
            example = (
                example
                or f"{first + at} is {float(ours[at]):.6g} and should be {float(theirs[at]):.6g}"
            )
            count += found
            unwritten += int((wrong & xp.isnan(ours)).sum())
    if not count:
        return ""
    more = f", {unwritten:,} of them NaN" if unwritten else ""
    allowed = f"± {absolute:g} and {relative:g} of it"
    return f"{count:,} of {len(got):,} elements are wrong{more}; element {example} ({allowed})"


def judge(device: Device, task: Task, run: dict[str, Any], raw: dict[str, Any]) -> str:
    """What is wrong with the outputs of one run, given as bytes; empty if nothing."""
    drawn = task.inputs(
        tuple(run["shape"]), device.dtype(run["dtype"]), device.generator(run["seed"])
    )
    got = {
        name: device.shaped(
            raw[name], device.dtype(info["dtype"]), [-1] if info["parts"] else info["shape"]
        )
        for name, info in run["outputs"].items()
    }
    if task.accept is not None:
        return task.accept(got, **drawn)
    expected: Any = task.reference(**drawn)
    if not isinstance(expected, dict):
        expected = {next(iter(got)): expected}
    for name, output in got.items():
        info = run["outputs"][name]
        tolerance = task.header.tolerance_of(info["dtype"])
        if wrong := compare(device, output, expected[name], tolerance, info["parts"]):
            return f"{name}: {wrong}"
    return ""


def serve_referee(
    device: Device, request: dict[str, Any], descriptor: int, channel: Channel
) -> None:
    channel.say({"done": {"wrong": _find_wrong(device, request, descriptor)}})


def _find_wrong(device: Device, request: dict[str, Any], descriptor: int) -> str:
    task = Task(request["task"])
    seed, before = -1, dict[str, Any]()
    for number, run in enumerate(request["runs"]):
        label = f"{'×'.join(map(str, run['shape']))} {run['dtype']}"
        raw = {
            name: device.from_bytes(
                output["bytes"],
                lambda part, at, start=output["at"]: read_store(descriptor, start + at, part),
            )
            for name, output in run["outputs"].items()
        }
        if wrong := judge(device, task, run, raw):
            return f"at {f'timed launch {number + 1}' if request['timed'] else label}: {wrong}"
        again = task.header.exact and seed == run["seed"]
        if again and not all(device.same(raw[name], before[name]) for name in raw):
            return f"at {label}: a second run on the same input gives different bits"
        seed, before = run["seed"], raw
    return ""
