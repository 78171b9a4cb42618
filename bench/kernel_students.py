"""How far recorded students of examples/h100-kernels get, tier by tier, without and with the skill.

Grades their answers anew and writes the table of the example's README. A student is a file in evals/recorded, made by
`upskill export RUN --replies FILE`. A grading that was stopped goes on where it stopped.

python bench/kernel_students.py              what can be told without a GPU: compiles, resources
python bench/kernel_students.py --gpu        with an H100 or H200: all four tiers
python bench/kernel_students.py --gpu qwen2.5-coder-1.5b      only this recording; what was found for others stays
python bench/kernel_students.py --table      grades nothing: the table, from evals/recorded/results.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from upskill.sandboxes.gpu import find_toolchain

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "h100-kernels"
RECORDED, README = EXAMPLE / "evals" / "recorded", EXAMPLE / "README.md"
SUITES = {"without_gpu": "without-gpu.yaml", "gpu": "suite.yaml"}
SECTION = "### Tier by tier"
TIERS = {"compiles": "without_gpu", "resources": "without_gpu", "correct": "gpu", "faster": "gpu"}
CALLED = {
    "handoff:frontier": "a capable model (by hand-off)",
    "local:qwen2.5-coder-0.5b": "Qwen2.5-Coder 0.5B",
    "local:qwen2.5-coder-1.5b": "Qwen2.5-Coder 1.5B",
}
Row = dict[str, Any]


def upskill(*given: object) -> dict[str, Any]:
    """The document that a command prints; what it says meanwhile goes where ours goes."""
    line = [sys.executable, "-m", "upskill", *map(str, given), "--json"]
    said = subprocess.run(line, stdout=subprocess.PIPE, encoding="utf-8", check=False).stdout
    if not said.strip():
        sys.exit(f"{' '.join(line)} printed nothing")
    return json.loads(said)


def fingerprint(cassette: Path) -> str:
    return hashlib.sha256(cassette.read_bytes()).hexdigest()[:16]


def compiler() -> str:
    """The version of nvcc, on which registers and spills depend."""
    said = subprocess.run(
        [find_toolchain().nvcc, "--version"], capture_output=True, encoding="utf-8", check=True
    )
    return said.stdout.rpartition(", V")[2].split()[0]


def arguments(cassette: Path, where: str) -> list[object]:
    """What `eval` is given to grade a recording."""
    return [EXAMPLE, "-t", EXAMPLE / "evals" / SUITES[where], "--replay", cassette]


def summary(evaluated: dict[str, Any], checks: list[Row]) -> dict[str, Any]:
    """What is kept of a run: each student's verdict and how often each tier passed."""
    return {
        "students": [
            {name: model[name] for name in ("model", "pairs", "lift", "interval", "decision")}
            | {
                "missing": model["baseline"]["missing"] + model["skill"]["missing"],
                "output": model["tokens"]["output"],
            }
            for model in evaluated["models"]
        ],
        "checks": [row for row in checks if row["check"].startswith("kernel_")],
    }


def grade(cassette: Path, where: str, store: Path) -> dict[str, Any]:
    evaluated = upskill("eval", *arguments(cassette, where), "--store", store)
    checks = upskill("show", evaluated["run"], "--checks", "--store", store)["checks"]
    return {"answers": fingerprint(cassette), "compiler": compiler()} | summary(evaluated, checks)


def tiers_of(results: dict[str, Any]) -> dict[str, dict[str, dict[str, Row]]]:
    """Student -> tier -> arm -> how often it passed."""
    found: dict[str, dict[str, dict[str, Row]]] = {}
    for where in SUITES:
        for name in sorted(results.get(where, {})):
            for row in results[where][name]["checks"]:
                tier = row["check"].removeprefix("kernel_")
                if TIERS.get(tier) == where:
                    found.setdefault(row["model"], {}).setdefault(tier, {})[row["arm"]] = row
    return found


def gain(arms: dict[str, Row]) -> int:
    """Points by which the skill raises how often a tier passes."""
    return round(100 * (arms["skill"]["rate"] - arms["baseline"]["rate"]))


def cell(row: Row) -> str:
    low, high = (round(100 * end) for end in row["interval"])
    return f"{row['passed']} of {row['trials']}: {round(100 * row['rate'])} % [{low}, {high}]"


def signed(points: int) -> str:
    return f"{points:+d}".replace("-", "−") if points else "0"


def table(results: dict[str, Any]) -> str:
    """The table of the README, and what it says: the tier at which each student gains most."""
    lines = [
        "| student | tier | without the skill | with it | points |",
        "|---|---|---:|---:|---:|",
    ]
    words: list[str] = []
    for model, tiers in tiers_of(results).items():
        student = CALLED.get(model, model)
        for tier, where in TIERS.items():
            if tier in tiers:
                arms = tiers[tier]
                shown = [cell(arms["baseline"]), cell(arms["skill"]), signed(gain(arms))]
            else:
                shown = ["not graded yet" if where == "gpu" else "", "", ""]
            lines.append(f"| {student} | {tier} | {' | '.join(shown)} |")
        most = max(tiers, key=lambda tier: gain(tiers[tier]))
        points = gain(tiers[most])
        graded = "" if len(tiers) == len(TIERS) else " of those graded so far"
        said = (
            f"gains most at `{most}`{graded}: {signed(points)} points"
            if points > 0
            else f"gains at no tier{graded}"
        )
        words.append(f"- {student[0].upper()}{student[1:]} {said}.{length(results, model)}")
    return "\n".join([*lines, "", *words])


def length(results: dict[str, Any], model: str) -> str:
    """How much longer or shorter a student's answers are with the skill."""
    for graded in results["without_gpu"].values():
        for student in graded["students"]:
            if student["model"] == model and (output := student["output"])["relative"] is not None:
                share, low, high = (
                    round(100 * one) for one in (output["relative"], *output["relative_interval"])
                )
                interval = f"[{signed(low)}, {signed(high)}]"
                return (
                    f" With it, the length of its answers changes by {signed(share)} % {interval}."
                )
    return ""


def with_table(text: str, results: dict[str, Any]) -> str:
    """The README with this table as its section."""
    made, count = re.subn(
        rf"({re.escape(SECTION)}\n\n).*?(\n\n### )",
        lambda found: found[1] + table(results) + found[2],
        text,
        flags=re.DOTALL,
    )
    if count != 1:
        sys.exit(f"{README} has no place for the table: a section {SECTION!r}, and one behind it")
    return made


def main(options: argparse.Namespace) -> None:
    kept: Path = options.results
    results: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    where = "gpu" if options.gpu else "without_gpu"
    names = options.students or sorted(
        path.name.removesuffix(".jsonl.gz") for path in RECORDED.glob("*.jsonl.gz")
    )
    for name in [] if options.table else names:
        cassette = RECORDED / f"{name}.jsonl.gz"
        graded = grade(cassette, where, options.store)
        results.setdefault(where, {})[name] = graded
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8"), results), encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("students", nargs="*", help="recordings to grade (default: all)")
    parser.add_argument("--gpu", action="store_true", help="grade all tiers")
    parser.add_argument("--table", action="store_true", help="grade nothing")
    parser.add_argument(
        "--store", type=Path, default=Path("runs") / "kernel-students", help="where runs are kept"
    )
    parser.add_argument(
        "--results", type=Path, default=RECORDED / "results.json", help="what is kept of them"
    )
    main(parser.parse_args())
