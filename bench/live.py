"""What the live page costs: how fast it answers at a million trials, and what fifty open pages cost a run.

python bench/live.py                        # 1,000,000 trials in one run, beside 200 small runs: 2 GB in --work
python bench/live.py --trials 100000 --rounds 5

The store is filled without running anything (see store.py). Every answer is asked for over HTTP, the first time and
again. Then a run of scripted trials is carried out with no page open and with fifty, in turns: each page listens, and
asks for the summary and the trials anew after a change, as seldom as the server says, as a browser's pages do. The
pages are a process of low priority, as the server is: what they cost is what they take from the run all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from store import fill, prepare, results
from upskill import open_store

PAGES = 50
MIDDLE = '["case-0150","scripted:student.yaml","skill",500]'
WANTED_MS, WANTED_COST = 200, 0.05


@asynccontextmanager
async def viewing(work: Path, store: str = "runs") -> AsyncGenerator[str]:
    """`upskill view` as a process of its own; its address."""
    command = [
        sys.executable,
        "-m",
        "upskill",
        "view",
        "--no-browser",
        "--port",
        "0",
        "--store",
        store,
    ]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def measure_answers(work: Path, run: str) -> None:
    """How long each page takes, the first time and in the middle of twenty."""
    print("| answer | first | again |\n|---|---:|---:|")
    async with viewing(work) as address, aiohttp.ClientSession() as session:
        asked = {
            "list of runs": "api/overview",
            "page of the run, before anything is computed": f"api/run?run={run}",
            "its summary": f"api/summary?run={run}",
            "50 trials": f"api/trials?run={run}",
            "50 trials, from the middle": f"api/trials?run={run}&after={MIDDLE}",
            "failed trials of one arm": f"api/trials?run={run}&arm=skill&outcome=failed",
            "trials of one case": f"api/trials?run={run}&case=case-0299",
            "a text that is nowhere, until the time for it is up": f"api/trials?run={run}&text=zzz",
            "skill": "api/skill?skill=greeter",
        }
        for name, path in asked.items():
            took = [await ask(session, address + path) for _ in range(20)]
            print(
                f"| {name} | {took[0]:.0f} ms | {statistics.median(took[1:]):.0f} ms |", flush=True
            )
        began, status = time.monotonic(), 202
        while status == 202:
            await asyncio.sleep(0.5)
            async with session.get(f"{address}api/summary?run={run}") as answer:
                status = answer.status
        print(f"\nThe summary was computed {time.monotonic() - began:.0f} s later;", end=" ")
        took = [await ask(session, f"{address}api/summary?run={run}") for _ in range(20)]
        print(
            f"then it is answered in {statistics.median(took):.0f} ms (wanted: under {WANTED_MS} ms)."
        )


async def ask(session: aiohttp.ClientSession, url: str) -> float:
    began = time.perf_counter()
    async with session.get(url) as answer:
        await answer.read()
        assert answer.status in (200, 202), (url, await answer.text())
    return 1000 * (time.perf_counter() - began)


async def open_page(address: str) -> None:
    """What a page does of the run that it hears of."""
    again, tag = 0.0, ""
    forever = aiohttp.ClientTimeout(None)
    async with (
        aiohttp.ClientSession(timeout=forever) as session,
        session.get(f"{address}events") as events,
    ):
        async for line in events.content:
            if not line.startswith(b"data: [{"):
                continue
            run, now = json.loads(line.removeprefix(b"data: "))[-1]["id"], time.monotonic()
            if now < again:
                continue
            async with session.get(
                f"{address}api/summary?run={run}", headers={"If-None-Match": tag}
            ) as answer:
                tag = answer.headers["ETag"]
                await answer.read()
            async with session.get(f"{address}api/trials?run={run}") as answer:
                again = now + 1.5  # as the page does
                await answer.read()


async def open_pages(address: str, pages: int) -> None:
    os.nice(15)
    await asyncio.gather(*(open_page(address) for _ in range(pages)))
    await asyncio.Event().wait()


def carry_out(work: Path, trials: int, store: str) -> float:
    """Trials a second of a run in a process of its own."""
    command = [
        "eval",
        "greeter",
        "-t",
        "suite.yaml",
        "-m",
        "scripted:student.yaml",
        "--quiet",
        "--set",
        "cache=false",
    ]
    options = ["--repeats", str(trials // 600), "--store", store]
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "upskill", *command, *options],
        cwd=work,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return trials / (time.monotonic() - began)


async def watch_run(work: Path, trials: int, pages: int) -> float:
    """Trials a second of a run in a store of its own, with so many pages open."""
    with tempfile.TemporaryDirectory(dir=work) as store:
        open_store(store).close()
        async with viewing(work, store) as address:
            reader = await asyncio.create_subprocess_exec(
                sys.executable, __file__, "--open", address, str(pages)
            )
            try:
                await asyncio.sleep(3)
                return await asyncio.to_thread(carry_out, work, trials, store)
            finally:
                reader.kill()
                await reader.wait()


async def measure_pages(work: Path, trials: int, rounds: int) -> None:
    rates: dict[int, list[float]] = {0: [], PAGES: []}
    for number in range(rounds):
        for pages in (0, PAGES) if number % 2 else (PAGES, 0):
            rates[pages].append(await watch_run(work, trials, pages))
            print(f"{pages} pages: {rates[pages][-1]:,.0f} trials/s", flush=True)
    alone, watched = statistics.median(rates[0]), statistics.median(rates[PAGES])
    lost = sorted(
        1 - two / one for one, two in zip(rates[0], rates[PAGES], strict=True)
    )  # a machine's pace may drift
    print(
        f"\n{trials:,} trials, {rounds} pairs of runs: {alone:,.0f} trials/s with no page open, {watched:,.0f} with",
        end=" ",
    )
    print(
        f"{PAGES} (medians). In the middle one of the pairs {statistics.median(lost):.1%} are lost",
        end=" ",
    )
    print(f"(from {lost[0]:.1%} to {lost[-1]:.1%}; wanted: under {WANTED_COST:.0%})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--run-trials", type=int, default=12_000, help="of the run that is watched")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", type=Path, help="a folder to keep")
    parser.add_argument("--open", nargs=2, help=argparse.SUPPRESS)
    given: Any = parser.parse_args()
    if given.open:
        asyncio.run(open_pages(given.open[0], int(given.open[1])))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work: Path = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        os.chdir(work)
        plan = prepare(work, given.trials)
        if not (work / "runs").exists():
            small = prepare(work, 600)
            with open_store(work / "runs") as store:
                for seed in range(200):
                    store.start_run(replace(small, seed=seed), "0")
                run, _ = store.start_run(plan, "0")
                fill(store, run, results(plan))
        with open_store(work / "runs") as store:
            run = next(run for run in store.runs(newest_first=True) if run.trials == len(plan))
        size = (work / "runs" / "upskill.db").stat().st_size
        print(f"{len(plan):,} trials, {size / 1e6:,.0f} MB\n")
        asyncio.run(measure_answers(work, run.id))
        if given.rounds:
            asyncio.run(measure_pages(work, given.run_trials, given.rounds))


if __name__ == "__main__":
    main()
