"""Compare two prompts that ask for a skill, by what one teacher answered to each (`prompts/before.json`, `now.json`).

python bench/prompts.py -m local:qwen2.5-coder-1.5b --store FOLDER     # 44 trials, 5 to 15 minutes on two cores

Both answers go through `generate --no-eval`, as if the teacher gave them now. Then `eval --against` runs the student
with both skills on cases that were written without either (`tests/fixtures/handoff`). To try a new prompt, let a
teacher who has not seen the cases answer it (`generate --handoff`), and put its answer in the place of `now.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from upskill.authoring.writing.suite_writer import as_suite_case

ANSWERS = Path(__file__).parent / "prompts"
MATERIAL = Path(__file__).parent.parent / "tests" / "fixtures" / "handoff"


def upskill(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "upskill", *arguments], cwd=folder, check=True)


def write_skill(answer: Path, folder: Path) -> Path:
    """The skill that `generate` makes of a recorded answer."""
    folder.mkdir()
    rules = [{"answer": answer.read_text(encoding="utf-8")}]
    (folder / "teacher.json").write_text(json.dumps(rules), encoding="utf-8")
    teacher = ("-m", "scripted:teacher.json", "--no-eval", "-t", "../suite.yaml")
    upskill(
        folder, "generate", "work with corvane", "--from", str(MATERIAL / "corvane.md"), *teacher
    )
    return next((folder / "skills").iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", default="local:qwen2.5-coder-1.5b", help="the student")
    parser.add_argument("--store", help="where its trials are kept; without it, nowhere")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        suite = json.loads((MATERIAL / "write_suite.json").read_text(encoding="utf-8"))
        cases = [as_suite_case(case, None) for case in suite["cases"]]
        (folder / "suite.yaml").write_text(
            yaml.safe_dump({"cases": cases}, sort_keys=False), encoding="utf-8"
        )
        before, now = (
            write_skill(ANSWERS / f"{name}.json", folder / name) for name in ("before", "now")
        )
        store = str(Path(options.store).resolve()) if options.store else "runs"
        arms = (str(now), "--against", str(before))
        upskill(folder, "eval", *arms, "-t", "suite.yaml", "-m", options.model, "--store", store)


if __name__ == "__main__":
    main()
