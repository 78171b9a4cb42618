"""Durable trials a second into PostgreSQL: beside SQLite, and by the two drivers and three ways there are.

createdb bench
python bench/postgres.py --store postgresql:///bench
python bench/postgres.py --store postgresql:///bench --drivers    # needs asyncpg too

Every trial has an answer of some 400 characters and is waited for, as a run does: what is counted is durable. The
schema `upskill_bench` of the database is made anew for every measurement and dropped at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import psycopg

from upskill import Plan, Result, Skill, Store, Suite, open_store
from upskill.models import Address
from upskill.runs.planning.plan import Judgement
from upskill.runs.stores.rows import RESULT_COLUMNS, result_values
from upskill.runs.stores.sql import ADD_RESULT
from upskill.traces import Step, Trace, Usage

SCHEMA = "upskill_bench"
Rows = Sequence[tuple[Any, ...]]


def make_plan() -> Plan:
    cases = [{"id": f"case-{n:03d}", "prompt": f"Please greet guest {n}."} for n in range(100)]
    suite = Suite.parse({"cases": cases, "checks": [{"contains": "ahoy"}]})
    skill = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")
    return Plan(skill, suite, (Address("one", "scripted", "one"),), runs=2000)


def results(plan: Plan) -> Iterator[Result]:
    usage = Usage(200, 40, cost_usd=0.001)
    trace = Trace((Step("assistant", "ahoy, friend " * 30),), usage, "end", "tiny-2026", turns=1)
    for number, trial in enumerate(plan.trials()):
        judged = (Judgement("contains", number % 3 > 0, "looked for ahoy"),)
        yield Result(trial, plan.key(trial), number % 3 > 0, trace=trace, judgements=judged, usage=usage, seconds=1.0)


# The store, as a run uses it.


async def fill(store: Store, plan: Plan, trials: int, at_once: int) -> float:
    run, _ = store.start_run(plan, "0")
    found = islice(results(plan), trials)

    async def work() -> None:
        for result in found:
            await store.add_result(run, result)

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    taken = time.perf_counter() - started
    assert store.run(run.id).passed + store.run(run.id).failed == trials
    return trials / taken


def compare_stores(url: str, plan: Plan, trials: int, rounds: int) -> None:
    print("| trials at once | SQLite, trials/s | PostgreSQL, trials/s | ratio |\n|---:|---:|---:|---:|")
    for at_once in (1, 8, 64, 512):
        some = trials if at_once > 8 else max(200, trials // 20)
        rates: dict[str, list[float]] = {"sqlite": [], "postgresql": []}
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder, open_store(Path(folder)) as store:
                rates["sqlite"].append(asyncio.run(fill(store, plan, some, at_once)))
            with open_store(fresh(url)) as store:
                rates["postgresql"].append(asyncio.run(fill(store, plan, some, at_once)))
        sqlite, postgres = (statistics.median(each) for each in rates.values())
        print(f"| {at_once} | {sqlite:,.0f} | {postgres:,.0f} | {postgres / sqlite:.2f} |", flush=True)


def fresh(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    return f"{url}{'&' if '?' in url else '?'}schema={SCHEMA}"


# The drivers, and ways to hand over many rows: one commit for each group.

_TEMPORARY = f"CREATE TEMPORARY TABLE IF NOT EXISTS incoming (LIKE {SCHEMA}.results)"
_FROM_TEMPORARY = (
    ADD_RESULT[: ADD_RESULT.index("VALUES")]
    + f"SELECT {', '.join(RESULT_COLUMNS)} FROM incoming "
    + ADD_RESULT[ADD_RESULT.index("ON CONFLICT") :]
)
_KINDS = {
    **dict.fromkeys(("passed", "activated", "bug"), "boolean"),
    **dict.fromkeys(("cost_usd", "seconds", "judge_cost_usd", "earlier_cost_usd"), "double precision"),
    **dict.fromkeys(
        ("model", "key", "case_id", "arm", "finished", "error", "detail", "leak", "snapshot", "cause"), "text"
    ),
}
_FROM_ARRAYS = (
    ADD_RESULT[: ADD_RESULT.index("VALUES")]
    + f"SELECT * FROM unnest({', '.join('%s::' + _KINDS.get(name, 'bigint') + '[]' for name in RESULT_COLUMNS)}) "
    + ADD_RESULT[ADD_RESULT.index("ON CONFLICT") :]
)
_COPY = f"COPY incoming ({', '.join(RESULT_COLUMNS)}) FROM STDIN"


def psycopg_way(url: str, way: str) -> Callable[[Rows], None]:
    db = psycopg.connect(url, autocommit=True)
    db.execute(f"SET search_path TO {SCHEMA}".encode())
    db.execute(_TEMPORARY.encode())

    def write(rows: Rows) -> None:
        with db.transaction(), db.cursor() as cursor:
            if way == "executemany":
                cursor.executemany(ADD_RESULT.replace("?", "%s").encode(), rows)
            elif way == "arrays":
                cursor.execute(_FROM_ARRAYS.encode(), [list(column) for column in zip(*rows, strict=True)])
            else:
                with cursor.copy(_COPY.encode()) as copy:
                    for row in rows:
                        copy.write_row(row)
                cursor.execute(f"{_FROM_TEMPORARY}; TRUNCATE incoming".encode())

    return write


async def asyncpg_way(url: str, way: str) -> Callable[[Rows], Awaitable[None]]:
    import asyncpg  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs, reportMissingImports]

    library: Any = asyncpg
    db: Any = await library.connect(url, server_settings={"search_path": SCHEMA})
    await db.execute(_TEMPORARY)
    numbers = count(1)
    one = "".join(f"${next(numbers)}" if each == "?" else each for each in ADD_RESULT)
    arrays, numbers = _FROM_ARRAYS, count(1)
    while "%s" in arrays:
        arrays = arrays.replace("%s", f"${next(numbers)}", 1)

    async def write(rows: Rows) -> None:
        async with db.transaction():
            if way == "executemany":
                await db.executemany(one, rows)
            elif way == "arrays":
                await db.execute(arrays, *(list(column) for column in zip(*rows, strict=True)))
            else:
                await db.copy_records_to_table("incoming", records=rows, columns=RESULT_COLUMNS)
                await db.execute(f"{_FROM_TEMPORARY}; TRUNCATE incoming")

    return write


async def measure_way(url: str, driver: str, way: str, rows: list[tuple[Any, ...]], size: int) -> tuple[float, float]:
    """Rows a second, and milliseconds of our own CPU a row."""
    with open_store(fresh(url)) as store:
        store.start_run(make_plan(), "0")
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    write: Any = psycopg_way(url, way) if driver == "psycopg" else await asyncpg_way(url, way)
    started, cpu = time.perf_counter(), time.process_time()
    for group in groups:
        if driver == "psycopg":
            write(group)
        else:
            await write(group)
    return len(rows) / (time.perf_counter() - started), (time.process_time() - cpu) / len(rows) * 1000


def compare_drivers(url: str, plan: Plan, trials: int, rounds: int) -> None:
    print("| driver | how | " + " | ".join(f"{size} rows a commit" for size in (8, 64, 512)) + " |")
    print("|---|---|---:|---:|---:|")
    rows = [result_values(1, result) for result in islice(results(plan), trials)]
    for driver in ("psycopg", "asyncpg"):
        for way in ("executemany", "arrays", "copy"):
            cells: list[str] = []
            for size in (8, 64, 512):
                some = rows if size > 8 else rows[: len(rows) // 10]
                taken = [asyncio.run(measure_way(url, driver, way, some, size)) for _ in range(rounds)]
                rate, cpu = (statistics.median(each) for each in zip(*taken, strict=True))
                cells.append(f"{rate:,.0f}/s ({cpu:.3f} ms)")
            print(f"| {driver} | {way} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, metavar="URL", help="of a database that may be filled")
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--drivers", action="store_true", help="compare the drivers and not the stores")
    given = parser.parse_args()
    plan = make_plan()
    (compare_drivers if given.drivers else compare_stores)(given.store, plan, given.trials, given.rounds)
    fresh(given.store)


if __name__ == "__main__":
    main()
