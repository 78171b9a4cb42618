"""How long one arm can keep the event loop, and with it the trials of the other arm, by what it leaves and says.

python bench/stalls.py                 # 30 trials in each arm
python bench/stalls.py --repeats 20    # 60

Students with the skill leave 99,000 files (a sandbox takes no more than 100,000), answer with 1 MB of spaces, or say
200 kB of `password=`; those without it work for half a second and answer at once. A watchdog measures the processor
time of everything that the loop runs; what takes longer than 50 ms at a time is a stall.
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.events
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from upskill.agents import Bounds
from upskill.models import ModelContext
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.runs.planning.plan import PlanOptions, Result, make_plan
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.running.events import Events
from upskill.runs.running.executors.local import Local
from upskill.runs.stores import open_store
from upskill.skills import Skill
from upskill.suites import Suite

STALL = 0.05  # seconds
DEADLINE = 60.0  # seconds for a trial
SKILL = "leaves-a-lot"
FILES = "import os; os.mkdir('many'); [open(f'many/{n}', 'w').close() for n in range(99_000)]"
HONEST = "sleep 0.5; echo fine > out.txt"
ANSWERS = {"files": "fine", "spaces": " " * 1_000_000, "passwords": "password=" * 22_000}
SCHEMA = {"type": "object", "additionalProperties": {"type": "string", "pattern": "^(a+)+$"}}
CHECKS: list[dict[str, Any]] = [
    {"equals": "fine"},
    {"starts_with": "f"},
    {"contains": "fine"},
    {"regex": r"fine\s*$"},
    {"regex": r"(\s+)+fine"},
    {"not_regex": r"(password=)+\s"},
    {"json_schema": SCHEMA},
    {"file_contains": {"path": "out.txt", "text": "fine"}},
    {"file_matches": {"path": "out.txt", "pattern": r"(\w+\s*)+$"}},
]


class Watchdog:
    """The processor time of each thing that the event loop runs."""

    def __init__(self) -> None:
        self.stalls: list[tuple[float, str]] = []
        self._run = asyncio.events.Handle._run

    def __enter__(self) -> Watchdog:
        run, stalls = self._run, self.stalls

        def watched(self: asyncio.Handle) -> None:
            began = time.thread_time()
            run(self)
            took = time.thread_time() - began
            if took > STALL:
                stalls.append((took, repr(self)[:300]))

        asyncio.events.Handle._run = watched
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.events.Handle._run = self._run

    @property
    def seconds(self) -> float:
        return sum(took for took, _ in self.stalls)


def script() -> list[dict[str, Any]]:
    """What the students of both arms do, by case."""
    leave = {"name": "bash", "arguments": {"command": f'python3 -c "{FILES}"; {HONEST}'}}
    work = {"name": "bash", "arguments": {"command": HONEST}}
    rules: list[dict[str, Any]] = []
    for name, answer in ANSWERS.items():
        calls = [leave if name == "files" else work]
        rules.append({"when": name, "system": SKILL, "turns": [{"calls": calls}, answer]})
    return [*rules, {"turns": [{"calls": [work]}, "fine"]}]


async def run(folder: Path, repeats: int) -> list[Result]:
    students = folder / "students.json"
    students.write_text(json.dumps(script()))
    cases = [{"id": name, "prompt": f"Write out.txt: {name}", "checks": CHECKS} for name in ANSWERS]
    plan = make_plan(
        Skill.new(SKILL, "Leaves a lot behind.", "Leave a lot behind."),
        Suite.parse(cases),
        [f"scripted:{students}"],
        options=PlanOptions(
            agent="tools", runs=repeats, sandbox="bubblewrap", bounds=Bounds(seconds=DEADLINE)
        ),
    )
    results: list[Result] = []
    with open_store(str(folder / "runs")) as store:
        await evaluate(
            plan,
            store=store,
            models=Models(ModelContext(), replies=store, cache="off", ledger=Ledger()),
            options=RunOptions(executor=Local(16)),
            events=Events(result=results.append),
        )
    return results


def is_late(result: Result) -> bool:
    stopped = result.trace is not None and result.trace.stop == "seconds"
    return stopped or any("ran longer" in finding.reason for finding in result.findings)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Watchdog() as watchdog:
        began, cpu_before = time.perf_counter(), time.process_time()
        results = asyncio.run(run(Path(folder), options.repeats))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_before
    honest = [result for result in results if result.trial.arm == "baseline"]
    late = [result for result in honest if is_late(result)]
    missing = [result for result in results if result.passed is None]
    print(f"{len(results)} trials in {seconds:.1f} s, of which {cpu:.1f} s of processor time")
    print(f"late: {len(late)} of {len(honest)} trials of the other arm; missing: {len(missing)}")
    print(f"stalls: {watchdog.seconds:.2f} s, {watchdog.seconds / seconds:.1%} of the run")
    for took, what in sorted(watchdog.stalls, reverse=True)[:5]:
        print(f"  {took:.3f} s  {what}")
    for result in missing[:3]:
        print(f"  missing: {result.error}")


if __name__ == "__main__":
    main()
