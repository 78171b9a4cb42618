"""A suite is read in every shape its users have, and everything wrong with it is said before the first call."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from upskill import Case, Skill, Suite, UsageError
from upskill.authoring.saving.provenance import add_suite
from upskill.suites import HELD_OUT_SHARE

CASE: dict[str, Any] = {"id": "one", "prompt": "Say hello.", "checks": [{"contains": "hello"}]}


def written(path: Path, said: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(said, bytes):
        path.write_bytes(said)
    elif isinstance(said, str):
        path.write_text(said, encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(said), encoding="utf-8")
    else:
        path.write_text(yaml.safe_dump(said, allow_unicode=True), encoding="utf-8")
    return path


def skill_in(folder: Path) -> Skill:
    written(folder / "SKILL.md", f"---\nname: {folder.name}\ndescription: d\n---\nBody.\n")
    return Skill.load(folder)


def checks_of(case: Case) -> list[tuple[str, Any]]:
    return [(named.name, named.config) for named in case.checks]


# The shapes.


def test_upstreams_list(tmp_path: Path) -> None:
    said = [
        {"input": "Say hello.", "expected": {"contains": "hello"}},
        {
            "input": "Say both.",
            "context": {"files": {"a.txt": "text"}},
            "expected": {"contains": ["hello", "world"]},
        },
        {"input": "Say it.", "expected": {"contains": "it", "max_length": 5}},
        {"input": "Say one.", "expected": ["one"], "tags": ["x"], "held_out": True, "id": 7},
    ]
    suite = Suite.load(written(tmp_path / "tests.json", said))
    assert [case.prompt for case in suite.cases] == [
        "Say hello.",
        "Say both.",
        "Say it.",
        "Say one.",
    ]
    assert [checks_of(case) for case in suite.cases] == [
        [("contains", "hello")],
        [("contains", ["hello", "world"])],
        [("contains", "it"), ("max_length", 5)],
        [("contains", ["one"])],
    ]
    assert suite.cases[1].files == {"a.txt": "text"}
    assert (suite.cases[3].id, suite.cases[3].tags, suite.cases[3].held_out) == ("7", ("x",), True)
    assert suite.warnings == ()
    assert suite.source == str(tmp_path / "tests.json")


def test_upstreams_mapping_with_cases_and_a_validator() -> None:
    case = {
        "input": "Go.",
        "validator": "regex",
        "validator_config": {"pattern": "^a"},
        "output_file": "out.txt",
    }
    suite = Suite.parse({"cases": [case | {"context": {"url": "x"}}]}, "tests.json")
    assert checks_of(suite.cases[0]) == [("regex", {"pattern": "^a"})]
    assert suite.cases[0].output_file == "out.txt"
    assert suite.warnings == ("tests.json: case 1: unknown field context.url, not used",)


@pytest.mark.parametrize(
    "fields", [{"input": "Go."}, {"prompt": "Go."}, {"prompt": "Go.", "files": []}]
)
def test_an_output_file_is_kept_in_every_shape_and_makes_another_case(
    fields: dict[str, Any],
) -> None:
    said = fields | {"checks": [{"contains": "a"}]}
    (case,) = Suite.parse([said | {"output_file": "out/a.txt"}]).cases
    assert (case.output_file, Suite.parse([case.to_dict()]).cases[0]) == ("out/a.txt", case)
    assert case.fingerprint != Suite.parse([said]).cases[0].fingerprint
    skill = add_suite(Skill.new("a", "A.", "A."), Suite((case,)))
    kept = Suite.of(skill)
    assert kept is not None
    assert kept.cases == (case,)
    with pytest.raises(UsageError, match="'/etc/passwd' is not a path inside the workspace"):
        Suite.parse([said | {"output_file": "/etc/passwd"}])


def test_tests_of_skill_meta(tmp_path: Path) -> None:
    skill_in(tmp_path / "my-skill")
    meta = {
        "metadata": {"version": "1"},
        "tests": [{"input": "Say hello.", "expected": {"contains": "hello"}}],
    }
    written(tmp_path / "my-skill" / "skill_meta.json", meta)
    suite = Suite.of(Skill.load(tmp_path / "my-skill"))
    assert suite is not None
    assert checks_of(suite.cases[0]) == [("contains", "hello")]
    assert suite.source == str(tmp_path / "my-skill" / "skill_meta.json")
    written(tmp_path / "my-skill" / "skill_meta.json", {"metadata": {}, "tests": []})
    assert Suite.of(Skill.load(tmp_path / "my-skill")) is None


@pytest.mark.parametrize("spelling", ["assertions", "expectations"])
def test_evals_json_in_both_spellings(tmp_path: Path, spelling: str) -> None:
    folder = tmp_path / "my-skill"
    skill_in(folder)
    written(folder / "assets" / "a.txt", "text of a")
    written(folder / "evals" / "b.txt", "text of b")
    said = {
        "skill_name": "my-skill",
        "evals": [
            {
                "id": 1,
                "prompt": "Do it.",
                "expected_output": "It is done.",
                "files": ["assets/a.txt", "b.txt"],
                spelling: ["It is done", "It is short"],
            },
            {"id": 2, "prompt": "Do more.", "expected_output": "More is done."},
        ],
    }
    file = written(folder / "evals" / "evals.json", said)
    for suite in (Suite.load(file), Suite.of(Skill.load(folder))):
        assert suite is not None
        first, second = suite.cases
        assert (first.id, first.expected_output) == ("1", "It is done.")
        assert checks_of(first) == [("judge", "It is done"), ("judge", "It is short")]
        assert first.files == {"assets/a.txt": "text of a", "b.txt": "text of b"}
        assert checks_of(second) == [("judge", "More is done.")]


NATIVE = """
max_output_tokens: 50
checks:
  - max_length: 100
cases:
  - id: hello
    prompt: Say hello.
    files: {notes/a.md: "# A"}
    checks:
      - contains: {text: hello, ignore_case: false}
      - regex: ^h
    tags: [greeting, short]
    held_out: true
    reference: hello
    expected_output: A greeting.
  - id: 2026-01-02
    prompt: |
      Say bye.
"""


def test_native_yaml_and_json(tmp_path: Path) -> None:
    suite = Suite.load(written(tmp_path / "suite.yaml", NATIVE))
    assert suite.max_output_tokens == 50
    first, second = suite.cases
    assert checks_of(first) == [
        ("contains", {"text": "hello", "ignore_case": False}),
        ("regex", "^h"),
        ("max_length", 100),
    ]
    assert (first.files, first.tags, first.held_out) == (
        {"notes/a.md": "# A"},
        ("greeting", "short"),
        True,
    )
    assert (first.reference, first.expected_output) == ("hello", "A greeting.")
    assert (second.id, second.prompt, checks_of(second)) == (
        "2026-01-02",
        "Say bye.\n",
        [("max_length", 100)],
    )
    same = written(tmp_path / "suite.json", json.dumps(yaml.load(NATIVE, yaml.BaseLoader)))
    with pytest.raises(UsageError):  # a number in quotes is not a number
        Suite.load(same)
    other = Suite.load(written(tmp_path / "suite.json", suite.to_dict()))
    assert other.fingerprint == suite.fingerprint


@pytest.mark.parametrize("name", ["suite.yaml", "suite.json", "suite.txt"])
def test_the_content_decides_and_not_the_name(tmp_path: Path, name: str) -> None:
    assert Suite.load(written(tmp_path / name, json.dumps([CASE]))).cases[0].id == "one"
    bom = b"\xef\xbb\xbf" + json.dumps([CASE], indent=1).replace("\n", "\r\n").encode()
    assert Suite.load(written(tmp_path / name, bom)).cases[0].id == "one"


def test_yaml_that_starts_like_json_is_yaml(tmp_path: Path) -> None:
    flow = "[{id: one, prompt: Hi., checks: [{contains: x}]}]"
    assert Suite.load(written(tmp_path / "suite.yaml", flow)).cases[0].id == "one"


def test_a_number_or_a_yes_in_a_check_for_text_is_the_text_that_is_written(tmp_path: Path) -> None:
    checks = "[{equals: 42}, {equals: {text: yes}}, {contains: [3.10, 0755, 12:30, no]}, {starts_with: true}]"
    schema = "{json_schema: {type: array, contains: true}}"
    text = f"- {{prompt: What is it, checks: {checks}}}\n- {{prompt: And as a list, checks: [{schema}]}}"
    first, second = Suite.load(written(tmp_path / "suite.yaml", text)).cases
    said = ["42", {"text": "yes"}, ["3.10", "0755", "12:30", "no"], "true"]
    assert [named.config for named in first.checks] == said
    assert second.checks[0].config == {"type": "array", "contains": True}


def test_a_merged_mapping_may_be_overridden(tmp_path: Path) -> None:
    text = "- &base {id: one, prompt: Hi., checks: [{contains: x}]}\n- {<<: *base, id: two}\n"
    assert [case.id for case in Suite.load(written(tmp_path / "suite.yaml", text)).cases] == [
        "one",
        "two",
    ]


def test_the_suite_of_a_skill_is_found_where_it_lies(tmp_path: Path) -> None:
    folder = tmp_path / "my-skill"
    assert Suite.of(skill_in(folder)) is None
    places = [
        "skill_meta.json",
        "evals/evals.json",
        "evals/suite.json",
        "evals/suite.yml",
        "evals/suite.yaml",
    ]
    for number, place in enumerate(places):
        case = CASE | {"id": f"from-{number}"}
        written(folder / place, {"tests": [case]} if place == "skill_meta.json" else [case])
        suite = Suite.of(Skill.load(folder))
        assert suite is not None
        assert suite.cases[0].id == f"from-{number}"
        assert suite.source == str(folder / place)


# The split.

SAME_EVERYWHERE = [f"case-{number}" for number in (2, 3, 6, 8, 12, 14, 17, 19)]
IDS = st.lists(
    st.text(st.characters(categories=("L", "N")), min_size=1, max_size=12), min_size=1, unique=True
)


def suite_of(ids: list[str]) -> Suite:
    return Suite.parse([CASE | {"id": name} for name in ids])


@given(ids=IDS)
def test_a_case_that_is_added_moves_no_other(ids: list[str]) -> None:
    whole = [case.held_out for case in suite_of(ids).cases]
    for count in range(1, len(ids)):
        assert [case.held_out for case in suite_of(ids[:count]).cases] == whole[:count]


@given(ids=IDS)
def test_two_of_every_five_cases_are_held_out(ids: list[str]) -> None:
    for count in range(1, len(ids) + 1):
        held_out = len(suite_of(ids[:count]).held_out)
        assert held_out == 0.4 * count if count % 5 == 0 else abs(held_out - 0.4 * count) < 1.5


def test_the_split_is_drawn_by_the_ids_and_the_same_on_every_machine() -> None:
    twenty = suite_of([f"case-{number}" for number in range(20)])
    assert len(twenty.held_out) == 8
    assert [case.id for case in twenty.held_out] == SAME_EVERYWHERE
    # Every place in a block is drawn as often as another.
    sides = [
        case.held_out for case in suite_of([f"case-{number}" for number in range(5_000)]).cases
    ]
    for place in range(5):
        assert math.isclose(sum(sides[place::5]) / 1_000, HELD_OUT_SHARE, abs_tol=0.05)


def test_cases_that_follow_make_up_for_a_split_that_somebody_chose() -> None:
    chosen = [CASE | {"id": f"old-{number}", "held_out": number < 4} for number in range(20)]
    grown = Suite.parse([*chosen, *(CASE | {"id": f"new-{number}"} for number in range(20))])
    assert [case.held_out for case in grown.cases[:20]] == [number < 4 for number in range(20)]
    assert len(grown.held_out) == 16
    assert all(
        len([case for case in grown.cases[at : at + 5] if not case.held_out]) >= 2
        for at in range(20, 40, 5)
    )


def test_a_case_may_say_which_side_it_is_on() -> None:
    suite = Suite.parse(
        [CASE | {"id": f"{side}-{n}", "held_out": side} for side in (True, False) for n in range(5)]
    )
    assert [case.held_out for case in suite.cases] == [True] * 5 + [False] * 5
    assert len(suite.held_out) == len(suite.train) == 5
    assert suite.by_id["True-0"].held_out


# Ids of cases that have none.


def nameless(prompt: str = "Say hello, friend of mine, today!", **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "checks": [{"contains": "hello"}], **more}


def test_an_id_is_made_from_what_is_asked_and_stays_when_checks_change() -> None:
    alone = Suite.parse([nameless()]).cases[0].id
    assert re.fullmatch(r"[0-9a-f]{4}-say-hello-friend-mine-today", alone)
    among = Suite.parse([CASE, nameless("Other."), nameless()], "elsewhere")
    assert among.cases[2].id == alone
    stricter = nameless(checks=[{"contains": "bye"}])
    assert Suite.parse([stricter]).cases[0].id == alone
    different = [nameless(), stricter, nameless(files={"a": "b"}), nameless("Say hello again.")]
    assert Suite.parse(different).cases[0].id == alone
    assert len({case.id for case in Suite.parse(different).cases}) == 4
    assert Suite.parse([nameless(tags=["x"], held_out=True)]).cases[0].id == alone


def test_ids_are_readable_in_every_script_and_differ_from_the_first_letters_on() -> None:
    assert re.fullmatch("[0-9a-f]{4}-你好", Suite.parse([nameless("你好")]).cases[0].id)
    quoted = Suite.parse([nameless('Say "it\'s über-gut", please.')]).cases[0].id
    assert quoted[4:] == "-say-über-gut"
    assert re.fullmatch("[0-9a-f]{8}", Suite.parse([nameless("?!")]).cases[0].id)
    assert len(Suite.parse([nameless("x" * 5000)]).cases[0].id) == 45
    start = "Write a Python function that takes a list of numbers and returns the"
    ids = [
        case.id
        for case in Suite.parse(
            [nameless(f"{start} {what}.") for what in ("sum", "mean", "mode")]
        ).cases
    ]
    assert len({made[:4] for made in ids}) == 3
    assert all(made[4:] == "-python-function-takes-list-numbers" for made in ids)


# Round trip and fingerprints.

TEXT = st.text(min_size=1, max_size=20).filter(lambda text: bool(text.strip()))
CHECK: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"contains": TEXT | st.lists(TEXT, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"max_length": st.integers(1, 999)}),
    st.fixed_dictionaries(
        {"equals": st.fixed_dictionaries({"text": TEXT, "ignore_case": st.booleans()})}
    ),
)
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "prompt": TEXT,
    "checks": st.lists(CHECK, min_size=1, max_size=3),
}
MORE: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers() | st.text(st.characters(categories=("L", "N")), min_size=1, max_size=9),
    "tags": st.lists(TEXT, max_size=2),
    "held_out": st.booleans(),
    "reference": st.text(max_size=9),
    "expected_output": st.text(max_size=9),
    "right": st.lists(st.text(max_size=9) | st.fixed_dictionaries({"run": TEXT}), max_size=2),
    "wrong": st.lists(st.text(max_size=9), max_size=2),
    "max_output_tokens": st.none() | st.integers(1, 9999),
    "files": st.dictionaries(
        st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5})?", fullmatch=True), st.text(max_size=9)
    ),
}
CASES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(PARTS, optional=MORE)


@given(case=CASES, limit=st.none() | st.integers(1, 9999))
def test_plain_says_all_there_is_to_say(case: dict[str, Any], limit: int | None) -> None:
    said: dict[str, Any] = {"cases": [case], "checks": [{"min_length": 1}]}
    suite = Suite.parse(said | ({"max_output_tokens": limit} if limit else {}))
    text = json.dumps(suite.to_dict(), ensure_ascii=False, allow_nan=False)
    again = Suite.read(text.encode(), "suite")
    assert again == suite
    assert again.fingerprint == suite.fingerprint
    assert (
        Suite.read(yaml.safe_dump(suite.to_dict(), width=10**6).encode(), "suite").fingerprint
        == suite.fingerprint
    )


def test_fingerprints_know_what_decides_an_outcome() -> None:
    case = Suite.parse([CASE]).cases[0]
    for other in ({"prompt": "x"}, {"files": {"a": "b"}}, {"checks": [{"contains": "bye"}]}):
        assert Suite.parse([CASE | other]).cases[0].fingerprint != case.fingerprint
    for other in ({"tags": ["x"]}, {"held_out": True}, {"reference": "hello"}, {"id": "two"}):
        assert Suite.parse([CASE | other]).cases[0].fingerprint == case.fingerprint
    halves = [Suite.parse([CASE | {"held_out": side}]).fingerprint for side in (True, False)]
    assert len({*halves, Suite.parse([CASE | {"id": "two"}]).fingerprint}) == 3


# What is wrong is said, with its place and what to do.

FIELDS_OF_OURS = (
    "checks, evidence, expected_output, files, gpu, group, held_out, id, max_output_tokens, max_words,"
    " mcp_servers, metadata, output_file, outputs,"
    " prompt, reference, right, tags, tests, wrong"
)
WRONG: dict[str, tuple[object, str, str]] = {
    "an empty list": ([], "s: no cases", "Add at least one case."),
    "empty cases": ({"cases": []}, "s: no cases", "Add at least one case."),
    "not a suite": (
        {"questions": []},
        "s: not a suite",
        "A suite is a list of cases, or a mapping with a list under `cases:`.",
    ),
    "cases a mapping": ({"cases": {"one": CASE}}, "s: cases is not a list of cases", ""),
    "checks a mapping": (
        {"cases": [CASE], "checks": {"contains": "x"}},
        "s: checks: Input should be a valid list, not",
        "",
    ),
    "an unknown field beside the cases": (
        {"cases": [CASE], "check": []},
        "s: unknown field 'check'",
        "Did you mean 'checks'?",
    ),
    "a case that is text": (
        ["hello"],
        "s: case 1: expected a case, got 'hello'",
        "A case needs a prompt and checks.",
    ),
    "no prompt": ([{"id": "x", "checks": [{"contains": "y"}]}], "s: case 1 ('x'): no prompt", ""),
    "a blank prompt": ([CASE | {"prompt": " \n"}], "s: case 1 ('one'): the prompt is empty", ""),
    "a prompt that is a number": (
        [CASE | {"prompt": 5}],
        "s: case 1 ('one'): prompt: Input should be a valid string, not 5",
        "Put it in quotes.",
    ),
    "an unknown field": (
        [CASE | {"promt": "x"}],
        "s: case 1 ('one'): unknown field 'promt'",
        "Did you mean 'prompt'?",
    ),
    "a field like no other": (
        [CASE | {"zzz": "x"}],
        "s: case 1 ('one'): unknown field 'zzz'",
        f"Fields: {FIELDS_OF_OURS}.",
    ),
    "a right answer that is none": (
        [CASE | {"right": [{"do": "echo"}]}],
        "s: case 1 ('one'): right: an answer must be text, or a script written as `run: COMMAND`",
        "",
    ),
    "no checks": (
        [{"id": "x", "prompt": "y"}],
        "s: case 1 ('x'): no checks",
        "Say what a right answer contains, for example `contains: text`.",
    ),
    "an unknown check for all": (
        {"cases": [CASE], "checks": [{"regx": "x"}]},
        "s: checks[0]: no check named 'regx'",
        "Did you mean 'regex'",
    ),
    "upstream's empty text": (
        [{"input": "x", "expected": {"contains": ""}}],
        "s: case 1: expected.contains is empty",
        "Every answer contains an empty string.",
    ),
    "upstream's missing expectation": ([{"input": "x"}], "s: case 1: no checks", ""),
    "upstream's unknown validator": (
        [{"input": "x", "validator": "jsn_schema"}],
        "s: case 1: no check named 'jsn_schema'",
        "Did you mean 'json_schema'?",
    ),
    "upstream's files as a list": (
        [{"input": "x", "expected": "y", "context": {"files": ["a"]}}],
        "s: case 1: context.files must map file names to text",
        'For example {"a.txt": "text"}.',
    ),
    "the same id twice": (
        [CASE, CASE | {"id": "two"}, CASE],
        "s: cases 1 and 3 have the same id 'one'",
        "Give each case its own id.",
    ),
    "the same case without an id twice": (
        [nameless(), nameless()],
        "-say-hello-friend-mine-today'",
        "",
    ),
    "an empty id": (
        [CASE | {"id": " "}],
        "s: case 1 (' '): '' is not a valid id",
        "Use 1 to 200 printable characters.",
    ),
    "an id that is true": ([CASE | {"id": True}], "s: case 1: id.", ""),
    "held_out as text": (
        [CASE | {"held_out": "yes"}],
        "s: case 1 ('one'): held_out: Input should be a valid boolean, not 'yes'",
        "",
    ),
    "tags as text": (
        [CASE | {"tags": "a"}],
        "s: case 1 ('one'): tags: Input should be a valid list, not 'a'",
        "",
    ),
    "a path out": (
        [CASE | {"files": {"../x": "y"}}],
        "s: case 1 ('one'): '../x' is not a path inside the workspace; use a plain relative one",
        "",
    ),
    "a path out, of windows": (
        [CASE | {"files": {"a\\..\\..\\x": "y"}}],
        "is not a path inside the workspace",
        "",
    ),
    "a file that is a number": (
        [CASE | {"files": {"a": 1}}],
        "s: case 1 ('one'): files.a: Input should be a valid",
        "",
    ),
    "a listed file that is not there": (
        [CASE | {"files": ["a.txt"]}],
        "s: case 1 ('one'): file 'a.txt' not found",
        "Put it next to the suite, or write its path relative to the skill's folder.",
    ),
    "no room for an answer": (
        {"cases": [CASE], "max_output_tokens": 0},
        "s: max_output_tokens: Input should be greater than or equal to 1, not 0",
        "",
    ),
    "not a number": (
        [CASE | {"checks": [{"json_schema": {"const": math.nan}}]}],
        "s: cannot be stored as JSON: Out of range float values are not JSON compliant",
        "",
    ),
    "half a character": (
        [CASE | {"prompt": "a\ud800"}],
        r"s: unpaired surrogate ('\ud800')",
        "Write the character itself",
    ),
    "text": ("hello", "s: not a suite", ""),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_a_usage_error_that_says_so(kind: str) -> None:
    said, message, hint = WRONG[kind]
    with pytest.raises(UsageError) as error:
        Suite.parse(said, "s")
    assert message in error.value.message
    if hint:
        assert error.value.hint.startswith(hint)


TEXTS: dict[str, tuple[str, bytes, str]] = {
    "NaN": ("s.json", b'{"cases": [{"prompt": NaN}]}', "s.json: NaN is not a JSON value"),
    "too large a number": (
        "s.json",
        b'[{"prompt": 1e999}]',
        "s.json: cannot be stored as JSON: Out of range float",
    ),
    "NaN in YAML": (
        "s.yaml",
        b"- prompt: x\n  seed: .NaN\n",
        "s.yaml: line 2: not valid YAML: .NaN is not a finite number",
    ),
    "broken JSON": (
        "s.json",
        b'[{"prompt": "x"\n "checks"}]',
        "s.json: line 2: not valid JSON: Expecting ',' delimiter",
    ),
    "a field twice in JSON": (
        "s.json",
        b'[{"id": 1, "id": 2}]',
        "s.json: duplicate field 'id' in one object",
    ),
    "a field twice in YAML": (
        "s.yaml",
        b"- id: 1\n  id: 2\n",
        "s.yaml: line 2: not valid YAML: 'id' appears twice",
    ),
    "tabs": (
        "s.yaml",
        b"cases:\n\t- prompt: x\n",
        "s.yaml: line 2: not valid YAML: found character '\\t'",
    ),
    "an empty file": ("s.yaml", b"", "s.yaml: not a suite"),
    "not UTF-8": ("s.yaml", b"- prompt: caf\xe9\n", "s.yaml: not UTF-8 text (byte 13)"),
    "half a character in JSON": (
        "s.json",
        b'[{"prompt": "\\ud800"}]',
        "s.json: unpaired surrogate",
    ),
    "an object of Python": (
        "s.yaml",
        b"- !!python/object/apply:os.getcwd []\n",
        "could not determine a constructor",
    ),
    "a set": ("s.yaml", b"cases: !!set {a}\n", "s.yaml: line 1: not valid YAML: unknown tag 'set'"),
    "a list for a name": (
        "s.yaml",
        b"- ? [a]\n  : b\n",
        "s.yaml: line 1: not valid YAML: a key is not plain",
    ),
    "an alias of itself": (
        "s.yaml",
        b"cases: &c [*c]\n",
        "s.yaml: line 1: not valid YAML: nested more than 100",
    ),
    "a number of five thousand digits": (
        "s.yaml",
        b"- id: " + b"9" * 5000,
        "not valid YAML: Exceeds the limit",
    ),
    "deep YAML": (
        "s.yaml",
        b"{a: " * 5000,
        "s.yaml: line 1: not valid YAML: nested more than 100 levels deep",
    ),
    "deep JSON": ("s.json", b"[" * 100_000, "s.json: nested too deeply"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_file_that_cannot_be_read_says_where(tmp_path: Path, kind: str) -> None:
    name, data, message = TEXTS[kind]
    with pytest.raises(UsageError) as error:
        Suite.load(written(tmp_path / name, data))
    assert message in error.value.message
    assert error.value.message.startswith(str(tmp_path / name))


def test_aliases_of_aliases_do_not_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(UsageError, match="expands to more than 1,000,000 values"):
        Suite.load(written(tmp_path / "suite.yaml", "\n".join(lines)))


def test_files_that_are_no_suite_are_usage_errors(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "none.yaml", "No such file or directory"),
        (tmp_path, ": not a folder that test cases can be read from"),
        (tmp_path / ("x" * 5000), "File name too long"),
        ("a\0b", "the path contains a null byte"),
    ):
        with pytest.raises(UsageError, match=words):
            Suite.load(path)
    large = tmp_path / "large.yaml"
    large.touch()
    os.truncate(large, 20_000_001)
    with pytest.raises(UsageError, match=": larger than 20 MB"):
        Suite.load(large)


def test_listed_files_are_read_from_inside_the_skill_only(tmp_path: Path) -> None:
    written(tmp_path / "secret.txt", "secret")
    folder = tmp_path / "my-skill"
    written(folder / "binary.dat", b"\xff\xfe")
    (folder / "round").symlink_to("round")
    (folder / "out.txt").symlink_to("../secret.txt")
    for name, words in (
        ("../secret.txt", "is not a path inside the workspace"),
        ("out.txt", "file 'out.txt' not found"),
        ("round", "file 'round' not found"),
        ("x" * 5000, "not found"),
        ("binary.dat", "the file 'binary.dat' is not UTF-8 text"),
    ):
        with pytest.raises(UsageError, match=words):
            Suite.load(
                written(folder / "evals" / "evals.json", {"evals": [CASE | {"files": [name]}]})
            )
