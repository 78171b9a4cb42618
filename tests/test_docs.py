"""Every command of the README and the documentation: it parses as written, and runs with models that need no key."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from conftest import REPOSITORY, Upskill, write_script, write_skill
from upskill import open_store
from upskill.cli import COMMANDS, HIDDEN
from upskill.cli import upskill as command_line
from upskill.runs.stores import Review

PAGES = {
    str(page.relative_to(REPOSITORY)): page
    for page in (
        REPOSITORY / "README.md",
        REPOSITORY / "examples" / "README.md",
        *sorted((REPOSITORY / "docs").rglob("*.md")),
    )
    if page.name != "reference.md"  # which is made from the code
}
BLOCK = re.compile(r"^```(?:console|sh|bash|text|yaml)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\s*(?:- )?(?:\$ |run: |entrypoint: )?(?:[A-Z_]+=\S+ )*(upskill(?: .*)?)")
TRACE = REPOSITORY / "tests" / "fixtures" / "traces" / "claude_code" / "tarn.jsonl"


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words after `upskill` of each command line in a page's blocks, without comments and what is piped to."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if found := COMMAND.fullmatch(line):
                words = shlex.split(re.split(r"\s+#|\s{2,}", found[1])[0])[1:]
                ends = [words.index(mark) for mark in ("|", ">", "&&", "2>") if mark in words]
                yield words[: min(ends, default=len(words))]


def test_every_command_line_names_a_command_and_options_that_exist() -> None:
    lines = [words for page in PAGES.values() for words in commands_of(page)]
    assert len(lines) > 40
    for line in lines:
        context = click.Context(command_line, info_name="upskill")
        command: click.Command = command_line
        words = list(line)
        while words and not words[0].startswith("-") and isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found, line
            command = found
        command.make_context(command.name, words, parent=context)


# Names of what was removed, as a person would type or read them.
REMOVED_WORDS = (
    r"upskill (push|mcp|feedback|delete|recheck|plan)\b",
    r"\b(disputed|redrawn|used_by_search)\b",
    r"\b(another|earlier|first|twelve) looks?\b",
    r"(eval|trigger|ci)\b[^\n|]* --(fresh|resume)\b",
    r"pack --index",
    r"store (copy|check)\b",
    r"\bwaza\b",
    r"\botel\b|OpenTelemetry",
    r"skills-lock\.json",
    r"\[(hub|scanner|parquet|png)\]|`(hub|scanner|parquet|png)`",
    r"--(preregister|sarif|theme)\b|preregist",
    r"--attack-checks|attack_checks",
    r"-m extract\b",
    r"\bparquet\b|\bSARIF\b|heat[- ]map|\bkappa\b|\blandlock\b",
    r"format jsonl|format skill-creator|`jsonl`",
    r"feedback\.json",
)


def test_nothing_names_what_was_removed() -> None:
    files = ["CONTRIBUTING.md", "action.yml", "pyproject.toml", "skills/upskill/SKILL.md"]
    texts = {name: (REPOSITORY / name).read_text("utf-8") for name in files}
    texts |= {name: page.read_text("utf-8") for name, page in PAGES.items()}
    # Of other tools, the comparison says what they have.
    comparison = texts["docs/comparison.md"].splitlines()
    texts["docs/comparison.md"] = "\n".join(
        line for line in comparison if not line.startswith("| ")
    )
    for name in (*COMMANDS, *HIDDEN):
        command = command_line.get_command(click.Context(command_line), name)
        assert command
        for each in (command, *getattr(command, "commands", {}).values()):
            texts[f"upskill {name} {each.name} --help"] = each.get_help(click.Context(each))
    pattern = re.compile("|".join(REMOVED_WORDS), re.IGNORECASE)
    found = {
        name: sorted({match[0] for match in pattern.finditer(text)}) for name, text in texts.items()
    }
    assert {name: words for name, words in found.items() if words} == {}


def test_the_page_on_statistics_has_at_most_900_words() -> None:
    page = REPOSITORY / "docs" / "statistics.md"
    assert len(page.read_text(encoding="utf-8").split()) <= 900


def test_the_readme_has_at_most_900_words_and_its_lines_wrap_at_100() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert [
        line for line in text.splitlines() if len(line) > 100 and not line.startswith("![")
    ] == []


# Commands that ask nobody but a model run as they are written, with a scripted model in place of the one that is named.
# What is left out needs more than that: a download, an answer by hand, a recording, a real agent's login.
PROMPTFOO = """\
prompts: ["Greet {{name}}."]
tests: [{vars: {name: Ann}, assert: [{type: contains, value: ahoy}]}]
"""
MODEL_FLAGS = (
    "-m",
    "--model",
    "--student",
    "--teacher",
    "--test-writer",
    "--test-writer",
    "--judge",
)
LEFT_OUT = (
    *(
        "models pull",
        "models rm",
        "--handoff",
        "handoff:",
        "--replay",
        "--batch",
        "mcp:",
        "--watch",
        "view",
    ),
    *("--agent codex", "--agent claude-code", "--agent opencode", "--agent acp:", '--agent "acp:'),
    "--executor ray",  # which test_ray.py runs
    "hf:",  # which test_push.py runs
    "kernelbench",  # which test_kernelbench.py runs, where there is PyTorch
    *("--challenger", "--score -m haiku --fix"),  # which test_challenge.py and test_score.py run
    *("last:", "skills/corvane", "show RUN"),  # of runs that these would have made
)
STAND_INS = {
    "SKILL": "./skills/my-skill",
    "SUITE": "suite.json",
    "DOC": "page.md",
    "RUN": "last",
    "ID": "greet-1",
    "h100-capability": "greet-1",
    "claude-code:last": str(TRACE),
}

# Pages whose commands build on each other, run by test_editing.py and test_h100_students.py.
RUN_ELSEWHERE = {"docs/how-to/edit.md", "docs/tutorial.md"}


def runnable(words: list[str]) -> list[str] | None:
    line = " ".join(words)
    if words[0] == "ci" or any(
        mark in line for mark in LEFT_OUT
    ):  # test_ci.py runs ci, in a repository
        return None
    teaches = words[0] in ("generate", "teach", "tests")
    script = "generate" if teaches else "trigger" if words[0] == "trigger" else ""
    model = f"scripted:examples/scripted-{script}.yaml" if script else "scripted:student.yaml"
    given: list[str] = []
    if words[0] == "init":
        return ["init", "a-new-skill", "--yes"]
    for before, word in zip(["", *words], words, strict=False):
        if word == "--base-url" or before == "--base-url":
            continue
        given.append(model if before in MODEL_FLAGS else STAND_INS.get(word, word))
    flag = "--student" if words[0] in ("generate", "teach") else "-m"
    asks = words[0] in ("eval", "trigger", "generate", "teach") and "--no-eval" not in words
    given += ["--force"] if words[0] == "generate" else []  # nobody is there to be asked
    given += ["-m", model] if words[0] == "teach" and "-m" not in given else []
    return [*given, flag, model] if asks and flag not in given else given


@pytest.mark.parametrize("name", sorted(PAGES.keys() - RUN_ELSEWHERE))
def test_commands_run_as_they_are_written(
    name: str, upskill: Upskill, home: Path, request: pytest.FixtureRequest
) -> None:
    for folder in ("my-skill", "skills/my-skill", "skills/tern", "others/other"):
        write_skill(home / folder, cases=12)
        shutil.copy(
            REPOSITORY / "examples/kernel-builder-cuda-kernels/evals/eval_queries.json",
            home / folder / "evals",
        )
    shutil.copytree(REPOSITORY / "examples", home / "examples")
    shutil.copytree(REPOSITORY / "skills", home / "skills", dirs_exist_ok=True)
    shutil.copy(home / "my-skill/evals/suite.json", home / "suite.json")
    shutil.copy(TRACE, home / "trace.jsonl")
    shutil.copytree(home / "others", home / "project")
    (home / "promptfooconfig.yaml").write_text(PROMPTFOO, encoding="utf-8")
    (home / "page.md").write_text(
        "Guests are greeted with the words ahoy and guest.\n", encoding="utf-8"
    )
    write_script(home / "student.yaml")
    assert (
        upskill("eval", "my-skill", "-m", "scripted:student.yaml").code == 0
    )  # `show last` and its like need a run
    with open_store("runs") as store:  # `generate --feedback` needs a review
        run = store.run("last")
        trial = next(iter(store.results(run))).trial
        store.add_review(run, Review(trial, "odd", "It greets twice."))
    lines = [given for words in commands_of(PAGES[name]) if (given := runnable(words)) is not None]
    if any(word.startswith("postgresql://") for line in lines for word in line):
        place = request.getfixturevalue("postgres").new_place()
        assert (
            upskill("eval", "my-skill", "-m", "scripted:student.yaml", "--store", place).code == 0
        )
        lines = [
            [place if word.startswith("postgresql://") else word for word in line] for line in lines
        ]
    for given in lines:
        done = upskill(*given)
        assert done.code in (0, 1), (given, done)  # 1: what was required does not hold


def test_every_claim_about_another_tool_has_a_source_and_a_date() -> None:
    page = (REPOSITORY / "docs" / "comparison.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    found = page.partition("## What others found")[2].partition("\n## ")[0]
    claims = [
        *(row.rstrip(" |").rpartition(" | ")[2] for row in rows),
        *re.findall(r"^- .*", found, re.MULTILINE),
    ]
    assert len(claims) > 15
    without = [
        claim
        for claim in claims
        if "](https://" not in claim or not re.search(r"\d [A-Z][a-z]{2} 2026", claim)
    ]
    assert without == []
