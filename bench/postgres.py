"""Durable trials per second into PostgreSQL, beside SQLite.

createdb bench
python bench/postgres.py --store postgresql:///bench

Every trial has an answer of some 400 characters and is waited for, as a run does: what is counted is durable. The
schema `upskill_bench` of the database is made anew for every measurement and dropped at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psycopg

from upskill import Plan, Result, Skill, Store, Suite, open_store
from upskill.models import Address
from upskill.runs.planning.plan import CheckFinding
from upskill.traces import Step, Trace, Usage

SCHEMA = "upskill_bench"


def make_plan() -> Plan:
    cases = [{"id": f"case-{n:03d}", "prompt": f"Please greet guest {n}."} for n in range(100)]
    suite = Suite.parse({"cases": cases, "checks": [{"contains": "ahoy"}]})
    skill = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")
    return Plan(skill, suite, (Address("one", "scripted", "one"),), runs=2000)


def results(plan: Plan) -> Iterator[Result]:
    usage = Usage(200, 40, cost_usd=0.001)
    trace = Trace((Step("assistant", "ahoy, friend " * 30),), usage, "end", "tiny-2026", turns=1)
    for number, trial in enumerate(plan.trials()):
        judged = (CheckFinding("contains", number % 3 > 0, "looked for ahoy"),)
        yield Result(
            trial,
            plan.key(trial),
            number % 3 > 0,
            trace=trace,
            findings=judged,
            usage=usage,
            seconds=1.0,
        )


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
    print(
        "| trials at once | SQLite, trials/s | PostgreSQL, trials/s | ratio |\n|---:|---:|---:|---:|"
    )
    for at_once in (1, 8, 64, 512):
        some = trials if at_once > 8 else max(200, trials // 20)
        rates: dict[str, list[float]] = {"sqlite": [], "postgresql": []}
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder, open_store(Path(folder)) as store:
                rates["sqlite"].append(asyncio.run(fill(store, plan, some, at_once)))
            with open_store(fresh(url)) as store:
                rates["postgresql"].append(asyncio.run(fill(store, plan, some, at_once)))
        sqlite, postgres = (statistics.median(each) for each in rates.values())
        print(
            f"| {at_once} | {sqlite:,.0f} | {postgres:,.0f} | {postgres / sqlite:.2f} |", flush=True
        )


def fresh(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    return f"{url}{'&' if '?' in url else '?'}schema={SCHEMA}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--store", required=True, metavar="URL", help="of a database that may be filled"
    )
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    compare_stores(given.store, make_plan(), given.trials, given.rounds)
    fresh(given.store)


if __name__ == "__main__":
    main()
