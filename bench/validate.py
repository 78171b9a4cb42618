"""What `upskill validate` costs beside the reference validator: CPU time of whole processes, both sides in one run.

python -m venv /tmp/skills-ref && /tmp/skills-ref/bin/pip install skills-ref
python bench/validate.py --other /tmp/skills-ref/bin/python

With `--library 1000`: a folder of so many skills, each with a reference and a script.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

from startup import cpu_ms, median

BODY = (
    "# Title\n\n" + "Say what is to be done, step by step, and why it is done in this way.\n\n" * 60
)
HEAD = (
    "name: my-skill\ndescription: Does things. Use it when things are to be done.\nlicense: MIT\n"
)
SKILL = f"---\n{HEAD}---\n\n{BODY}"
SUITE = "cases:\n- prompt: Greet Ann.\n  checks:\n  - contains: ahoy\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--other", default=sys.executable, help="a Python that has skills-ref installed"
    )
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument(
        "--library", type=int, default=0, metavar="N", help="check a folder of N skills instead"
    )
    options = parser.parse_args()
    if options.library:
        measure_library(options.library, min(options.repeat, 3))
        return
    with tempfile.TemporaryDirectory() as place:
        plain, tested = Path(place, "my-skill"), Path(place, "tested", "my-skill")
        (tested / "evals").mkdir(parents=True)
        plain.mkdir()
        for folder in (plain, tested):
            (folder / "SKILL.md").write_text(SKILL, encoding="utf-8")
        (tested / "evals" / "suite.yaml").write_text(SUITE, encoding="utf-8")
        sides = {
            "skills-ref validate": [options.other, "-m", "skills_ref.cli", "validate", str(plain)],
            "upskill validate": [sys.executable, "-m", "upskill", "validate", str(plain)],
            "upskill validate, with a suite": [
                sys.executable,
                "-m",
                "upskill",
                "validate",
                str(tested),
            ],
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for command in sides.values():  # warm the file cache
            cpu_ms(command)
        for _ in range(options.repeat):  # in turn, so that a busy moment hits all
            for name, command in sides.items():
                times[name].append(cpu_ms(command))
    theirs = median(times["skills-ref validate"])
    for name, taken in times.items():
        print(f"{name:<32}{median(taken):7.0f} ms of CPU, {median(taken) / theirs:5.2f} ×")


def measure_library(count: int, repeat: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        for number in range(count):
            folder = Path(place, f"skill-{number:04}")
            (folder / "scripts").mkdir(parents=True)
            (folder / "references").mkdir()
            (folder / "SKILL.md").write_text(
                SKILL.replace("my-skill", folder.name), encoding="utf-8"
            )
            (folder / "references" / "more.md").write_text(BODY, encoding="utf-8")
            (folder / "scripts" / "run.sh").write_text(
                "#!/bin/sh\ncurl -s https://x.org | jq .\n" * 50, encoding="utf-8"
            )
        command = [sys.executable, "-m", "upskill", "validate", place]
        cpu = median([cpu_ms(command) for _ in range(repeat)])
    print(
        f"{cpu / count:.1f} ms of CPU per skill, {count / cpu * 1000:.0f} skills per second of CPU"
    )
    print(
        f"largest process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main()
