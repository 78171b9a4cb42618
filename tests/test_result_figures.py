"""The figures of docs/results.md, and the pictures, are what the recorded answers of the examples come to."""

from __future__ import annotations

import re
from typing import Any

import experiment_pictures
import make_pictures
import pytest

from conftest import REPOSITORY, Upskill


@pytest.fixture
def documents(upskill: Upskill) -> dict[str, dict[str, Any]]:
    """Every recording, measured anew, each in a store of its own: what `--json` prints."""
    return {
        name: upskill("eval", *make_pictures.arguments(name), "--store", name).json
        for name in make_pictures.SHOWN
    }


def test_the_table_and_the_pictures_of_the_results_are_what_was_recorded(
    documents: dict[str, dict[str, Any]],
) -> None:
    text = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([a-z-]+)`: ([^|]+) \|(.*)\|$", text, re.MULTILINE)
    assert [(skill, what) for skill, what, _ in table] == [
        (skill, what) for skill, _, what in make_pictures.SHOWN.values()
    ]
    for (_, _, row), document in zip(table, documents.values(), strict=True):
        for cell, model in zip(row.replace("*", "").split("|"), document["models"], strict=True):
            low, high = (f"{round(100 * end):+d}".replace("-", "−") for end in model["interval"])
            before, after = (round(100 * model[arm]["pass_rate"]) for arm in ("baseline", "skill"))
            assert cell.strip() == f"{before} → {after}% ({low} to {high}) `{model['decision']}`", (
                document["skill"]
            )
    for name, svg in make_pictures.drawn(documents).items():
        made = (make_pictures.PICTURES / name).read_text(encoding="utf-8")
        assert made == f"{svg}\n", f"{name} is not what `make pictures` draws"
        assert f"(docs/pictures/{name})" in readme or f"(pictures/{name})" in text


def test_every_screenshot_is_small_and_shown_somewhere() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for path in make_pictures.PICTURES.glob("*.png"):
        assert path.stat().st_size < 150_000, path.name
        assert f"pictures/{path.name})" in text, path.name


def test_the_pictures_of_experiments_are_what_was_recorded() -> None:
    text = "".join(
        page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs" / "how-to").glob("*.md")
    )
    for name, svg in experiment_pictures.drawn().items():
        made = (make_pictures.PICTURES / name).read_text(encoding="utf-8")
        assert made == f"{svg}\n", f"{name} is not what `make pictures` draws"
        assert f"(../pictures/{name})" in text
