"""The reports of all verbs: what every `--json` prints, to the letter, and that every medium renders them.

The fields of these documents are a promise.

The files in tests/fixtures/json are what they should print; `GOLDEN=write` writes them anew. What differs between
machines and days (hashes, times, paths, how long a trial took) is made equal before they are compared.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import REPOSITORY, Upskill, greetings, write_script, write_skill
from teaching import FIRST_WORDS, draft, insert, student_rules, teacher_rules, write_rules
from test_ci import git
from upskill.plain import as_list, as_mapping
from upskill.reports import REPORTS, Renderer, markdown, terminal
from upskill.reports.report import Report

GOLDEN = Path(__file__).parent / "fixtures" / "json"
STUDENT = ("-m", "scripted:student.yaml")

# In this order: later commands show what earlier ones have stored.
COMMANDS: dict[str, tuple[object, ...]] = {
    "validate": ("validate", "greeter"),
    "eval-plan": ("eval", "greeter", *STUDENT, "--plan"),
    "eval": ("eval", "greeter", *STUDENT, "--require", "lift>=0.1", "--receipt"),
    "verify": ("verify", "greeter"),
    "show": ("show", "last"),
    "show-case": ("show", "last", "--case", "greet-1"),
    "show-checks": ("show", "last", "--checks"),
    "show-bugs": ("show", "last", "--bugs"),
    "ci": ("ci", "greeter", "--base-ref", "main", *STUDENT),
    "ci-all": ("ci", "--all", "greeter", *STUDENT),
    "eval-several-models": ("eval", "greeter", *STUDENT, "-m", "scripted:mixed.yaml"),
    "compare": ("compare", "last~1", "last"),
    "runs": ("runs",),
    "list": ("list",),
    "versions": ("versions", "greeter"),
    "trigger": ("trigger", "greeter", "-m", "scripted:opens.yaml"),
    "score": ("tests", "greeter", "--score", *STUDENT),
    "distill": ("distill", "greeter", *STUDENT),
    "show-worth": ("show", "greeter", "--worth"),
    "matrix": ("matrix", "greeter", "sailor", "-m", "scripted:opens.yaml"),
    "challenge": ("challenge", "greeter", *STUDENT, "--challenger", "scripted:challenger.json"),
    "generate": (
        "generate",
        "know the words of this house",
        *("-e", "Who goes there? -> A friend.", "-m", "scripted:teacher.json"),
        *("--student", "scripted:words.json", "--tokens", "1000", "--attempts", "1"),
    ),
    "show-sources": ("show", "skills/house-words", "--sources"),
}


def settle(home: Path) -> None:
    for name in ("greeter", "sailor"):
        folder = write_skill(home / name, suite=greetings(6))
        queries = [
            {"query": f"Let the {name} greet guest {number}.", "should_trigger": True}
            for number in (1, 2)
        ]
        (folder / "evals" / "eval_queries.json").write_text(json.dumps(queries))
    write_script(home / "student.yaml")
    helpful = [{"system": "ahoy", "answer": "ahoy, friend"}, {"answer": "hello, friend"}]
    write_script(home / "mixed.yaml", [{"when": "guest 1.", "answer": "no"}, *helpful])
    opens = {"name": "activate_skill", "arguments": {"name": "greeter"}}
    write_script(
        home / "opens.yaml",
        [{"when": "greeter", "turns": [{"calls": [opens]}, "Done."]}, {"answer": "Done."}],
    )
    proposal = {
        "id": "silent",
        "line": "Whoever asks for a greeting gets the one of this house.",
        "prompt": "Somebody wants silence. What do you say?",
        "words": 0,
        "checks": [{"kind": "contains", "texts": ["hello"], "number": 0, "exact": False}],
        "reference": "hello",
        "tags": [],
        "evidence": [],
    }
    challenger = [{"system": "leads its reader", "answer": json.dumps({"cases": [proposal]})}]
    (home / "challenger.json").write_text(json.dumps(challenger))
    missing = insert("- Words are nice.")
    write_rules(home / "teacher.json", teacher_rules(draft(FIRST_WORDS), [missing]))
    write_rules(home / "words.json", student_rules())


def edit(home: Path) -> None:
    """A branch on which one skill is longer."""
    git(home, "init", "-q", "-b", "main")
    git(home, "add", "greeter")
    git(home, "commit", "-qm", "A skill")
    manifest = home / "greeter" / "SKILL.md"
    manifest.write_text(manifest.read_text() + "\nA guest is a friend.\n")


def normal(value: Any, home: Path) -> Any:
    if (items := as_list(value)) is not None:
        return [normal(each, home) for each in items]
    if isinstance(value, str):
        return without_hashes(value.replace(str(home), "/here"))
    if (fields := as_mapping(value)) is None:
        return value
    found = {without_hashes(name): normal(each, home) for name, each in fields.items()}
    for name, each in found.items():
        if ("seconds" in name or name == "shuffle") and isinstance(each, float | int):
            found[name] = 0.0
        if name in ("version", "upskill", "python", "platform"):
            found[name] = "…"
    return found


def without_hashes(text: str) -> str:
    text = re.sub(r"\b([a-z]+(?:-[a-z]+)*)-[0-9a-f]{8}\b", r"\1-0a1b2c3d", text)
    text = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{10,}\b", "HASH", text)
    text = re.sub(r"^\d{4}-\d\d-\d\d$", "2026-01-02", text)
    return re.sub(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", "2026-01-02T03:04:05+00:00", text
    )


def test_every_document_is_as_it_should_be(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(home)
    found: dict[str, Any] = {}
    for name, command in COMMANDS.items():
        if name == "ci":
            edit(home)
        done = upskill(*command, "--json")
        assert done.code in (0, 1), (name, done.err)
        found[name] = normal(done.json, home)
        if os.environ.get("GOLDEN") == "write":
            text = yaml.safe_dump(found[name], sort_keys=False, allow_unicode=True, width=200)
            (GOLDEN / f"{name}.yaml").write_text(text, encoding="utf-8")
    for name, document in found.items():
        wanted = yaml.safe_load((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8"))
        assert document == wanted, name
        assert list(document) == list(wanted), name
    assert {path.stem for path in GOLDEN.iterdir()} == set(COMMANDS)


MEDIA: dict[str, Renderer] = {kind: REPORTS.load(kind) for kind in REPORTS.table}
ONLY_DATA = ("validate", "eval-plan", "verify", "show-bugs", "show-sources")  # without a report
NUMBER = re.compile(r"[+−-]?\$?\d[\d,.]*( ?%| points?)?")


def test_every_verb_has_a_report_that_every_medium_renders(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(home)
    seen: list[str] = []
    for module, name in ((terminal, "render"), (markdown, "render")):
        monkeypatch.setattr(module, name, checking(getattr(module, name), seen))
    for name, command in COMMANDS.items():
        if name == "ci":
            edit(home)
        seen.clear()
        done = upskill(*command)
        assert done.code in (0, 1), (name, done.err)
        assert seen or name in ONLY_DATA, name


def checking(render: Callable[..., Any], seen: list[str]) -> Callable[..., Any]:
    """Renders a report in every medium before it is shown."""

    def check(report: Report, *options: Any) -> Any:
        seen.append(report.title)
        for medium in MEDIA.values():
            assert medium(report)
        for table in report.tables:
            texts = [cell for row in table.rows for cell in row if isinstance(cell, str)]
            assert not [text for text in texts if NUMBER.fullmatch(text)], (report.title, texts)
        return render(report, *options)

    return check


def test_builders_know_no_medium_and_renderers_no_verb() -> None:
    folder = REPOSITORY / "src" / "upskill" / "reports"
    renderers = {
        "terminal",
        "answers",
        "layout",
        "markdown",
        "templates",
        "html",
        "json",
        "csv",
        "junit",
        "svg",
        "live",
    }
    for path in folder.glob("*.py"):
        imported = set(re.findall(r"^ *from ([\w.]+) import", path.read_text(), re.MULTILINE))
        if path.stem in renderers - {"live"}:
            verbs = {
                "evaluated",
                "gate",
                "generated",
                "trigger",
                "comparison",
                "runs",
                "experiments",
            }
            assert not imported & {f"upskill.reports.{verb}" for verb in verbs}, path
        elif path.stem not in ("__init__", "live"):
            roots = {name.partition(".")[0] for name in imported}
            assert not roots & {"rich", "jinja2", "markupsafe"}, path
