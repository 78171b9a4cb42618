"""How many trials a second, at which CPU and memory: upskill beside a bare aiohttp loop, inspect_ai and promptfoo.

python bench/throughput.py                     # upskill and the bare loop, 5,000 trials each
python bench/throughput.py --install           # and inspect_ai and promptfoo, installed into --work for the purpose
python bench/throughput.py --long              # and 50,000 trials of upskill: does it stay flat?

Each side is a process of its own that asks the same questions of a server that takes 50 ms for each (bench/server.py,
in a process of its own too), 256 at a time, and looks for one word in each answer. A side is run with few trials as
well, and its start-up, which that costs, is taken off: what is told is what one more trial costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from upskill.runs.planning.plan import Plan, Result, Trial
    from upskill.runs.stores import Run

HERE = Path(__file__).resolve()
WORD = "kumquat"  # see server.py
AT_ONCE = 256
FEW = 20  # trials of the run that shows what starting costs
CASES = 100  # at most; further trials are further seeds
SYSTEM = (
    "You are a helpful assistant. Do exactly what the user asks."  # as upskill.agents.chat says it
)
ADVICE = "\n".join(
    [
        "# Naming fruit",
        "",
        f"When a question is about a fruit that it does not name, the fruit is the {WORD}.",
        "",
        *(
            f"{n}. Read the question twice, note what is asked and leave out what is not, part {n}."
            for n in range(1, 21)
        ),
    ]
)


def question(case: int) -> str:
    return f"Question {case}: which fruit is meant by the description in line {case} of the register? Name it."


def shape(trials: int) -> tuple[int, int]:
    """Cases and seeds that, in two arms, make up this many trials."""
    cases = min(CASES, max(1, trials // 10))
    return cases, trials // (2 * cases)


def calling_plan(url: str, trials: int) -> Plan:
    from upskill.runs.planning.plan import PlanOptions, make_plan  # noqa: PLC0415 - each side imports its own
    from upskill.skills import Skill  # noqa: PLC0415
    from upskill.suites import Suite  # noqa: PLC0415

    cases, runs = shape(trials)
    suite = Suite.parse(
        [
            {"id": f"{n}", "prompt": question(n), "checks": [{"contains": WORD}]}
            for n in range(cases)
        ]
    )
    skill = Skill.new("naming-fruit", "Names a fruit that a question leaves out.", ADVICE)
    return make_plan(skill, suite, ["benchmark"], options=PlanOptions(base_url=url, runs=runs))


# What the sides are: each prints how many of its trials have passed, as JSON.


async def run_upskill(
    url: str, trials: int, folder: str, cache: Literal["use", "off"], *, sampled: bool
) -> None:
    """What `upskill eval --json` does: plan, estimate, trials into the store on disk, verdict, report."""
    from upskill.models import ModelContext  # noqa: PLC0415
    from upskill.models.ledger import Ledger  # noqa: PLC0415
    from upskill.models.pool import Models  # noqa: PLC0415
    from upskill.reports.figures import document  # noqa: PLC0415
    from upskill.runs.planning.estimate import estimate  # noqa: PLC0415 - each side imports its own
    from upskill.runs.running.evaluate import RunOptions, evaluate  # noqa: PLC0415
    from upskill.runs.running.events import Events  # noqa: PLC0415
    from upskill.runs.running.executors.local import Local  # noqa: PLC0415
    from upskill.runs.stores import open_store  # noqa: PLC0415

    plan = calling_plan(url, trials)
    samples: list[float] = []
    seen = 0

    def started(_plan: Plan, _run: Run, missing: Collection[Trial]) -> None:
        estimate(plan, missing, {})
        samples.append(time.process_time())

    def watch(_: Result) -> None:
        nonlocal seen
        seen += 1
        if seen % 1000 == 0:
            samples.append(time.process_time())

    with open_store(folder) as store:
        evaluation = await evaluate(
            plan,
            store=store,
            models=Models(
                ModelContext(connections=AT_ONCE), replies=store, cache=cache, ledger=Ledger()
            ),
            options=RunOptions(executor=Local(AT_ONCE)),
            events=Events(started=started, result=watch),
        )
        document(evaluation)
        verdict = evaluation.verdicts[0]
    told: dict[str, Any] = {"passed": verdict.baseline.passed + verdict.skill.passed}
    if sampled:
        told["cpu"] = [after - before for before, after in pairwise(samples)]
    print(json.dumps(told))


async def run_bare(url: str, trials: int) -> None:
    """The limit: nothing but the calls and a look at each answer; nothing is kept."""
    import aiohttp  # noqa: PLC0415

    cases, runs = shape(trials)
    waiting = (
        (case, system, seed)
        for seed in range(runs)
        for case in range(cases)
        for system in systems()
    )
    passed = 0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal passed
        for case, system, seed in waiting:
            messages = [
                {"role": "system", "content": system},
                {"role": "user", "content": question(case)},
            ]
            body = {
                "model": "benchmark",
                "messages": messages,
                "max_tokens": 4096,
                "temperature": 0.7,
                "seed": seed,
            }
            async with session.post(f"{url}/chat/completions", json=body) as response:
                answer = await response.json()
            passed += WORD in answer["choices"][0]["message"]["content"]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:
        await asyncio.gather(*(work(session) for _ in range(AT_ONCE)))
    print(json.dumps({"passed": passed}))


def systems() -> Iterator[str]:
    """What the two arms are shown."""
    yield SYSTEM
    yield f"{SYSTEM}\n\n{ADVICE}"


INSPECT = f"""
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

url, questions, logs = sys.argv[1:]
samples = [
    Sample([ChatMessageSystem(content=system), ChatMessageUser(content=user)], target="{WORD}")
    for system, user in json.load(open(questions))
]
[log] = eval(
    Task(samples, solver=generate(), scorer=includes(), config=GenerateConfig(temperature=0.7, max_tokens=4096)),
    model="openai/benchmark", model_base_url=url, model_args={{"responses_api": False}},
    max_connections={AT_ONCE}, max_samples={AT_ONCE}, display="none", log_dir=logs, log_level="error",
)
assert log.status == "success", log.error
print(json.dumps({{"passed": round(log.results.scores[0].metrics["accuracy"].value * len(samples))}}))
"""


# How a side is started in another process, and what that takes.


@dataclass(frozen=True)
class Took:
    seconds: float
    cpu: float  # seconds, of the process and of those it started
    memory: float  # bytes at most, of one process
    told: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One side: what one more trial costs, and what starting costs."""

    name: str
    trials: int
    per_second: float
    cpu_ms: float
    memory: float  # MB
    start: float  # seconds of CPU

    @property
    def per_cpu_second(self) -> float:
        return 1000 / self.cpu_ms


def run(command: list[str], folder: Path, environment: dict[str, str]) -> Took:
    with (folder / "stdout").open("w+b") as said, (folder / "stderr").open("w+b") as complained:
        started = time.perf_counter()
        child = subprocess.Popen(
            command, cwd=folder, env=os.environ | environment, stdout=said, stderr=complained
        )
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        complained.seek(0)
        words = said.read().decode(errors="replace")
        if child.returncode:
            tail = complained.read().decode(errors="replace")[-2000:]
            raise SystemExit(
                f"{' '.join(command)} ended with {child.returncode}:\n{words[-1000:]}\n{tail}"
            )
    unit = 1 if sys.platform == "darwin" else 1024
    told: dict[str, Any] = {}
    for line in words.splitlines():
        with suppress(ValueError):  # a side of somebody else's prints what it likes
            told = json.loads(line) if line.startswith("{") else told
    return Took(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * unit, told)


class Side:
    """One of those that are compared. `environment` is what it wants to find around it."""

    def __init__(
        self, name: str, trials: int, command: Callable[[int, Path], list[str]], **environment: str
    ) -> None:
        self.name = name
        self.trials = trials
        self.command = command
        self.environment = environment
        self.rows: list[Row] = []

    def measure(self, work: Path) -> None:
        few, many = self.run(FEW, work), self.run(self.trials, work)
        more = self.trials - FEW
        cpu_ms = 1000 * (many.cpu - few.cpu) / more
        per_second = more / (many.seconds - few.seconds)
        self.rows.append(
            Row(self.name, self.trials, per_second, cpu_ms, many.memory / 1e6, few.cpu)
        )

    def run(self, trials: int, work: Path) -> Took:
        with tempfile.TemporaryDirectory(dir=work, prefix="side-") as name:
            folder = Path(name)
            took = run(self.command(trials, folder), folder, self.environment)
            passed = took.told.get("passed")
            if passed is None:  # promptfoo writes a file
                passed = json.loads((folder / "out.json").read_text())["results"]["stats"][
                    "successes"
                ]
        if passed != trials // 2:  # every answer with the skill, and none without
            raise SystemExit(f"{self.name}: {passed} of {trials} trials passed, which cannot be")
        return took

    @property
    def row(self) -> Row:
        """The round in the middle by CPU."""
        return sorted(self.rows, key=lambda row: row.cpu_ms)[len(self.rows) // 2]


def our_side(name: str, side: str, trials: int, url: str) -> Side:
    def command(trials: int, folder: Path) -> list[str]:
        # -P: bench/simulations.py must not be found in place of the standard library's.
        options = ["--side", side, "--url", url, "--trials", str(trials), "--folder", str(folder)]
        return [sys.executable, "-P", str(HERE), *options]

    return Side(name, trials, command)


def inspect_side(python: Path, trials: int, url: str) -> Side:
    def command(trials: int, folder: Path) -> list[str]:
        cases, runs = shape(trials)
        pairs = [
            (system, question(case))
            for _ in range(runs)
            for case in range(cases)
            for system in systems()
        ]
        (folder / "questions.json").write_text(json.dumps(pairs))
        (folder / "task.py").write_text(INSPECT)
        return [
            str(python),
            str(folder / "task.py"),
            url,
            str(folder / "questions.json"),
            str(folder / "logs"),
        ]

    return Side(
        "inspect_ai", trials, command, OPENAI_API_KEY="none", HOME=str(python.parent.parent)
    )


def promptfoo_side(program: Path, trials: int, url: str) -> Side:
    def command(trials: int, folder: Path) -> list[str]:
        cases, runs = shape(trials)
        settings: dict[str, Any] = {
            "apiBaseUrl": url,
            "apiKey": "none",
            "temperature": 0.7,
            "max_tokens": 4096,
        }
        turn = {"role": "user", "content": "{{question}}"}
        config = {
            "providers": [{"id": "openai:chat:benchmark", "config": settings}],
            "prompts": [
                json.dumps([{"role": "system", "content": system}, turn]) for system in systems()
            ],
            "tests": [
                {
                    "vars": {"question": question(case)},
                    "assert": [{"type": "icontains", "value": WORD}],
                }
                for _ in range(runs)
                for case in range(cases)
            ],
        }
        (folder / "config.json").write_text(json.dumps(config))
        options = [
            "--set",
            "cache=false",
            "--no-table",
            "--no-progress-bar",
            "--max-concurrency",
            str(AT_ONCE),
        ]
        return [str(program), "eval", "-c", "config.json", "-o", "out.json", *options]

    return Side(
        "promptfoo",
        trials,
        command,
        PROMPTFOO_CONFIG_DIR=str(program.parent.parent.parent / "settings"),
        PROMPTFOO_DISABLE_TELEMETRY="1",
        PROMPTFOO_DISABLE_UPDATE="1",
        PROMPTFOO_FAILED_TEST_EXIT_CODE="0",
    )


def install(work: Path, *, allowed: bool) -> tuple[Path | None, Path | None]:
    """The Python that has inspect_ai and the promptfoo program, each None where it is not to be had."""
    python = work / "inspect_ai" / "bin" / "python"
    program = work / "promptfoo" / "node_modules" / ".bin" / "promptfoo"
    steps: list[list[str]] = []
    if allowed and not (python.parent / "inspect").exists():
        steps += [
            [sys.executable, "-m", "venv", str(work / "inspect_ai")],
            [str(python), "-m", "pip", "install", "--quiet", "inspect-ai", "openai"],
        ]
    if allowed and not program.exists():
        (work / "promptfoo").mkdir(exist_ok=True)
        (work / "promptfoo" / "package.json").write_text('{"private": true}')  # npm insists on one
        npm = shutil.which("npm") or "npm"
        steps += [
            [
                npm,
                "install",
                "--prefix",
                str(work / "promptfoo"),
                "--no-audit",
                "--no-fund",
                "promptfoo@>=0.100",
            ]
        ]
    for step in steps:
        note(f"installing: {Path(step[0]).name} {' '.join(step[1:])}")
        try:
            subprocess.run(
                step, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            note(f"could not be installed: {said[-1] if said else error}")
    return (python if (python.parent / "inspect").exists() else None), (
        program if program.exists() else None
    )


def version_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "unknown version"


@contextmanager
def serving() -> Generator[str]:
    """The base URL of a server in another process."""
    server = subprocess.Popen(
        [sys.executable, str(HERE.with_name("server.py"))],
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


# What is told of it.


def table(rows: list[Row]) -> str:
    lines = [
        "| side | trials | trials/s | CPU ms a trial | trials a CPU second | peak memory, MB | start-up, CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.name} | {row.trials:,} | {row.per_second:,.0f} | {row.cpu_ms:.2f} | {row.per_cpu_second:,.0f} "
        f"| {row.memory:,.0f} | {row.start:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def ratios(sides: list[Side]) -> list[str]:
    """Trials per CPU second beside each other side, round by round, so that a busy moment hits both; the median."""
    ours = [side for side in sides if side.name.startswith("upskill")]
    lines: list[str] = []
    for one in ours:
        for other in (side for side in sides if side not in ours):
            by_round = sorted(
                a.per_cpu_second / b.per_cpu_second
                for a, b in zip(one.rows, other.rows, strict=True)
            )
            lines.append(
                f"- {one.name}: {by_round[len(by_round) // 2]:.2g} x {other.name} in trials per CPU second"
            )
    return lines


def long_run(url: str, trials: int, work: Path) -> list[str]:
    took = our_side("upskill", "long", trials, url).run(trials, work)
    costs: list[float] = took.told["cpu"]
    first, last = costs[0], costs[-1]
    middle = sorted(costs)[len(costs) // 2]
    tenth = max(1, len(costs) // 10)
    early, late = sum(costs[:tenth]) / tenth, sum(costs[-tenth:]) / tenth
    return [
        f"{trials:,} trials in {took.seconds:.0f} s, {1000 * took.cpu / trials:.2f} ms of CPU each, all included:",
        "",
        f"- peak memory {took.memory / 1e6:.0f} MB (at most 200 MB)",
        f"- CPU of the first thousand {first:.2f} s, of the last {last:.2f} s: {last / first:.2f} x",
        f"- CPU of a thousand in the first tenth {early:.2f} s, in the last {late:.2f} s: {late / early:.2f} x",
        f"- CPU of the middle one of all thousands {middle:.2f} s",
    ]


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5000, help="of upskill and of the bare loop")
    parser.add_argument(
        "--fewer", type=int, default=1000, help="trials of inspect_ai and promptfoo, which are slow"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is run, in turn")
    parser.add_argument(
        "--install", action="store_true", help="install inspect_ai and promptfoo into --work"
    )
    parser.add_argument(
        "--work",
        type=Path,
        help="where they are, or will be, installed (default: a temporary folder)",
    )
    parser.add_argument(
        "--long", action="store_true", help="a long run of upskill too: memory and CPU over time"
    )
    parser.add_argument("--long-trials", type=int, default=50_000)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    numbers = (options.trials, options.fewer, options.long_trials)
    if not options.side and any(number <= 0 or number % (2 * CASES) for number in numbers):
        parser.error(f"a number of trials is a multiple of {2 * CASES}: {CASES} cases in two arms")
    if options.side == "bare":
        asyncio.run(run_bare(options.url, options.trials))
    elif options.side:
        cache = "off" if options.side == "no-cache" else "use"
        sampled = options.side == "long"
        asyncio.run(
            run_upskill(options.url, options.trials, options.folder, cache, sampled=sampled)
        )
    else:
        with tempfile.TemporaryDirectory(prefix="throughput-") as temporary, serving() as url:
            compare(options, url, options.work or Path(temporary))


def compare(options: argparse.Namespace, url: str, work: Path) -> None:
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    python, program = install(work, allowed=options.install)
    sides = [
        our_side("upskill", "cache", options.trials, url),
        our_side("upskill, no reply cache", "no-cache", options.trials, url),
        our_side("bare aiohttp loop", "bare", options.trials, url),
    ]
    others: list[str] = []
    if python:
        sides.append(inspect_side(python, options.fewer, url))
        others.append(
            "inspect_ai " + version_of([str(python), "-m", "inspect_ai", "--version"]).split()[-1]
        )
    else:
        note("inspect_ai is left out: it is not installed in --work (see --install)")
    if program:
        sides.append(promptfoo_side(program, options.fewer, url))
        others.append("promptfoo " + version_of([str(program), "--version"]))
    else:
        note("promptfoo is left out: it is not installed in --work (see --install)")
    for number in range(options.rounds):
        for side in sides:
            side.measure(work)
            row = side.rows[-1]
            note(
                f"round {number + 1}: {side.name}: {row.per_second:,.0f} trials/s, {row.cpu_ms:.2f} ms of CPU a trial"
            )
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}{''.join(f', {other}' for other in others)}"
    )
    print(f"{AT_ONCE} at once, 50 ms a call; the middle one of {options.rounds} rounds\n")
    print(table([side.row for side in sides]))
    print()
    print("\n".join(ratios(sides)))
    if options.long:
        print()
        print("\n".join(long_run(url, options.long_trials, work)))


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
    main()
