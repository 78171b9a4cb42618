"""Malformed input of every kind ends in exit code 2 and one clear message, never in a traceback."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, Upskill, spawn, write_script, write_skill
from upskill import Suite
from upskill.errors import UsageError
from upskill.traces.formats import read_trace

HEAD = "name: greeter\ndescription: Greets people.\n"
SUITE: list[dict[str, Any]] = [{"id": "one", "prompt": "Greet.", "checks": [{"contains": "ahoy"}]}]
Kind = tuple[Callable[[Path], None], str]


def doc(head: str = HEAD, body: str = "Say ahoy.\n") -> str:
    return f"---\n{head}---\n{body}"


def one_message(done: Done, words: str) -> None:
    """Exit code 2, nothing on standard output, one message with these words and at most one hint."""
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    lines = done.err.rstrip("\n").split("\n")
    assert lines[0].startswith("upskill: ")
    assert len(lines) <= 2, done.err
    assert all(line.startswith("  ") for line in lines[1:])
    assert "this is a bug" not in done.err
    assert words in lines[0]
    assert len(lines[0]) < 500


@pytest.fixture
def model(home: Path) -> str:
    return write_script(home / "script.json")


@pytest.fixture
def skill(home: Path) -> Path:
    return write_skill(home / "greeter")


# Skills. Each builder changes a good skill in the folder it is given.


def manifest(said: str | bytes) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        (folder / "SKILL.md").write_bytes(said if isinstance(said, bytes) else said.encode())

    return build


def linked(name: str, target: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).symlink_to(target)


def replaced_by(build: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else under the skill's name."""

    def replace(folder: Path) -> None:
        folder.rename(folder.parent / "gone")
        build(folder)

    return replace


def manifest_links_to_itself(folder: Path) -> None:
    (folder / "SKILL.md").unlink()
    (folder / "SKILL.md").symlink_to("SKILL.md")


def large_asset(folder: Path) -> None:
    (folder / "data.bin").touch()
    os.truncate(folder / "data.bin", 300_000_000)


def name_that_is_not_utf8(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).touch()


LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)

SKILLS: dict[str, Kind] = {
    "no SKILL.md": (lambda folder: (folder / "SKILL.md").unlink(), "greeter: no SKILL.md"),
    "SKILL.md links to itself": (
        manifest_links_to_itself,
        "SKILL.md: this symbolic link is part of a loop",
    ),
    "the folder is a file": (
        replaced_by(lambda path: path.write_text("x")),
        "greeter: not a folder",
    ),
    "the folder is missing": (replaced_by(lambda path: None), "greeter: no such folder"),
    "the folder links to itself": (
        replaced_by(lambda path: path.symlink_to("greeter")),
        "greeter: ",
    ),
    "a link in a circle": (linked("loop", "loop"), "loop: this symbolic link is part of a loop"),
    "a dangling link": (
        linked("gone.md", "nowhere.md"),
        "gone.md: this symbolic link points to a missing file (nowhere.md)",
    ),
    "a link out of the folder": (
        linked("out", "../script.json"),
        "out: this symbolic link points outside the skill",
    ),
    "a body of 50 MB": (
        lambda folder: os.truncate(folder / "SKILL.md", 50_000_000),
        ": 50.0 MB; the limit for SKILL.md is",
    ),
    "an asset of 300 MB": (large_asset, "greeter: too large for a skill (more than 256 MB"),
    "a FIFO": (lambda folder: os.mkfifo(folder / "pipe"), "pipe: neither a file nor a folder"),
    "a file name that is not UTF-8": (name_that_is_not_utf8, "greeter: a file's name is not UTF-8"),
    "zero bytes": (manifest(b"\0" * 100), "SKILL.md: not a text file: it contains NUL bytes"),
    "a picture": (
        manifest(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe"),
        "SKILL.md: not UTF-8 text (byte 0)",
    ),
    "UTF-16": (manifest(doc().encode("utf-16")), "SKILL.md: not UTF-8 text (byte 0)"),
    "a zero byte in the body": (manifest(doc(body="a\0b")), "it contains NUL bytes"),
    "no frontmatter": (manifest("# Title\n"), "SKILL.md: no frontmatter at the start"),
    "frontmatter not closed": (
        manifest(f"---\n{HEAD}\n# Title\n"),
        "SKILL.md: the frontmatter is not closed",
    ),
    "empty frontmatter": (
        manifest("---\n---\nBody\n"),
        "the frontmatter is not a list of `field: value` lines",
    ),
    "frontmatter a list": (
        manifest(doc("- a\n- b\n")),
        "the frontmatter is not a list of `field: value` lines",
    ),
    "broken YAML": (manifest(doc("name: [greeter\n")), "SKILL.md: line 3: not valid YAML: "),
    "tabs for spaces": (
        manifest(doc(HEAD + "metadata:\n\ta: b\n")),
        "SKILL.md: line 5: not valid YAML: ",
    ),
    "a quote left open": (
        manifest(doc("name: greeter\ndescription: 'x\n")),
        "not valid YAML: found unexpected end",
    ),
    "no description": (manifest(doc("name: greeter\n")), "SKILL.md: no description"),
    "an anchor that refers to itself": (
        manifest(doc(HEAD + "metadata: &m\n  again: *m\n")),
        ": nested more than 20 levels deep, or refers to itself",
    ),
    "an unknown alias": (
        manifest(doc(HEAD + "license: *x\n")),
        "not valid YAML: found undefined alias 'x'",
    ),
    "a billion laughs": (manifest(doc(HEAD + LAUGHS)), "expands to more than 10,000 values"),
    "nested a thousand deep": (
        manifest(doc(HEAD + "metadata: " + "[" * 1000 + "\n")),
        ": nested more than 100 levels",
    ),
    "an escape that is no character": (
        manifest(doc('name: greeter\ndescription: "\\U00110000"\n')),
        "SKILL.md: not valid YAML: ",
    ),
    "an alias inside itself": (
        manifest(doc("name: greeter\ndescription: &a *a\n")),
        "SKILL.md: line 3: not valid YAML: ",
    ),
}


@pytest.mark.parametrize("kind", SKILLS)
def test_a_malformed_skill_is_one_message(
    upskill: Upskill, skill: Path, model: str, kind: str
) -> None:
    build, words = SKILLS[kind]
    build(skill)
    one_message(upskill("eval", skill.name, "-m", model), words)
    assert not Path("runs").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_one_message(upskill: Upskill, skill: Path, model: str) -> None:
    (skill / "secret.md").write_text("x")
    (skill / "secret.md").chmod(0)
    one_message(
        upskill("eval", skill.name, "-m", model), "secret.md: cannot be read: Permission denied"
    )


# Suites.

CASE = SUITE[0]
SUITES: dict[str, tuple[str, bytes | str | list[Any] | dict[str, Any] | None, str]] = {
    "NaN": (
        "s.json",
        '[{"id": "a", "prompt": "x", "checks": [{"max_length": NaN}]}]',
        "NaN is not a JSON value",
    ),
    "NaN in YAML": (
        "s.yaml",
        "- {id: a, prompt: x, checks: [{max_length: .nan}]}",
        "line 1: not valid YAML: .nan is not",
    ),
    "infinite": (
        "s.json",
        '[{"id": "a", "prompt": "x", "checks": [{"max_length": 1e999}]}]',
        "cannot be stored as JSON",
    ),
    "no JSON": ("s.json", "{hello}", "s.json: line 1: not valid JSON: "),
    "JSON cut off": ("s.json", json.dumps(SUITE)[:-10], "s.json: line 1: not valid JSON: "),
    "broken YAML": ("s.yaml", "cases:\n  - prompt: 'x\n", "s.yaml: line 3: not valid YAML: "),
    "tabs in YAML": (
        "s.yaml",
        "cases:\n\t- prompt: x\n",
        "s.yaml: line 2: not valid YAML: found character '\\t'",
    ),
    "a key twice in JSON": (
        "s.json",
        '{"cases": [], "cases": []}',
        "duplicate field 'cases' in one object",
    ),
    "a key twice in YAML": (
        "s.yaml",
        "cases: []\ncases: []\n",
        "s.yaml: line 2: not valid YAML: 'cases' appears twice",
    ),
    "a billion laughs": ("s.yaml", LAUGHS, "expands to more than 1,000,000 values"),
    "an alias of itself": ("s.yaml", "cases: &c\n  - *c\n", "or refers to itself"),
    "an object of Python": (
        "s.yaml",
        "- !!python/object/apply:os.system [true]\n",
        "could not determine a constructor",
    ),
    "nested without end": ("s.json", "[" * 100_000, "s.json: nested too deeply"),
    "brackets without end in YAML": (
        "s.yaml",
        f"cases:\n  - prompt: {'[' * 3000}",
        "s.yaml: line 2: not valid YAML: nested more than 100 levels deep",
    ),
    "a bare carriage return": (
        "s.csv",
        "prompt,expected\nSay\rhi,hi\n",
        "line 2: not valid CSV: a carriage return is",
    ),
    "text": ("s.json", '"hello"', "s.json: not a suite"),
    "an empty file": ("s.yaml", "", "s.yaml: not a suite"),
    "an empty list": ("s.json", [], "s.json: no cases"),
    "cases is a mapping": (
        "s.json",
        {"cases": {"a": CASE}},
        "s.json: cases is not a list of cases",
    ),
    "a case is text": ("s.json", ["hello"], "s.json: case 1: expected a case, got 'hello'"),
    "the prompt is a number": (
        "s.json",
        [CASE | {"prompt": 5}],
        "prompt: Input should be a valid string, not 5",
    ),
    "the prompt is empty": (
        "s.json",
        [CASE | {"prompt": ""}],
        "s.json: case 1 ('one'): the prompt is empty",
    ),
    "the prompt is half a character": (
        "s.json",
        [CASE | {"prompt": "\ud800"}],
        "unpaired surrogate",
    ),
    "no prompt": (
        "s.json",
        [{"id": "a", "checks": [{"contains": "x"}]}],
        "s.json: case 1 ('a'): no prompt",
    ),
    "an unknown field": (
        "s.json",
        [CASE | {"promt": "x"}],
        "case 1 ('one'): unknown field 'promt'",
    ),
    "a path out": (
        "s.json",
        [CASE | {"files": {"../../x": "y"}}],
        "'../../x' is not a path inside the workspace",
    ),
    "a path twice": (
        "s.json",
        [CASE | {"files": {"a/./b": "x", "a/b": "y"}}],
        "two of the `files` are the same file",
    ),
    "millions of values": ("s.json", "[" + "1," * 6_000_000, "more than 5,000,000 values"),
    "a listed file that is missing": (
        "s.json",
        [CASE | {"files": ["no.txt"]}],
        "file 'no.txt' not found",
    ),
    "no checks": ("s.json", [{"id": "a", "prompt": "x"}], "s.json: case 1 ('a'): no checks"),
    "an empty contains": (
        "s.json",
        [CASE | {"checks": [{"contains": ""}]}],
        "contains.text: empty",
    ),
    "an empty expectation": (
        "s.json",
        [{"input": "x", "expected": {"contains": []}}],
        "expected.contains is empty",
    ),
    "an unknown check": (
        "s.json",
        [CASE | {"checks": [{"contain": "x"}]}],
        "no check named 'contain'",
    ),
    "a bad regular expression": (
        "s.json",
        [CASE | {"checks": [{"regex": "("}]}],
        "'(' is not a valid regular expression",
    ),
    "a bad schema": (
        "s.json",
        [CASE | {"checks": [{"json_schema": {"type": 5}}]}],
        "not a valid JSON Schema: 5 is not valid",
    ),
    "a negative length": (
        "s.json",
        [CASE | {"checks": [{"max_length": -5}]}],
        "greater than or equal to 1, not -5",
    ),
    "the same id twice": ("s.json", [CASE, CASE], "s.json: cases 1 and 2 have the same id 'one'"),
    "held_out is text": (
        "s.json",
        [CASE | {"held_out": "no"}],
        "held_out: Input should be a valid boolean, not 'no'",
    ),
    "binary": ("s.json", b"\x89PNG\r\n\x1a\n\xff", "s.json: not UTF-8 text (byte 0)"),
    "UTF-16": ("s.json", json.dumps(SUITE).encode("utf-16"), "s.json: not UTF-8 text (byte 0)"),
    "missing": ("s.json", None, "s.json: No such file or directory"),
    "a judge that is not named": ("s.json", [CASE | {"checks": [{"judge": "x"}]}], "needs a judge"),
}


@pytest.mark.parametrize("kind", SUITES)
def test_a_malformed_suite_is_one_message(
    upskill: Upskill, skill: Path, model: str, kind: str
) -> None:
    name, said, words = SUITES[kind]
    if said is not None:
        text = said if isinstance(said, bytes | str) else json.dumps(said)
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    one_message(upskill("eval", skill.name, "-t", name, "-m", model), words)
    assert not Path("runs").exists()


def test_a_folder_as_a_suite_is_one_message(upskill: Upskill, skill: Path, model: str) -> None:
    words = "greeter: not a folder that test cases can be read from"
    one_message(upskill("eval", skill.name, "-t", "greeter", "-m", model), words)


def test_a_skill_without_a_suite_is_one_message(upskill: Upskill, skill: Path, model: str) -> None:
    (skill / "evals" / "suite.json").unlink()
    one_message(upskill("eval", skill.name, "-m", model), "greeter: no test cases")


def test_a_malformed_suite_inside_a_skill_is_one_message(
    upskill: Upskill, skill: Path, model: str
) -> None:
    (skill / "evals" / "suite.json").write_text("{")
    one_message(upskill("eval", skill.name, "-m", model), "suite.json: line 1: not valid JSON")
    (skill / "evals" / "suite.json").unlink()
    (skill / "skill_meta.json").write_text('{"tests": "none"}')
    one_message(
        upskill("eval", skill.name, "-m", model), "skill_meta.json: tests is not a list of cases"
    )


# Settings, models and options.


def test_a_settings_file_that_is_missing_is_one_message(
    upskill: Upskill, skill: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSKILL_CONFIG", "nowhere.yaml")
    one_message(upskill("eval", skill.name, "-m", model), "nowhere.yaml: No such file or directory")


MODELS = {
    "haikoo": "'haikoo' is not a model alias and has no provider",
    "nobody:model": "'nobody:model': unknown provider 'nobody'",
    "anthropic:": "'anthropic:' has a provider but no model",
    "scripted:": "'scripted:' has a provider but no model",
    " ": "the model name is empty",
    "scripted:nowhere.yaml": "scripted:nowhere.yaml: No such file or directory",
    "scripted:greeter": "scripted:greeter: a folder, not a file",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_none_is_one_message(upskill: Upskill, skill: Path, name: str) -> None:
    one_message(upskill("eval", skill.name, "-m", name), MODELS[name])


SCRIPTS = {
    "nothing": ("", "must be a list of rules"),
    "text": ("hello", "must be a list of rules"),
    "broken": ("- answer: 'x", "not valid YAML: found unexpected end of stream"),
    "binary": (b"\xff\xfe", ": not UTF-8 text"),
    "unknown field": ("- anser: x", "rule 1: anser: Extra inputs are not permitted"),
    "a number": ("- answer: x\n- answer: 5", "rule 2: answer: Input should be a valid string"),
    "a rule that is text": ("- hello", "rule 1: "),
    "a rule without an answer": (
        "- when: x",
        "rule 1: needs `answer`, `answers`, `calls`, `turns`, `stop` or `error`",
    ),
    "a bad pattern": (
        "- {match: '(', answer: x}",
        "rule 1: match: '(' is not a valid regular expression: missing )",
    ),
    "nested without end": ("[" * 1000, ": nested more than 100 levels deep"),
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_malformed_script_is_one_message(upskill: Upskill, skill: Path, kind: str) -> None:
    said, words = SCRIPTS[kind]
    Path("bad.yaml").write_bytes(said if isinstance(said, bytes) else said.encode())
    done = upskill("eval", skill.name, "-m", "scripted:bad.yaml")
    one_message(done, words)
    assert "scripted:bad.yaml: " in done.err


OPTIONS = {
    "--repeats 0": "--repeats",
    "--repeats many": "--repeats",
    "--set temperature=-1": "temperature: Input should be greater than or equal to 0",
    "--set temperature=hot": "temperature: Input should be a valid number",
    "--set max_output_tokens=0": "max_output_tokens",
    "--set temprature=1": "no setting named 'temprature'",
    "--set temperature": "the value is missing",
    "--temperature 1": "--temperature is a setting: use --set temperature=VALUE",
    "--concurrency 0": "--concurrency",
    "--set timeout=0": "timeout",
    "--seed x": "--seed",
    "--judge": "--judge",
    "--no-such-option": "--no-such-option",
    "--tests": "--tests",
    "--fresh": "--fresh is now --redraw",
}


@pytest.mark.parametrize("options", OPTIONS)
def test_an_option_that_makes_no_sense_is_one_message(
    upskill: Upskill, skill: Path, model: str, options: str
) -> None:
    one_message(upskill("eval", skill.name, "-m", model, *options.split()), OPTIONS[options])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["evla"], "no command named 'evla'"),
        (["eval"], "Missing argument 'SKILL'"),
        (["list", "-d", "nowhere"], "nowhere: no such folder"),
        (["show", "last", "--store", "nowhere"], "nowhere: no such folder"),
        (["install", "nowhere", "--to", "codex"], "nowhere: no such folder"),
        (["benchmark", "greeter"], "no model given"),
        (["validate"], "Missing argument 'SKILLS...'"),
    ],
)
def test_a_command_that_makes_no_sense_is_one_message(
    upskill: Upskill, skill: Path, argv: list[str], words: str
) -> None:
    one_message(upskill(*argv), words)


def test_a_path_that_cannot_be_is_one_message(upskill: Upskill, skill: Path, model: str) -> None:
    one_message(
        upskill("eval", f"{'x' * 300}/SKILL.md", "-m", model), "SKILL.md: File name too long"
    )
    one_message(upskill("eval", "x" * 300, "-m", model), "xxx: no such folder")
    one_message(
        upskill("eval", "greeter/SKILL.md/SKILL.md", "-m", model),
        "greeter/SKILL.md/SKILL.md: no such folder",
    )


def test_a_process_of_its_own_says_the_same(home: Path, skill: Path, model: str) -> None:
    (skill / "SKILL.md").write_bytes(b"\x89PNG\xff")
    one_message(spawn("eval", skill.name, "-m", model), "SKILL.md: not UTF-8 text (byte 0)")


def test_validate_says_the_same_of_a_skill_that_does_not_load(
    upskill: Upskill, skill: Path
) -> None:
    (skill / "SKILL.md").write_text("no frontmatter")
    done = upskill("validate", skill.name)
    assert (done.code, done.err) == (2, "")
    assert "greeter: invalid\n  error: greeter/SKILL.md: no frontmatter at the start" in done.out


# What looks odd and is usable, works.

BODY = "Say ahoy, always."
USABLE: dict[str, tuple[str, bytes]] = {
    "a byte order mark": ("greeter", doc(body=BODY).encode("utf-8-sig")),
    "Cyrillic": ("привет", doc("name: привет\ndescription: d\n", BODY).encode()),
    "emoji": ("👋", doc("name: 👋\ndescription: d\n", BODY).encode()),
    "spaces": ("my skill", doc("name: my skill\ndescription: d\n", BODY).encode()),
    "flow style": (
        "greeter",
        doc("{name: greeter, description: d, metadata: {a: [1]}}\n", BODY).encode(),
    ),
    "a link inside": ("greeter", doc(body=BODY).encode()),
}


@pytest.mark.parametrize("kind", USABLE)
def test_a_skill_that_a_client_would_load_works(
    upskill: Upskill, home: Path, model: str, kind: str
) -> None:
    name, data = USABLE[kind]
    folder = write_skill(home / name)
    (folder / "SKILL.md").write_bytes(data)
    if kind == "a link inside":
        (folder / "README.md").symlink_to("SKILL.md")
        (folder / "self").symlink_to(".")
    done = upskill("eval", name, "-m", model, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["models"][0]["skill"]["passed"] == 4
    assert done.json["models"][0]["baseline"]["passed"] == 0
    assert (upskill("validate", name).code == 0) is (kind in ("Cyrillic", "a link inside"))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_suite_from_another_system_works(
    upskill: Upskill, skill: Path, model: str, end: str, mark: str
) -> None:
    text = json.dumps(SUITE, indent=1).replace("\n", end)
    Path("s.json").write_bytes((mark + text).encode())
    Path("s.yaml").write_bytes(
        (mark + f"- id: one{end}  prompt: 问候{end}  checks: [contains: ahoy]{end}").encode()
    )
    for name in ("s.json", "s.yaml"):
        assert upskill("eval", skill.name, "-t", name, "-m", model, "-q").code == 0


DIGITS = "9" * 400
DEEP = "[" * 500 + "]" * 500
LOG = {"id": 1, "input": [{"content": "attachment://x"}] * 500, "target": "b"}
HOSTILE_SUITES = {
    "400 digits": (f"[{DIGITS}]", "more than 300 digits"),
    "deep": (DEEP, "nested too deeply"),
    "a long first line": ("," * 500_000 + "[", "YAML"),
    "combinations": (
        json.dumps(
            {
                "prompts": ["{{a}}{{b}}"],
                "tests": [
                    {
                        "vars": {"a": ["x" * 100_000 + str(n) for n in range(100)], "b": [*"0123"]},
                        "assert": [{"type": "contains", "value": "a"}],
                    }
                ],
            }
        ),
        "its cases are larger than 20 MB",
    ),
    "attachments": (
        json.dumps({"eval": {}, "samples": [LOG | {"attachments": {"x": "y" * 500_000}}]}),
        "more than 200 MB of attachments",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE_SUITES)
def test_a_hostile_suite_is_refused_in_a_message(home: Path, kind: str) -> None:
    text, said = HOSTILE_SUITES[kind]
    Path("one").write_text(text)
    with pytest.raises(UsageError, match=said):
        Suite.load("one")
    with suppress(UsageError):
        read_trace("one")


def test_a_database_that_never_ends_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    columns = "x AS id, x AS title, x AS directory, 'soon' AS time_updated, NULL AS parent_id"
    with closing(sqlite3.connect("opencode.db")) as database:
        database.execute(f"CREATE VIEW session AS {endless} SELECT {columns} FROM n")
        database.execute("CREATE TABLE message (id, session_id, time_created, data)")
        database.execute("CREATE TABLE part (id, message_id, data)")
    monkeypatch.setattr("upskill.traces.formats.MAX_QUERY_TURNS", 2)
    with pytest.raises(UsageError, match="interrupted"):
        read_trace("opencode.db")
