"""`tests --add`: cases are appended to the suite that is there, and nothing of its text changes."""

from __future__ import annotations

import json

import pytest

from upskill import Skill, Suite
from upskill.authoring.writing.teachers import add_command
from upskill.errors import UsageError
from upskill.settings import Settings
from upskill.skills.starter import skill_files
from upskill.suites import Case
from upskill.suites.appending import append_cases
from upskill.suites.suite import as_yaml

CASES = Suite.parse(
    [
        {"id": "new-1", "prompt": "One?\nIn a line.", "checks": [{"contains": "yes: no"}]},
        {"id": "new-2", "prompt": "Two # ü?", "checks": [{"regex": "^a$"}], "tags": ["x"]},
    ]
).cases
BLOCK = """\
# Of mine.
max_output_tokens: 90

cases:   # all of them
  - id: a
    prompt: "A?"
    checks:
      - contains: a  # why

  - id: b
    prompt: |
      B?

      Really?
    checks: [contains: b]
    # still b
# the end
"""
SUITES = {
    "block": ("evals/suite.yaml", BLOCK),
    "in the middle": (
        "evals/suite.yaml",
        "tests:\n- id: a\n  prompt: >\n    A?\n  checks:\n  - contains: a\n\n# Shared.\nchecks:\n- max_length: 900\n",
    ),
    "ends in a text": (
        "evals/suite.yml",
        "- id: a\n  checks: [{contains: a}]\n  prompt: |\n    A?\n    More.\n",
    ),
    "no line break at the end": ("evals/suite.yaml", "- checks: [{contains: a}]\n  prompt: A?"),
    "flow": ("evals/suite.yaml", "cases: [{id: a, prompt: A, checks: [{contains: a}]},\n] # all\n"),
    "lines of Windows": ("evals/suite.yaml", BLOCK.replace("\n", "\r\n")),
    "json": (
        "evals/suite.json",
        '{"max_output_tokens": 9,\n\t"cases": [\n\t\t{"id": "a", "prompt": "A?",  "checks": [{"contains": "]"}]}\n\t]}',
    ),
    "json in a line": (
        "evals/evals.json",
        '[{"id": "a", "prompt": "A?", "checks": [{"contains": "a"}]}]',
    ),
    "upstream": (
        "skill_meta.json",
        json.dumps(
            {
                "metadata": {"version": "1.0"},
                "tests": [{"input": "A?", "expected": {"contains": "a"}}],
                "seen": {"a": "12"},
            },
            indent=4,
        ),
    ),
}


def skill_with(path: str, text: str) -> Skill:
    return Skill.new("s", "Does it.", "Body.").with_file(path, text.encode())


@pytest.mark.parametrize("name", SUITES)
def test_cases_are_appended_and_the_text_stays(name: str) -> None:
    path, text = SUITES[name]
    skill = skill_with(path, text)
    before = Suite.required(skill)
    written, suite = append_cases(skill, path, CASES)
    assert suite.cases[: len(before.cases)] == before.cases
    for case, added in zip(CASES, suite.cases[len(before.cases) :], strict=True):
        assert (case.id, case.prompt, case.tags) == (added.id, added.prompt, added.tags)
        assert added.checks[: len(case.checks)] == case.checks
    rest = iter(written.decode())
    assert all(letter in rest for letter in text)  # every letter is there, in its order
    assert ("\r\n" in text) == ("\r\n" in written.decode())
    _, again = append_cases(skill.with_file(path, written), path, [_renamed(CASES[0])])
    assert [case.id for case in again.cases[-3:]] == ["new-1", "new-2", "new-3"]


def _renamed(case: Case) -> Case:
    (renamed,) = Suite.parse([case.to_dict() | {"id": "new-3"}]).cases
    return renamed


def test_what_is_written_reads_as_a_person_would_write_it() -> None:
    written, _ = append_cases(skill_with("evals/suite.yaml", BLOCK), "evals/suite.yaml", CASES[1:])
    text = written.decode()
    before, _, after = BLOCK.partition("# the end\n")
    added = "\n  - id: new-2\n    prompt: 'Two # ü?'\n    checks:\n      - regex: ^a$\n    held_out: false\n"
    assert text.startswith(before)
    assert text.removeprefix(before).startswith(added), text
    assert text.endswith("# the end\n" + after)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("evals/suite.yaml", "a: &c\n  - {prompt: A?, checks: [{contains: a}]}\ncases: *c\n"),
        ("evals/suite.yaml", "prompt,expected\nA?,a\n"),
        ("evals/suite.json", '{"prompt": "A?", "checks": [{"contains": "a"}]}\n{"prompt": "B?"}\n'),
    ],
)
def test_a_file_of_another_form_is_refused_with_what_to_do(path: str, text: str) -> None:
    with pytest.raises(UsageError) as refused:
        append_cases(skill_with(path, text), path, CASES)
    assert "upskill import" in refused.value.hint


def test_the_file_of_init_and_what_import_writes_can_be_added_to() -> None:
    files = skill_files("kiln-notes", "kiln-notes")
    for text in (files["evals/suite.yaml"], as_yaml(Suite(CASES))):
        skill = skill_with("evals/suite.yaml", text)
        new = [_renamed(CASES[0])]
        written, suite = append_cases(skill, "evals/suite.yaml", new)
        assert written.decode().startswith(text)
        assert suite.cases[-1].id == "new-3"


def test_a_line_about_too_few_cases_names_a_command_where_somebody_writes_cases() -> None:
    anyone, nobody = Settings(test_writer="sonnet"), Settings()
    key = {"ANTHROPIC_API_KEY": "k"}
    for settings, keys in ((anyone, {}), (nobody, key)):
        command = add_command("my skills/a", settings, keys)
        assert command == "upskill tests 'my skills/a' --add {}"
    assert not add_command("a", nobody, {})
