"""What looking at a large store costs: `runs`, `show`, and going on with a run of 300,000 trials.

python bench/store.py                  # 300,000 trials in one run, half a gigabyte in --work
python bench/store.py --trials 30000

The store is filled without running anything: every trial has an answer of some 400 characters. Then each command is
run as a process of its own, and its time and CPU are told, Python's start included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upskill import Models, Plan, PlanOptions, Skill, Suite, evaluate, make_plan
from upskill.runs.planning.plan import CheckFinding, Result
from upskill.runs.stores import Run, Store, open_store
from upskill.runs.stores.rows import result_to_row
from upskill.runs.stores.tables import RESULTS
from upskill.traces import Step, Trace, Usage

CASES = 300


def prepare(work: Path, trials: int) -> Plan:
    folder = work / "greeter"
    Skill.new("greeter", "Greets.", "Say ahoy to the guest.").save(folder, overwrite=True)
    cases = [f"- {{id: case-{n:04d}, prompt: 'Please greet guest {n}.'}}" for n in range(CASES)]
    suite = "\n".join(["cases:", *cases, "checks:", "- contains: ahoy", ""])
    (work / "suite.yaml").write_text(suite, encoding="utf-8")
    (work / "student.yaml").write_text("- answer: ahoy\n", encoding="utf-8")
    runs = max(1, trials // (2 * CASES))
    options = PlanOptions(runs=runs, keys={})
    return make_plan(
        Skill.load(folder), Suite.load(work / "suite.yaml"), ["scripted:student.yaml"], options
    )


def results(plan: Plan) -> Iterator[Result]:
    usage = Usage(200, 40, cost_usd=0.001)
    trace = Trace((Step("assistant", "ahoy, friend " * 30),), usage, "end", "tiny-2026", turns=1)
    for number, trial in enumerate(plan.trials()):
        passed = number * 7919 % 10 > (3 if trial.arm == "skill" else 6)
        judged = (CheckFinding("contains", passed, "looked for ahoy"),)
        yield Result(
            trial, plan.key(trial), passed, trace=trace, findings=judged, usage=usage, seconds=1.0
        )


def fill(store: Store, run: Run, results: Iterator[Result]) -> None:
    """All at once, in the order of the file, and the indexes afterwards."""
    rows = sorted(
        (RESULTS.encode(result_to_row(run.number, result)) for result in results),
        key=lambda row: row[1],
    )
    with store.database.transaction() as db:
        indexes = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE name LIKE 'results!_%' ESCAPE '!'"
        ).fetchall()
        for name, _ in indexes:
            db.execute(f"DROP INDEX {name}")
        db.executemany(RESULTS.insert(), rows)
        for _, statement in indexes:
            db.execute(statement)


def measure(name: str, work: Path, *argv: object) -> None:
    before, started = os.times(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "upskill", *map(str, argv)],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    wall, after = time.monotonic() - started, os.times()
    cpu = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    assert done.returncode == 0, done.stderr
    print(
        f"| {name} | {wall:.1f} s | {cpu:.1f} s | {len(done.stdout.splitlines()):,} |", flush=True
    )


def measure_resume(work: Path, *argv: object) -> None:
    """Until it says what is left to run; the report at the end weighs every trial."""
    started = time.monotonic()
    command = [sys.executable, "-m", "upskill", *map(str, argv)]
    with subprocess.Popen(
        command, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("Continuing run"))
        wall, clock = (
            time.monotonic() - started,
            Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").split(),
        )
        process.kill()
    cpu = (int(clock[13]) + int(clock[14])) / os.sysconf("SC_CLK_TCK")
    print(f"| eval, until it goes on | {wall:.1f} s | {cpu:.1f} s | “{said.strip()}” |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=300_000)
    parser.add_argument("--work", type=Path, help="a folder to keep")
    given: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work: Path = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        os.chdir(work)
        plan = prepare(work, given.trials)
        with open_store(work / "runs") as store:
            run, _ = store.start_run(plan, "0")
            fill(store, run, results(plan))
            asyncio.run(
                evaluate(plan, store=store, models=Models(cache="off"))
            )  # as if it had just been reported
        print(
            f"{len(plan):,} trials, {(work / 'runs' / 'upskill.db').stat().st_size / 1e6:,.0f} MB\n"
        )
        print("| command | time | CPU | lines |\n|---|---:|---:|---:|")
        measure("runs", work, "runs")
        measure("runs --json", work, "runs", "--json")
        measure("show last", work, "show", "last")
        measure("show last --page 5000", work, "show", "last", "--page", min(5000, len(plan) // 40))
        measure("show last --failed", work, "show", "last", "--failed")
        with open_store(work / "runs") as store:
            store.database.execute(
                "DELETE FROM results WHERE key = ?", plan.key(next(plan.trials()))
            )
        tests = ("-t", "suite.yaml", "-m", "scripted:student.yaml", "--repeats", plan.runs)
        measure_resume(work, "eval", "greeter", *tests, "--set", "max_calls=0")


if __name__ == "__main__":
    main()
