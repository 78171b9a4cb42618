"""Kills what a run on Ray and PostgreSQL consists of, at random moments, and looks whether that changed anything.

python bench/chaos.py                                   # 20,000 trials, 50 kills, then a ceiling with 10 more
python bench/chaos.py --trials 4000 --kills 12 --seed 7

Workers, whole nodes, the database and the command itself are killed with -9 (the database is stopped as in a crash, and
started again; the command is typed again). Every trial has to be in the store once, the server may be asked again for
at most a chunk for each kill, the JSON has to be that of a run in one process that nobody disturbed, and a ceiling has
to hold.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodes import Cluster
from scale import UPSKILL, Answers, postgres, prepare

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from postgres_server import Server, find_programs

KINDS = {"worker": 5, "node": 2, "database": 1, "command": 2}  # how often, of ten


@dataclass
class Chaos:
    work: Path
    server: Server
    answers: Answers
    cluster: Cluster
    drawn: random.Random
    concurrency: int
    killed: Counter[str] = field(default_factory=Counter[str])

    def command(self, runs: int, store: str, *more: object) -> list[str]:
        given = (
            "--repeats",
            runs,
            "--concurrency",
            self.concurrency,
            "--store",
            store,
            "--json",
            *more,
        )
        model = ("-m", "benchmark", "--base-url", self.answers.url)
        return [*UPSKILL, "eval", "naming-fruit", *model, *map(str, given)]

    def undisturbed(self, runs: int) -> str:
        line = self.command(runs, str(self.work / "undisturbed"))
        return subprocess.run(
            line, cwd=self.work, capture_output=True, text=True, check=True
        ).stdout

    def disturbed(self, runs: int, store: str, at: list[tuple[int, str]], *more: object) -> str:
        """What the command says at last. Something is killed whenever the server has been asked so many times."""
        line = self.command(
            runs, store, "--executor", "ray", "--set", f"ray_address={self.cluster.address}", *more
        )
        before, waiting = self.answers.asked, sorted(at)
        while True:
            with (self.work / "out").open("wb") as out, (self.work / "log").open("ab") as log:
                driver = subprocess.Popen(
                    line, cwd=self.work, stdout=out, stderr=log, env=self.cluster.environment
                )
            try:
                while driver.poll() is None:
                    if waiting and self.answers.asked - before >= waiting[0][0]:
                        self.kill(waiting.pop(0)[1], driver)
                    time.sleep(0.02)
            finally:
                driver.kill()
                driver.wait()
            if driver.returncode >= 0:
                break
        if driver.returncode:
            raise SystemExit(
                f"exit code {driver.returncode}\n{(self.work / 'log').read_text(encoding='utf-8')[-3000:]}"
            )
        return (self.work / "out").read_text(encoding="utf-8")

    def kill(self, kind: str, driver: subprocess.Popen[bytes]) -> None:
        if kind == "worker":
            while not self.cluster.kill_worker(self.drawn):  # between two chunks there is none
                if driver.poll() is not None:
                    return
                time.sleep(0.01)
        elif kind == "node":
            self.cluster.kill_node(self.drawn)
        elif kind == "database":
            self.server.stop("immediate")
            self.server.start()
        else:
            driver.kill()
        self.killed[kind] += 1
        print(f"{self.answers.asked:,} asked: killed a {kind}", file=sys.stderr, flush=True)

    def moments(self, kills: int, trials: int) -> list[tuple[int, str]]:
        kinds = [kind for kind, share in KINDS.items() for _ in range(share)]
        chosen = [kinds[number % len(kinds)] for number in range(kills)]
        return [(int(self.drawn.uniform(0.02, 0.98) * trials), kind) for kind in chosen]


def stored(place: str) -> dict[str, int]:
    with postgres(place) as db:
        query = "SELECT count(*), count(DISTINCT key), count(*) FILTER (WHERE passed IS NULL) FROM results"
        rows, keys, errored = db.execute(query).fetchone()
    return {"rows": rows, "different": keys, "errored": errored}


def carry_out(chaos: Chaos, given: Any) -> dict[str, Any]:
    runs = prepare(chaos.work, given.trials)
    whole = chaos.undisturbed(runs)
    before, began, place = chaos.answers.asked, time.monotonic(), chaos.server.place("chaos")
    said = chaos.disturbed(runs, place, chaos.moments(given.kills, given.trials))
    found = stored(place)
    repeated = chaos.answers.asked - before - given.trials
    told: dict[str, Any] = {
        "trials": given.trials,
        "seconds": round(time.monotonic() - began, 1),
        "killed": dict(chaos.killed),
        "stored": found,
        "asked again at the server": repeated,
        "JSON as undisturbed": said == whole,
    }
    kills = chaos.killed.total()
    # Of a chunk, no more than twice those that run at a time may be without a stored result.
    told["holds"] = (
        said == whole
        and found["rows"] == found["different"] == given.trials
        and found["errored"] == 0
    )
    told["holds"] &= repeated <= kills * 2 * given.concurrency
    if given.ceiling_kills:
        told["ceiling"] = carry_out_ceiling(chaos, given, runs)
        told["holds"] &= told["ceiling"]["holds"]
    return told


def carry_out_ceiling(chaos: Chaos, given: Any, runs: int) -> dict[str, Any]:
    """The same with a ceiling at a quarter of the trials, which all commands share that did not end by themselves."""
    chaos.killed.clear()
    ceiling, before, place = given.trials // 4, chaos.answers.asked, chaos.server.place("ceiling")
    moments = chaos.moments(given.ceiling_kills, int(ceiling * 0.9))
    said = chaos.disturbed(runs, place, moments, "--set", f"max_calls={ceiling}")
    asked, kills = chaos.answers.asked - before, chaos.killed.total()
    return {
        "calls allowed": ceiling,
        "asked": asked,
        "stored": stored(place)["rows"],
        "killed": dict(chaos.killed),
        "says": json.loads(said)["halted"],
        "holds": asked <= ceiling + kills * 2 * given.concurrency
        and bool(json.loads(said)["halted"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20_000, help="a multiple of 1,000")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument(
        "--ceiling-kills", type=int, default=10, help="in the run with a ceiling; 0: none"
    )
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument(
        "--concurrency", type=int, default=48, help="calls in flight, over all workers"
    )
    parser.add_argument("--latency", type=float, default=0.05, help="seconds that the server takes")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and of what is killed")
    given = parser.parse_args()
    programs = find_programs()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed")
    work = Path(tempfile.mkdtemp(prefix="upskill-chaos-"))
    server, answers = Server(programs), Answers(work, given.latency)
    try:
        with Cluster(given.nodes) as cluster:
            chaos = Chaos(
                work, server, answers, cluster, random.Random(given.seed), given.concurrency
            )
            told = carry_out(chaos, given)
    finally:
        answers.close()
        server.remove()
        shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(told, indent=2))
    if not told["holds"]:
        raise SystemExit("something does not hold")


if __name__ == "__main__":
    main()
