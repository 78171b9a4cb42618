"""What a sandbox costs beside the bare command: opening one and running `true`, and a further command in an open one.

Both sides in one run and in turn, so that a busy moment hits both; medians, in milliseconds.

python bench/sandbox.py
python bench/sandbox.py --kind container --repeat 50
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Awaitable, Callable

from upskill.sandboxes import Setup, choose_sandbox


def median(
    values: list[float],
) -> float:  # `import statistics` would find the benchmark of that name beside this one
    return sorted(values)[len(values) // 2]


def cpu() -> float:
    """Processor time of this process and of all that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


async def timed(work: Callable[[], Awaitable[None]], times: list[float]) -> None:
    began = time.perf_counter()
    await work()
    times.append(1000 * (time.perf_counter() - began))


async def compare(name: str | None, repeat: int) -> None:
    chosen = await choose_sandbox(name)
    kind = chosen.backend

    async def bare() -> None:
        process = subprocess.Popen(
            ["/bin/true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={}
        )
        process.wait()

    async def opened() -> None:
        async with await kind.open(Setup()) as sandbox:
            assert (await sandbox.run(["true"])).code == 0

    async def started() -> None:
        """Until the command has ended: what a trial waits for. The stop after it is not in the way of anybody."""
        began = time.perf_counter()
        sandbox = await kind.open(Setup())
        assert (await sandbox.run(["true"])).code == 0
        started_times.append(1000 * (time.perf_counter() - began))
        await sandbox.stop()

    times: dict[str, list[float]] = {
        "bare": [],
        "bare shell": [],
        "opened": [],
        "further": [],
        "shell": [],
    }
    started_times: list[float] = []
    for work in (bare, opened, started):
        await work()
    started_times.clear()
    async with await kind.open(Setup()) as sandbox:

        async def further() -> None:
            assert (await sandbox.run(["true"])).code == 0

        async def shell() -> None:
            assert (await sandbox.run("true")).code == 0

        async def bare_shell() -> None:
            process = subprocess.Popen(
                ["/bin/bash", "-c", "true"], stdin=subprocess.DEVNULL, env={}
            )
            process.wait()

        await further()
        for _ in range(repeat):
            await timed(bare, times["bare"])
            await timed(opened, times["opened"])
            await started()
            await timed(further, times["further"])
            await timed(bare_shell, times["bare shell"])
            await timed(shell, times["shell"])
    before = cpu()
    for _ in range(repeat):
        await opened()
    each = 1000 * (cpu() - before) / repeat
    plain, plain_shell = median(times["bare"]), median(times["bare shell"])
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    print(
        f"{chosen.version}, as {who}, {repeat} times each, medians in ms; load {os.getloadavg()[0]:.1f}\n"
    )
    print("| what | bare | in the sandbox | extra |")
    print("|---|---|---|---|")
    for what, other, sandboxed in (
        ("open, run `true`", plain, median(started_times)),
        ("open, run `true`, stop", plain, median(times["opened"])),
        ("a further `true`", plain, median(times["further"])),
        ("a further `bash -c true`", plain_shell, median(times["shell"])),
    ):
        print(f"| {what} | {other:.1f} | {sandboxed:.1f} | {sandboxed - other:+.1f} |")
    print(f"\n{each:.1f} ms of processor time to open, run `true` and stop")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind")
    parser.add_argument("--repeat", type=int, default=100)
    options = parser.parse_args()
    asyncio.run(compare(options.kind, options.repeat))


if __name__ == "__main__":
    main()
