"""A million trials on Ray and PostgreSQL, with workers and nodes killed at random moments.

python bench/scale.py                                  # 1,000,000 trials on PostgreSQL, then 100,000 on SQLite
python bench/scale.py --trials 20000 --sqlite 0 --kills 5 --node-kills 1

It starts a PostgreSQL server, a server of answers (bench/server.py) and a Ray cluster, whose nodes are processes of
their own on this machine, and runs `upskill eval --executor ray` as anybody would. Then it looks whether every trial is
stored once, how often the server was asked, and how long the commands take that look at a run of this size. All it
starts is ended and removed, also after Ctrl-C, when it tells what it knows by then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nodes import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from postgres_server import Server, find_programs
from server import WORD
from upskill import Skill, open_store

CASES = 500
SETTINGS = (
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    "checkpoint_timeout=30min",
    "wal_compression=on",
)
SAMPLED_EVERY = 2.0  # seconds
TOLD_EVERY = 15.0
LEFT_TO_RESUME = 1000  # trials
ADVICE = f"When a question is about a fruit that it does not name, the fruit is the {WORD}."
UPSKILL = [sys.executable, "-m", "upskill"]


@dataclass
class Figures:
    """What is known so far of one run."""

    store: str
    trials: int
    nodes: int
    concurrency: int
    finished: bool = False
    seconds: float = 0.0
    asked: int = 0  # requests at the server
    scored: int = 0  # trials that the store has
    errored: int = 0
    workers_killed: int = 0
    nodes_killed: int = 0
    database_mb: float = 0.0
    samples: list[tuple[float, float, float, float]] = field(
        default_factory=list[tuple[float, float, float, float]]
    )
    commands: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    def tenths(self, place: int) -> list[float | None]:
        """The middle of the memory in each tenth of the trials."""
        found: list[list[float]] = [[] for _ in range(10)]
        for share, *memory in self.samples:
            if share < 1 and memory[place]:
                found[int(share * 10)].append(memory[place])
        return [round(statistics.median(each), 1) if each else None for each in found]

    @property
    def growth(self) -> float | None:
        second, *_, last = self.tenths(0)[1:]
        return round(last / second, 3) if second and last else None

    def to_dict(self) -> dict[str, Any]:
        names = (
            "store",
            "trials",
            "nodes",
            "concurrency",
            "finished",
            "asked",
            "scored",
            "errored",
        )
        return {name: getattr(self, name) for name in names} | {
            "seconds": round(self.seconds, 1),
            "trials_per_second": round(min(self.asked, self.trials) / self.seconds, 1)
            if self.seconds
            else None,
            "lost": self.trials - self.scored if self.finished else None,
            "repeated": max(0, self.asked - self.scored) if self.scored else None,
            "workers_killed": self.workers_killed,
            "nodes_killed": self.nodes_killed,
            "driver_mb_by_tenth": self.tenths(0),
            "driver_growth": self.growth,
            "driver_peak_mb": max((sample[1] for sample in self.samples), default=None),
            "largest_worker_mb_by_tenth": self.tenths(1),
            "all_workers_mb_by_tenth": self.tenths(2),
            "database_mb": round(self.database_mb, 1),
            "commands": self.commands,
        }


def prepare(work: Path, trials: int) -> int:
    """A skill with its tests; returns how often each case has to be run."""
    folder = work / "naming-fruit"
    Skill.new("naming-fruit", "Names a fruit that a question leaves out.", ADVICE).save(
        folder, overwrite=True
    )
    cases = min(CASES, trials // 2)
    drawn = random.Random(0)
    words = [
        "".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(5000)
    ]  # no two cases are alike
    suite = {
        "cases": [
            {"id": f"case-{n:03d}", "prompt": f"Name it: {' '.join(drawn.choices(words, k=12))}."}
            for n in range(cases)
        ],
        "checks": [{"contains": WORD}],
    }
    (folder / "evals").mkdir(exist_ok=True)
    (folder / "evals" / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
    return trials // (2 * cases)


class Answers:
    """bench/server.py in a process of its own."""

    def __init__(self, folder: Path, latency: float) -> None:
        self.file = folder / "asked"
        command = [
            sys.executable,
            Path(__file__).with_name("server.py"),
            "--count",
            self.file,
            "--latency",
            latency,
        ]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().decode().strip()

    @property
    def asked(self) -> int:
        return int.from_bytes(self.file.read_bytes()[:8], "little")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def memory_of(pid: int) -> float:
    """Resident, in MB."""
    with suppress(OSError, StopIteration, ValueError):
        status = Path(f"/proc/{pid}/status").read_text()
        return round(
            int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
            / 1000,
            1,
        )
    return 0.0


@dataclass
class Bench:
    given: Any
    work: Path
    place: str  # of the store
    answers: Answers
    cluster: Cluster
    figures: Figures

    def command(self, runs: int) -> list[str]:
        return [
            *(*UPSKILL, "eval", "naming-fruit", "-m", "benchmark", "--base-url", self.answers.url),
            *(
                "--repeats",
                str(runs),
                "--executor",
                "ray",
                "--set",
                f"ray_address={self.cluster.address}",
                "--store",
                self.place,
            ),
            *(
                "--concurrency",
                str(self.given.concurrency),
                *(["--set", "cache=false"] if self.given.no_cache else []),
            ),
        ]

    def start(
        self, command: list[str], out: IO[bytes], log: IO[bytes] | int
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, cwd=self.work, stdout=out, stderr=log, env=self.cluster.environment
        )

    def run(self, runs: int) -> None:
        figures, drawn = self.figures, random.Random(self.given.seed)
        kinds = ["worker"] * self.given.kills + ["node"] * self.given.node_kills
        kills = sorted((drawn.uniform(0.02, 0.98) * figures.trials, kind) for kind in kinds)
        with (
            (self.work / "eval.json").open("wb") as out,
            (self.work / "eval.log").open("wb") as log,
        ):
            driver = subprocess.Popen(
                self.command(runs),
                cwd=self.work,
                stdout=out,
                stderr=log,
                env=self.cluster.environment,
            )
        began = sampled = told = 0.0
        try:
            while driver.poll() is None:
                now, figures.asked = time.monotonic(), self.answers.asked
                began = began or (now if figures.asked else 0.0)
                if figures.asked < figures.trials and began:
                    figures.seconds = now - began
                while kills and figures.asked >= kills[0][0]:
                    self.kill(kills.pop(0)[1], drawn)
                if now - sampled > SAMPLED_EVERY:
                    sampled = now
                    self.sample(driver.pid)
                if now - told > TOLD_EVERY:
                    told = now
                    self.tell()
                time.sleep(0.2)
        finally:
            driver.kill()
            driver.wait()
        if driver.returncode:
            raise SystemExit((self.work / "eval.log").read_text(encoding="utf-8")[-3000:])
        figures.commands["from the last call to the verdict"] = {
            "seconds": round(time.monotonic() - began - figures.seconds, 1)
        }
        figures.asked = self.answers.asked
        with open_store(self.place) as store:
            run = store.run("last")
        figures.scored, figures.errored, figures.finished = (
            run.passed + run.failed,
            run.errored,
            True,
        )

    def kill(self, kind: str, drawn: random.Random) -> None:
        if kind == "node":
            self.cluster.kill_node(drawn)
            self.figures.nodes_killed += 1
        elif self.cluster.kill_worker(drawn):
            self.figures.workers_killed += 1

    def sample(self, driver: int) -> None:
        workers = [memory_of(pid) for pid in self.cluster.workers()]
        share = self.figures.asked / self.figures.trials
        self.figures.samples.append(
            (share, memory_of(driver), max(workers, default=0.0), sum(workers))
        )

    def tell(self) -> None:
        figures = self.figures
        rate = figures.asked / figures.seconds if figures.seconds else 0.0
        _, driver, worker, _ = figures.samples[-1]
        print(
            f"{figures.asked:>9,} of {figures.trials:,} trials, {rate:,.0f}/s; driver {driver:.0f} MB, largest worker"
            f" {worker:.0f} MB; killed {figures.workers_killed} workers, {figures.nodes_killed} nodes",
            file=sys.stderr,
            flush=True,
        )

    def look(self, runs: int) -> None:
        """How long it takes to look at a run of this size, and to go on with it."""
        store = ("--store", self.place)
        self.measure("runs", "runs", *store)
        self.measure("show", "show", "last", *store)
        self.measure("report", "report", "last", "-o", "report.html", *store)
        self.figures.commands["report"]["file_mb"] = round(
            (self.work / "report.html").stat().st_size / 1e6, 1
        )
        self.measure("eval again, nothing left", *self.command(runs)[len(UPSKILL) :])
        left = min(LEFT_TO_RESUME, self.figures.trials // 10)
        forget(self.place, left)
        self.measure(f"resume, {left:,} trials left", *self.command(runs)[len(UPSKILL) :])

    def measure(self, name: str, *arguments: str) -> None:
        """Seconds, peak memory, and for `eval` the seconds until it says what is left to run."""
        began, until = time.monotonic(), None
        with (self.work / "out").open("wb") as out:
            command = self.start([*UPSKILL, *arguments], out, subprocess.PIPE)
        assert command.stderr is not None
        said = b""
        for line in command.stderr:
            said += line
            if until is None and b" trials are stored" in line:
                until = time.monotonic() - began
        _, status, used = os.wait4(command.pid, 0)
        command.returncode = os.waitstatus_to_exitcode(status)
        if command.returncode:
            raise SystemExit(f"{name}: {said.decode()[-3000:]}")
        found = {
            "seconds": round(time.monotonic() - began, 1),
            "peak_mb": round(used.ru_maxrss / 1000, 1),
        }
        self.figures.commands[name] = found | (
            {"until_it_goes_on": round(until, 1)} if until is not None else {}
        )
        print(f"{name}: {self.figures.commands[name]}", file=sys.stderr, flush=True)


def forget(place: str, trials: int) -> None:
    """Take some results out of the store, as if they had never been run; keys are hashes, so these are any."""
    query = (
        f"DELETE FROM results WHERE key IN (SELECT key FROM results ORDER BY key LIMIT {trials})"
    )
    if "://" not in place:
        with closing(sqlite3.connect(Path(place) / "upskill.db")) as db, db:
            db.execute(query)
        return
    with postgres(place) as db:
        db.execute(query)


@contextmanager
def postgres(place: str) -> Generator[Any]:
    import psycopg  # noqa: PLC0415 - not needed with SQLite

    from upskill.runs.stores.postgres import parse_url  # noqa: PLC0415

    parameters, schema = parse_url(place)
    with psycopg.connect(**parameters, options=f"-c search_path={schema}") as db:
        yield db


def size_of(place: str) -> float:
    """The store in MB."""
    if "://" not in place:
        return sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file()) / 1e6
    with postgres(place) as db:
        tables = (
            "FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
        )
        sizes = f"SELECT sum(pg_total_relation_size(oid)) {tables}"
        return float(db.execute(sizes).fetchone()[0]) / 1e6


def carry_out(given: Any, place: str, trials: int, found: list[Figures]) -> None:
    kind = "PostgreSQL" if "://" in place else "SQLite"
    figures = Figures(kind, trials, given.nodes, given.concurrency)
    found.append(figures)
    work = Path(tempfile.mkdtemp(prefix="upskill-scale-", dir=given.work))
    answers = Answers(work, given.latency)
    try:
        with Cluster(given.nodes, given.cpus) as cluster:
            runs = prepare(work, trials)
            figures.trials = runs * 2 * min(CASES, trials // 2)
            bench = Bench(given, work, place, answers, cluster, figures)
            bench.run(runs)
            figures.database_mb = size_of(place)
            bench.look(runs)
    finally:
        answers.close()
        shutil.rmtree(work, ignore_errors=True)


def end(*_: object) -> None:
    sys.exit("ended: these are the figures so far")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1_000_000, help="on PostgreSQL; 0: none")
    parser.add_argument(
        "--sqlite", type=int, default=100_000, metavar="TRIALS", help="on SQLite; 0: none"
    )
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--cpus", type=int, default=1, help="of each node")
    parser.add_argument(
        "--kills", type=int, default=20, help="workers that are killed, in each run"
    )
    parser.add_argument("--node-kills", type=int, default=2)
    parser.add_argument(
        "--concurrency", type=int, default=192, help="calls in flight, over all workers"
    )
    parser.add_argument("--latency", type=float, default=0.05, help="seconds that the server takes")
    parser.add_argument("--set", "cache=false", action="store_true", help="keep no replies")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the moments at which something is killed"
    )
    parser.add_argument("--work", type=Path, help="where temporary folders are made")
    parser.add_argument(
        "--json", type=Path, default=Path("scale.json"), metavar="FILE", help="the figures"
    )
    given = parser.parse_args()
    found: list[Figures] = []
    signal.signal(signal.SIGTERM, end)
    try:
        if given.trials:
            programs = find_programs()
            if programs is None:
                raise SystemExit("PostgreSQL is not installed")
            server = Server(programs, *SETTINGS)
            try:
                carry_out(given, server.place("scale"), given.trials, found)
            finally:
                server.remove()
        if given.sqlite:
            with tempfile.TemporaryDirectory(prefix="upskill-scale-", dir=given.work) as folder:
                carry_out(given, folder, given.sqlite, found)
    except KeyboardInterrupt:
        raise SystemExit("interrupted: these are the figures so far") from None
    finally:
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
        told = json.dumps(
            {"machine": machine, "runs": [figures.to_dict() for figures in found]}, indent=2
        )
        told = re.sub(
            r"\[([^][{]*)\]", lambda row: f"[{' '.join(row[1].split())}]", told
        )  # lists of numbers in a line
        given.json.write_text(f"{told}\n", encoding="utf-8")
        print(told)


if __name__ == "__main__":
    main()
