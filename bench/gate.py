"""Check `upskill ci` on edits whose effect is known: which are blocked, and after how many calls?

python bench/gate.py             # 60 edits of each kind and student: 68 minutes of one core
python bench/gate.py --edits 10  # fewer

End to end: for each row of the table a git repository with one skill per edit, all of them edited at once, and one
`upskill ci --json` as a process of its own. Its student is the loopback server of the tests, which holds every request
against the published shape of a paid API. Each skill has 12 facts and 12 cases that ask for them; nobody guesses a
fact. What a student answers depends on a hash of the request, so a table can be made again.

Students answer in three styles: no two answers alike, in one of three wordings, or always in the same words. The marks
must not depend on it. The exact student answers from a cache, which the probe finds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from loopback import Call, Loopback

CASES = 12
DELETED = 5
STYLES = ("unique", "few wordings", "one wording")
PROSE = "It was a quiet afternoon in the library, and the clerk had put all keys away. " * 2
IRRELEVANT = "The drawers are made of oak."
FLIPPED = 0.03  # of the cases of a decided student, by any edit
CAN = 0.8  # of the cases of a decided student, before an edit


@dataclass(frozen=True)
class Row:
    """One line of the table: a student and a kind of edit."""

    student: str
    style: str
    edit: str
    deleted: int  # facts; 0: a line without content is added
    passes: Callable[[Call, int], bool]
    exact: bool = False

    def answer(self, call: Call) -> str:
        numbers = re.findall(r"\d+", call.prompt)
        if not numbers:  # the probe
            return PROSE if self.exact else f"{call.seed}: {PROSE}"
        case = int(numbers[-1])
        words = code(numbers[0], case) if self.passes(call, case) else "That is not known."
        chance = chance_of(call, "style")
        if self.style == "unique":
            return f"{words} ({chance})"
        if self.style == "few wordings":
            return ("", "Answer: ", "It says: ")[int(3 * chance)] + words
        return words


def code(skill: str, case: int) -> str:
    return f"q{int(skill) * 911 + case * 37 + 11}x"


def chance_of(call: Call, what: str) -> float:
    return random.Random(f"{what} {call.seed} {call.prompt} {call.system}").random()


def knows(call: Call, case: int) -> bool:
    return f"drawer {case} is q" in call.system


def passing_at(rate: float) -> Callable[[Call, int], bool]:
    return lambda call, case: knows(call, case) and chance_of(call, "pass") < rate


def decided(call: Call, case: int) -> bool:
    """Passes a case nearly always or nearly never; any edit turns some cases around."""
    rate = 0.02
    if knows(call, case):
        can = random.Random(f"can {call.prompt}").random() < CAN
        if IRRELEVANT in call.system:
            can ^= random.Random(f"flip {call.prompt}").random() < FLIPPED
        rate = 0.98 if can else 0.02
    return chance_of(call, "pass") < rate


def exact(call: Call, case: int) -> bool:
    """Knows what the skill says, except where an edit without content has turned an answer around."""
    is_flipped = random.Random(f"flip {call.prompt}").random() < FLIPPED
    return knows(call, case) and not (IRRELEVANT in call.system and is_flipped)


def rows() -> Generator[Row]:
    deletes = f"deletes {DELETED} facts"
    for rate in (0.97, 0.85, 0.7):
        for style in STYLES:
            passes = passing_at(rate)
            yield Row(f"passes {rate:.0%}", style, deletes, DELETED, passes)
            yield Row(f"passes {rate:.0%}", style, "harmless", 0, passes)
    for style in STYLES:
        yield Row("decided", style, f"flips {FLIPPED:.0%}", 0, decided)
    for deleted in (1, 2, 3, DELETED):
        yield Row("exact", "one wording", f"deletes {deleted}", deleted, exact, exact=True)
    yield Row("exact", "one wording", f"flips {FLIPPED:.0%}", 0, exact, exact=True)


def check(row: Row, edits: int) -> list[dict[str, Any]]:
    """The rows of `upskill ci --json` for so many edits."""
    with tempfile.TemporaryDirectory() as folder, serving(row.answer) as server:
        home = Path(folder)
        for number in range(edits):
            write_skill(home / "skills" / f"skill-{number}", number)
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Skills"]):
            who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
            subprocess.run(["git", "-C", folder, *who, *words], check=True)
        for number in range(edits):
            manifest = home / "skills" / f"skill-{number}" / "SKILL.md"
            text = manifest.read_text()
            for case in range(row.deleted):
                text = re.sub(rf"- Number {number}: drawer {case} is .*\n", "", text)
            if not row.deleted:
                text += f"\n{IRRELEVANT}\n"
            manifest.write_text(text)
        command = [sys.executable, "-m", "upskill", "ci", "skills", "-m", "generic:student"]
        environment = os.environ | {"GENERIC_BASE_URL": server.url, "GENERIC_API_KEY": "paid"}
        done = subprocess.run(
            [*command, "--json"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1) or server.invalid:
            raise RuntimeError(f"{done.stderr}\n{server.invalid[:3]}")
        return json.loads(done.stdout)["skills"]


def write_skill(folder: Path, number: int) -> None:
    (folder / "evals").mkdir(parents=True)
    facts = "".join(
        f"- Number {number}: drawer {case} is {code(str(number), case)}.\n" for case in range(CASES)
    )
    head = f"---\nname: {folder.name}\ndescription: Drawers.\n---\n\n# Drawers\n\n"
    (folder / "SKILL.md").write_text(head + facts)
    cases = [
        {
            "id": f"drawer-{case}",
            "prompt": f"Number {number}: what is the code of drawer {case}?",
            "checks": [{"contains": code(str(number), case)}],
        }
        for case in range(CASES)
    ]
    (folder / "evals" / "suite.yaml").write_text(json.dumps({"cases": cases}))


@contextmanager
def serving(answer: Callable[[Call], str]) -> Generator[Loopback]:
    server = Loopback(answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=60, help="of each kind, with each student")
    parser.add_argument("--only", default="", help="rows whose student, style or edit has this")
    arguments = parser.parse_args()
    head = (
        f"{'student':13}{'style':15}{'edit':17}{'blocked':>8}{'warned':>8}{'passed':>8}{'open':>6}"
    )
    print(f"{head}{'calls: 95 %':>13}{'most':>6}")
    for row in rows():
        if arguments.only not in f"{row.student} {row.style} {row.edit}":
            continue
        edits = [each["against_base"] for each in check(row, arguments.edits)]
        marks = Counter(edit["mark"] for edit in edits)
        shares = [marks[mark] / len(edits) for mark in ("block", "warn", "pass", "open")]
        calls = sorted(2 * edit["pairs"] for edit in edits)  # of the two arms; none is missing here
        at_95 = calls[max(0, -(-95 * len(calls) // 100) - 1)]
        blocked, warned, passed, open_ = (f"{share:.0%}" for share in shares)
        print(
            f"{row.student:13}{row.style:15}{row.edit:17}{blocked:>8}{warned:>8}{passed:>8}"
            f"{open_:>6}{at_95:>13}{calls[-1]:>6}",
            flush=True,
        )


if __name__ == "__main__":
    main()
