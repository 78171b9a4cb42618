"""How many trials a second on all cores with Ray, beside the local executor, which is one process.

python bench/executors.py                          # model calls, then students that act, each side three times in turn
python bench/executors.py --only agents --rounds 5

Model calls are those of throughput.py, students that act those of agents.py. A side is a process of its own that runs
some trials first, so that what starts (Ray, its workers, connections) has started; that is told apart. The server runs
on the same cores, so what it takes is told too: where all cores are busy, no executor can do better.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agents import acting_plan
from throughput import AT_ONCE, calling_plan

if TYPE_CHECKING:
    from upskill.runs.planning.plan import Plan

HERE = Path(__file__).resolve()
Kind = Literal["calls", "agents"]
Executor = Literal["local", "ray"]
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Comparison:
    kind: Kind
    title: str
    trials: int
    first: int  # trials that are run before
    at_once: int
    wanted: float  # times as many trials a second with Ray
    server: tuple[str, ...]


def comparisons(options: argparse.Namespace) -> list[Comparison]:
    bench = HERE.parent
    found = [
        Comparison(
            *(
                "calls",
                "model calls",
                options.calls,
                1000,
                AT_ONCE,
                1.3,
                (str(bench / "server.py"),),
            ),
        ),
        Comparison(
            *(
                "agents",
                "students that act",
                options.agents,
                40,
                8,
                1.6,
                (str(bench / "agents.py"), "--serve"),
            ),
        ),
    ]
    return [one for one in found if options.only in ("", one.kind)]


# One side, in a process of its own.


async def make_plan_of(kind: Kind, url: str, trials: int) -> Plan:
    return calling_plan(url, trials) if kind == "calls" else await acting_plan(url, trials, "")


async def run_side(
    kind: Kind, executor: Executor, url: str, trials: tuple[int, int], at_once: int
) -> None:
    from upskill.models import ModelContext  # noqa: PLC0415 - not for the process that compares
    from upskill.models.ledger import Ledger  # noqa: PLC0415
    from upskill.models.pool import Models  # noqa: PLC0415 - not for the process that compares
    from upskill.runs.running.evaluate import RunOptions, evaluate  # noqa: PLC0415
    from upskill.runs.running.events import Events  # noqa: PLC0415
    from upskill.runs.running.executors import EXECUTORS  # noqa: PLC0415
    from upskill.runs.stores import open_store  # noqa: PLC0415

    chosen = EXECUTORS.load(executor)(at_once)
    told: dict[str, Any] = {}
    for name, number in zip(("first", "all"), trials, strict=True):
        began, busy, used = time.perf_counter(), busy_seconds(), cpu_seconds(os.getpid())

        def started(*_: object) -> None:
            nonlocal began, busy, used
            if name == "all":  # noqa: B023 - called before the next one
                began, busy, used = time.perf_counter(), busy_seconds(), cpu_seconds(os.getpid())

        plan = await make_plan_of(kind, url, number)
        with open_store(name) as store:
            evaluation = await evaluate(
                plan,
                store=store,
                models=Models(ModelContext(connections=at_once), replies=store, ledger=Ledger()),
                options=RunOptions(executor=chosen),
                events=Events(started=started),
            )
        told[name] = time.perf_counter() - began
        told["busy"], told["cpu"] = busy_seconds() - busy, cpu_seconds(os.getpid()) - used
        (verdict,) = evaluation.verdicts
        counted = verdict.baseline.passed + verdict.skill.passed
        assert counted == number if kind == "agents" else number // 2, evaluation.errors[:1]
    print(json.dumps(told))


def busy_seconds() -> float:
    """Of all cores together, since the machine was started."""
    user, nice, system, _idle, _waiting, *rest = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + sum(rest[:2])) / TICK


def cpu_seconds(process: int) -> float:
    """Of a process and of all that it started, directly or not."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            number = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(number)
            used[number] = sum(
                map(int, fields[11:15])
            )  # with those that have ended and were waited for
    found = [process]
    for one in found:
        found += children.get(one, [])
    return sum(used.get(one, 0) for one in found) / TICK


# All sides, in turn.


@dataclass(frozen=True)
class Took:
    start: float  # seconds until the first trials were done
    seconds: float
    cores: float  # that were busy, with whatever else ran on the machine
    cpu: float  # seconds, of all processes of this side
    server: float  # the same of the server, for the first trials too


@contextmanager
def serving(command: tuple[str, ...]) -> Generator[tuple[str, int]]:
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.kill()


def measure(compared: Comparison, executor: Executor) -> Took:
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        serving(compared.server) as (url, server),
    ):
        Path(folder).chmod(0o755)  # a student that root starts is another user, and has to get in
        numbers = [compared.first, compared.trials, compared.at_once]
        line = [
            sys.executable,
            str(HERE),
            "--side",
            compared.kind,
            executor,
            url,
            *map(str, numbers),
        ]
        done = subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
        told = json.loads(done.stdout.splitlines()[-1])
        return Took(
            told["first"], told["all"], told["busy"] / told["all"], told["cpu"], cpu_seconds(server)
        )


def compare(compared: Comparison, rounds: int) -> None:
    took: dict[Executor, list[Took]] = {"local": [], "ray": []}
    for number in range(rounds):
        for executor, sides in took.items():
            sides.append(measure(compared, executor))
            rate = compared.trials / sides[-1].seconds
            print(
                f"round {number + 1}: {compared.title}, {executor}: {rate:,.1f}/s",
                file=sys.stderr,
                flush=True,
            )
    print(
        f"\n{compared.title}: {compared.trials:,} trials, {compared.at_once} at once, {os.cpu_count()} cores\n"
    )
    print(
        "| executor | trials/s | cores busy | CPU ms a trial | CPU ms of the server | first trials done after |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for executor, sides in took.items():
        side = sorted(sides, key=lambda one: one.seconds)[len(sides) // 2]
        each = 1000 * side.cpu / compared.trials
        server = 1000 * side.server / (compared.trials + compared.first)
        rate = compared.trials / side.seconds
        print(
            f"| {executor} | {rate:,.1f} | {side.cores:.2f} | {each:.2f} | {server:.2f} | {side.start:.1f} s |"
        )
    ratios = sorted(
        local.seconds / ray.seconds for local, ray in zip(took["local"], took["ray"], strict=True)
    )
    middle = ratios[len(ratios) // 2]
    print(
        f"\nRay: {middle:.2f} x the local executor's trials/s (wanted: at least {compared.wanted} x), ",
        end="",
    )
    print(f"in single rounds {ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--calls", type=int, default=20_000, help="trials of model calls, a multiple of 200"
    )
    parser.add_argument("--agents", type=int, default=400, help="trials of students that act")
    parser.add_argument("--only", choices=("calls", "agents"), default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        kind, executor, url, *numbers = options.side
        first, trials, at_once = map(int, numbers)
        asyncio.run(run_side(kind, executor, url, (first, trials), at_once))
    else:
        for compared in comparisons(options):
            compare(compared, options.rounds)


if __name__ == "__main__":
    main()
