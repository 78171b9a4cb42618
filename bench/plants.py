"""How much planted work passes, by what a case says of it, and whether honest work passes beside it.

python bench/plants.py               # all plants of the tests
python bench/plants.py --list        # each that passes

The plants are those of tests/test_hostile_students.py and tests/test_guarded_checks.py, each beside wrong work. `tests`
names the files of the case that are neither the student's work nor changed by right work.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import test_guarded_checks as guarded
import test_hostile_students as hostile
from upskill.checks.room import Outputs
from upskill.sandboxes import choose_sandbox

WAYS = ("outputs", "tests", "neither")


@dataclass(frozen=True)
class Left:
    """A plant, or honest work, with what the student of its case delivers."""

    name: str
    plant: hostile.Plant
    outputs: str

    def told(self, way: str) -> hostile.Plant:
        patterns = tuple(self.outputs.split())
        if way == "outputs":
            return replace(self.plant, outputs=patterns)
        delivered = Outputs(patterns)
        decides = [path for path in self.plant.files if path not in delivered]
        tests = decides if way == "tests" else self.plant.tests
        return replace(self.plant, outputs=None, tests=tuple(tests))


def plants() -> Iterator[Left]:
    for group, (those, outputs) in hostile.GROUPS.items():
        for name, plant in those.items() if group != "sabotage" else ():
            files = plant.files
            if group == "pytest":
                files = hostile.WRONG | {"test_add.py": hostile.TEST}
            yield Left(f"{group}: {name}", replace(plant, files=files), outputs)
    for tool, scripts in hostile.BUILD_PLANTS.items():
        files, checks = hostile.BROUGHT[tool]
        for name, script in scripts.items():
            yield Left(f"{tool}: {name}", hostile.Plant(script, checks, files=files), "add.* src")
    for group, case in (guarded.CASES | guarded.SHADOWS).items():
        for name, script in case.plants.items():
            yield Left(f"{group}: {name}", case.plant(case.wrong, script), case.outputs)
    for name, plant in guarded.PLANTED.items():
        yield Left(name, plant, guarded.OUTPUTS.get(name, "add.py"))
    run = hostile.command("python3 -m unittest discover -s tests", regex="Ran 1 test")
    for name, (outputs, script) in guarded.AGAINST_TESTS.items():
        plant = hostile.Plant(script, run, files=guarded.TEST_FILES, tests=("tests/test_add.py",))
        yield Left(f"against tests: {name}", plant, outputs)
    for name, plant in guarded.FROM_GIT.items():
        yield Left(f"from git: {name}", replace(plant, files={"a": "1\n"}), ".git a")


def honest() -> Iterator[Left]:
    for tool, script in hostile.FIXES.items():
        files, checks = hostile.BROUGHT[tool]
        yield Left(tool, hostile.Plant(script, checks, files=files), "add.* src")
    for group, case in (guarded.CASES | guarded.SHADOWS).items():
        yield Left(group, case.plant(case.right), case.outputs)
    for name, plant in guarded.RIGHT_WORK.items():
        yield Left(name, plant, guarded.OUTPUTS.get(name, "add.py"))
    for name, plant in guarded.DELIVERED.items():
        yield Left(name, plant, name.partition(",")[0])


async def measure(*, names: bool) -> None:
    backend = (await choose_sandbox("bubblewrap")).backend
    for title, kinds in (("plants", list(plants())), ("honest work", list(honest()))):
        for way in WAYS:
            passed: list[str] = []
            for each in kinds:
                if (await hostile.leave(backend, each.told(way))).startswith("passed"):
                    passed.append(each.name)
            share = len(passed) / len(kinds)
            print(f"{title}, {way}: {len(passed)} of {len(kinds)} pass ({share:.0%})", flush=True)
            if names:
                others = sorted({each.name for each in kinds} - {*passed})
                shown = passed if title == "plants" else others
                print(*(f"  {name}" for name in shown), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name what passes that should not")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["UPSKILL_HOME"] = home
        asyncio.run(measure(names=arguments.list))


if __name__ == "__main__":
    main()
