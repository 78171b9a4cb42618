"""Recorded students of the example about CUDA kernels: they replay anywhere, and the README says what comes of it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import kernel_pictures
import pytest

import kernel_students
from conftest import REPOSITORY, Upskill

RESULTS = json.loads((kernel_students.RECORDED / "results.json").read_text(encoding="utf-8"))
CASSETTES = sorted(kernel_students.RECORDED.glob("*.jsonl.gz"))


def test_recorded_answers_are_graded_as_they_were(upskill: Upskill) -> None:
    """A few of them: compiling takes its time, and this student passes all."""
    recorded = kernel_students.arguments(
        kernel_students.RECORDED / "frontier.jsonl.gz", "without_gpu"
    )
    first = upskill("eval", *recorded, "--limit", "3", "--store", "one", "--json")
    assert first.code == 0, first.err
    checks = upskill("show", first.json["run"], "--checks", "--store", "one", "--json").json[
        "checks"
    ]
    expected = RESULTS["without_gpu"]["frontier"]
    # A part of a suite draws the skill's arm only.
    rates = [
        (row["check"], row["arm"], row["rate"])
        for row in expected["checks"]
        if row["arm"] == "skill"
    ]
    if (
        kernel_students.compiler() == expected["compiler"]
    ):  # another one may spill where this one does not
        graded = kernel_students.summary(first.json, checks)["checks"]
        assert [(row["check"], row["arm"], row["rate"]) for row in graded] == rates


def test_tasks_that_the_skill_was_not_made_for_are_as_the_readme_says(upskill: Upskill) -> None:
    evals = kernel_students.EXAMPLE / "evals"
    recorded = evals / "unseen" / "qwen2.5-coder-1.5b.jsonl.gz"
    done = upskill(
        "eval",
        kernel_students.EXAMPLE,
        "-t",
        evals / "unseen-without-gpu.yaml",
        "--replay",
        recorded,
        "--json",
    )
    (model,) = done.json["models"]
    assert [model[arm]["passed"] for arm in ("baseline", "skill")] == [0, 7]
    assert model["pairs"] == 8
    assert model["decision"] == "helps"
    low, high = (round(100 * end) for end in model["interval"])
    text = kernel_students.README.read_text(encoding="utf-8")
    assert (
        f"seven do with it: +{100 * model['lift']:.0f} points (+{low} to +{high}), *helps*" in text
    )


def test_every_recording_is_graded_and_small() -> None:
    assert CASSETTES
    for cassette in CASSETTES:
        name = cassette.name.removesuffix(".jsonl.gz")
        graded = RESULTS["without_gpu"].get(name, {}).get("answers")
        assert graded == kernel_students.fingerprint(cassette), (
            f"{name} is not graded; run `make kernel-students`"
        )
        assert cassette.stat().st_size < 200_000


def test_the_readme_has_the_table_of_what_was_graded() -> None:
    text = kernel_students.README.read_text(encoding="utf-8")
    assert kernel_students.with_table(text, RESULTS) == text, (
        "run `python bench/kernel_students.py --table`"
    )


def row(model: str, tier: str, arm: str, passed: int) -> dict[str, Any]:
    counted = {"passed": passed, "trials": 32, "rate": passed / 32, "interval": [0.1, 0.9]}
    return {"model": model, "check": f"kernel_{tier}", "arm": arm, **counted}


def test_a_student_graded_on_a_gpu_has_all_tiers_and_the_one_of_most_gain_is_named() -> None:
    model = "local:qwen2.5-coder-0.5b"
    passes = {"compiles": (4, 20), "resources": (4, 16), "correct": (0, 24), "faster": (0, 8)}
    rows = [
        row(model, tier, arm, count)
        for tier, counts in passes.items()
        for arm, count in zip(("baseline", "skill"), counts, strict=True)
    ]
    results: dict[str, Any] = {"without_gpu": {"small": {"checks": rows[:4], "students": []}}}
    assert "| Qwen2.5-Coder 0.5B | correct | not graded yet |  |  |" in kernel_students.table(
        results
    )
    assert (
        "0.5B gains most at `compiles` of those graded so far: +50 points"
        in kernel_students.table(results)
    )
    results["gpu"] = {"small": {"checks": rows, "students": []}}
    table = kernel_students.table(results)
    assert (
        "| Qwen2.5-Coder 0.5B | correct | 0 of 32: 0 % [10, 90] | 24 of 32: 75 % [10, 90] | +75 |"
        in table
    )
    assert "- Qwen2.5-Coder 0.5B gains most at `correct`: +75 points." in table


def test_a_readme_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(SystemExit, match="has no place for the table"):
        kernel_students.with_table("# CUDA kernels", RESULTS)


def test_every_command_of_the_tutorial_runs_in_its_order_in_an_empty_folder(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "upskill").symlink_to(REPOSITORY)
    (home / "empty").mkdir()
    monkeypatch.chdir(home / "empty")
    page = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
    lines = "".join(
        re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ).splitlines()
    assert len(lines) >= 12
    for line in lines:
        command, needs_gpu, _ = line.partition("    # needs a GPU")
        if not command.startswith("upskill "):
            subprocess.run(["/bin/sh", "-ec", command], check=True)
        elif not needs_gpu or Path("/dev/nvidia0").exists():
            few = (
                ["--limit", "3"] if command.startswith("upskill eval") else []
            )  # compiling takes its time
            done = upskill(*shlex.split(command)[1:], *few)
            assert done.code == 0 or "doctor" in command, (command, done)
    assert (
        Path("skills/h100-kernels/SKILL.md").read_bytes()
        == (kernel_students.EXAMPLE / "SKILL.md").read_bytes()
    )
    assert Path("lift.svg").stat().st_size > 1000
    assert list(home.rglob(".claude/skills/h100-kernels/SKILL.md"))


def test_the_pictures_of_the_tutorial_are_what_was_recorded() -> None:
    page = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for name, svg in kernel_pictures.drawn().items():
        made = (REPOSITORY / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert made == f"{svg}\n", f"{name} is not what `make pictures` draws"
        assert f"](pictures/{name})" in page
    speeds = (REPOSITORY / "docs" / "pictures" / "kernel-speed.svg").read_text(encoding="utf-8")
    assert speeds.count("<circle") == 34
