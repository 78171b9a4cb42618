"""Each kind of check, passing and failing with its reason, in its short and its spelled-out form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upskill import Evidence, Finding, Trace, UsageError
from upskill.checks import CHECKS, Check, read_check
from upskill.errors import CheckError
from upskill.models import Reply, Request
from upskill.traces import Step


def evidence(answer: str, **more: Any) -> Evidence:
    return Evidence(Trace((Step("assistant", answer),)), **more)


async def look(line: dict[str, Any], answer: str) -> Finding:
    return await read_check(line, "suite.yaml").check.look(evidence(answer))


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["a"],
    "properties": {"a": {"$ref": "#/$defs/count"}},
    "$defs": {"count": {"type": "integer"}},
}
FITS = "the answer is JSON that fits the schema"

LOOKS: list[tuple[dict[str, Any], str, bool, str]] = [
    ({"contains": "hello"}, "Oh, HELLO there", True, "the answer has 'hello'"),
    ({"contains": "hello"}, "bye", False, "the answer lacks 'hello'"),
    ({"contains": "STRASSE"}, "in der Straße", True, "the answer has 'STRASSE'"),
    ({"contains": ["a", "b", "c"]}, "a", False, "the answer lacks 'b', 'c'"),
    ({"contains": ["a", "b"]}, "ba", True, "the answer has 'a', 'b'"),
    ({"contains": {"text": "Hello", "ignore_case": False}}, "hello", False, "the answer lacks 'Hello'"),
    ({"contains": {"text": ["Hello"]}}, "hello", True, "the answer has 'Hello'"),
    ({"contains_any": ["a", "b", "c"]}, "cab", True, "the answer has 'a', 'b', 'c'"),
    ({"contains_any": ["a", "b"]}, "B!", True, "the answer has 'b'"),
    ({"contains_any": ["a", "b"]}, "c", False, "the answer has none of 'a', 'b'"),
    ({"contains_any": {"text": "A", "ignore_case": False}}, "a", False, "the answer has none of 'A'"),
    ({"not_contains": "sorry"}, "Sorry, no", False, "the answer has 'sorry', which it must not"),
    ({"not_contains": ["sorry", "cannot"]}, "sure", True, "the answer is free of 'sorry', 'cannot'"),
    ({"not_contains": {"text": "Sorry", "ignore_case": False}}, "sorry", True, "the answer is free of 'Sorry'"),
    ({"equals": "42"}, " 42\n", True, "the answer is '42'"),
    ({"equals": "42"}, "42.", False, "the answer is not '42'"),
    ({"equals": {"text": "Yes", "ignore_case": True}}, "YES", True, "the answer is 'Yes'"),
    ({"equals": "Yes"}, "YES", False, "the answer is not 'Yes'"),
    ({"starts_with": "feat:"}, "\n feat: add", True, "the answer starts with 'feat:'"),
    ({"starts_with": " feat:"}, "feat: add", True, "the answer starts with ' feat:'"),
    ({"starts_with": "feat:"}, "a feat: add", False, "the answer does not start with 'feat:'"),
    ({"starts_with": {"text": "FEAT", "ignore_case": True}}, "feat: add", True, "the answer starts with 'FEAT'"),
    ({"regex": r"^b+$"}, "a\nbbb\nc", True, "the answer matches '^b+$' with 'bbb'"),
    ({"regex": r"^b"}, "ab", False, "the answer does not match '^b'"),
    ({"regex": "B"}, "b", False, "the answer does not match 'B'"),
    ({"regex": {"pattern": "B", "ignore_case": True}}, "b", True, "the answer matches 'B' with 'b'"),
    ({"regex": {"pattern": "^b", "multiline": False}}, "a\nb", False, "the answer does not match '^b'"),
    ({"regex": "[[a]"}, "[", True, "the answer matches '[[a]' with '['"),  # Python warns of this one; we do not
    ({"not_regex": r"\d"}, "a1", False, r"the answer matches '\\d' with '1', which it must not"),
    ({"not_regex": r"\d"}, "a", True, r"the answer does not match '\\d'"),
    ({"min_length": 3}, " ab ", False, "the answer has 2 characters, at least 3 wanted"),
    ({"min_length": {"characters": 2}}, "ab", True, "the answer has 2 characters, at least 2 wanted"),
    ({"max_length": 3}, "abcd", False, "the answer has 4 characters, at most 3 wanted"),
    ({"max_length": {"characters": 4}}, "abcd\n\n", True, "the answer has 4 characters, at most 4 wanted"),
    ({"json_schema": SCHEMA}, '{"a": 1}', True, FITS),
    ({"json_schema": {"schema": SCHEMA}}, '{"a": 1}', True, FITS),
    ({"json_schema": SCHEMA}, 'Here:\n```json\n{"a": 1}\n```\nDone.', True, FITS),
    ({"json_schema": SCHEMA}, '```\n{"a": 1}\n```', True, FITS),
    (
        {"json_schema": SCHEMA},
        '{"a": "1"}',
        False,
        "the answer's JSON does not fit at $.a: '1' is not of type 'integer'",
    ),
    ({"json_schema": SCHEMA}, "[]", False, "the answer's JSON does not fit at $: [] is not of type 'object'"),
    ({"json_schema": SCHEMA}, "sorry", False, "the answer is not JSON: Expecting value: line 1 column 1 (char 0)"),
    ({"json_schema": SCHEMA}, "", False, "the answer is not JSON: Expecting value: line 1 column 1 (char 0)"),
    ({"json_schema": {"type": "number"}}, "NaN", False, "the answer is not JSON: NaN is not a value that JSON has"),
]


@pytest.mark.parametrize(("line", "answer", "passed", "reason"), LOOKS)
async def test_a_check_says_whether_and_why(line: dict[str, Any], answer: str, passed: bool, reason: str) -> None:
    assert await look(line, answer) == Finding(passed, reason)


async def test_two_fenced_blocks_are_not_one_answer() -> None:
    finding = await look({"json_schema": SCHEMA}, '```json\n{"a": 1}\n```\nor\n```json\n{"a": 2}\n```')
    assert not finding.passed


async def test_json_without_end_is_a_failure_and_not_a_crash() -> None:
    assert not (await look({"json_schema": SCHEMA}, "[" * 100_000)).passed
    assert not (await look({"json_schema": SCHEMA}, "9" * 5000)).passed


@pytest.mark.parametrize("name", sorted(set(CHECKS.names()) - {"judge", "not_contains", "not_regex", "max_length"}))
async def test_an_empty_answer_fails_every_check_that_asks_for_something(name: str) -> None:
    value: Any = {"min_length": 1, "json_schema": SCHEMA}.get(name, "x")
    assert not (await look({name: value}, "")).passed


def test_every_kind_of_check_is_tried_both_ways() -> None:
    tried = {(next(iter(line)), passed) for line, _, passed, _ in LOOKS}
    assert tried == {(name, passed) for name in CHECKS.names() if name != "judge" for passed in (True, False)}


# What a suite may not say.

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"regex": "("},
        "suite.yaml: regex.pattern: '(' is not a regular expression: missing ), unterminated subpattern at position 0",
        "",
    ),
    ({"not_regex": "*"}, "suite.yaml: not_regex.pattern: '*' is not a regular expression: nothing to repeat at", ""),
    ({"regex": ""}, "suite.yaml: regex.pattern: is empty, which decides nothing", ""),
    ({"contain": "x"}, "suite.yaml: no check is called 'contain'", "Did you mean 'contains'"),
    ({"zzz": "x"}, "suite.yaml: no check is called 'zzz'", "Known: contains, contains_any, equals,"),
    ({"json_schema": {"type": "objet"}}, "suite.yaml: json_schema.schema: not a JSON schema: 'objet' is not valid", ""),
    ({"json_schema": {"pattern": "("}}, "suite.yaml: json_schema.schema: not a JSON schema: '(' is not a 'regex'", ""),
    ({"json_schema": {}}, "suite.yaml: json_schema.schema: is empty, which decides nothing", ""),
    ({"json_schema": "x"}, "suite.yaml: json_schema.schema: Input should be a valid dictionary, not 'x'", ""),
    ({"json_schema": {"$ref": "#/a"}}, "suite.yaml: json_schema.schema: not a JSON schema: '#/a' leads nowhere", ""),
    (
        {"json_schema": {"items": [{"$ref": "http://example.org/s.json"}]}},
        "suite.yaml: json_schema.schema: not a JSON schema:",
        "",
    ),
    (
        {"json_schema": {"allOf": [{"$ref": "http://example.org/s.json"}]}},
        "suite.yaml: json_schema.schema: not a JSON schema: 'http://example.org/s.json' leads nowhere",
        "",
    ),
    ({"contains": ""}, "suite.yaml: contains.text: is empty, which decides nothing", ""),
    ({"equals": "\n"}, "suite.yaml: equals.text: is empty, which decides nothing", ""),
    ({"starts_with": ""}, "suite.yaml: starts_with.text: is empty, which decides nothing", ""),
    ({"judge": " "}, "suite.yaml: judge.statement: is empty, which decides nothing", ""),
    ({"contains": 5}, "suite.yaml: contains.text: Input should be a valid string, not 5", "Put it in quotes."),
    ({"contains": ["a", 5]}, "suite.yaml: contains.text: Input should be a valid string, not 5", "Put it in quotes."),
    ({"contains": None}, "suite.yaml: contains.text: Input should be a valid string, not None", ""),
    ({"contains": {"txt": "a"}}, "suite.yaml: contains: no field is called 'txt'", "Did you mean 'text'?"),
    (
        {"contains": {"text": "a", "ignore_cas": True}},
        "suite.yaml: contains: no field is called 'ignore_cas'",
        "Did you mean 'ignore_case'?",
    ),
    ({"regex": {"ignore_case": True}}, "suite.yaml: regex: has no pattern", "Fields: pattern, ignore_case, multiline."),
    ({"contains": {"text": "a", "ignore_case": "no"}}, "suite.yaml: contains.ignore_case: Input should be a valid", ""),
    ({"min_length": -1}, "suite.yaml: min_length.characters: Input should be greater than or equal to 1, not -1", ""),
    ({"max_length": 0}, "suite.yaml: max_length.characters: Input should be greater than or equal to 1, not 0", ""),
    ({"max_length": True}, "suite.yaml: max_length.characters: Input should be a valid integer, not True", ""),
    ({"max_length": "9"}, "suite.yaml: max_length.characters: Input should be a valid integer, not '9'", ""),
]


@pytest.mark.parametrize(("line", "message", "hint"), REFUSED)
def test_a_check_that_could_not_be_meant_is_refused(line: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        read_check(line, "suite.yaml")
    assert error.value.message.startswith(message)
    assert error.value.hint.startswith(hint)


def test_a_check_keeps_the_words_it_was_called_with() -> None:
    named = read_check({"contains": "hello"}, "suite.yaml")
    assert (named.name, named.written) == ("contains", "hello")
    assert named == read_check({"contains": "hello"}, "elsewhere")
    assert isinstance(named.check, Check)
    assert not named.check.needs_judge


# The judge.


class Judge:
    """Answers in a fixed way and keeps what it was asked."""

    def __init__(self, said: object) -> None:
        self.said = said
        self.asked: list[Request] = []

    async def ask(self, request: Request) -> Reply:
        self.asked.append(request)
        return Reply(self.said if isinstance(self.said, str) else json.dumps(self.said))


STATEMENT = {"judge": "The answer is kind."}


@pytest.mark.parametrize("passed", [True, False])
async def test_the_judge_decides_and_quotes(passed: bool) -> None:
    judge = Judge({"passed": passed, "reason": "it says please", "evidence": "please"})
    named = read_check(STATEMENT, "suite.yaml")
    assert named.check.needs_judge
    finding = await named.check.look(evidence("please", prompt="Ask.", ask=judge.ask))
    assert finding == Finding(passed, "judge: it says please (evidence: 'please')")
    (request,) = judge.asked
    assert [message.role for message in request.messages] == ["system", "user"]
    shown = json.loads(request.messages[1].text)
    assert shown == {"task": "Ask.", "answer": "please", "statement": "The answer is kind."}
    assert request.schema is not None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("yes", "the judge did not answer in the form asked for: 'yes'"),
        ({"passed": True}, "the judge did not answer in the form asked for"),
        ([1], "the judge did not answer in the form asked for"),
        ({"passed": "yes", "reason": "r", "evidence": "e"}, "the judge said neither true nor false: 'yes'"),
        ({"passed": None, "reason": "r", "evidence": "e"}, "the judge said neither true nor false: None"),
    ],
)
async def test_a_judge_that_makes_no_sense_is_an_error_and_not_a_failure(said: object, words: str) -> None:
    with pytest.raises(CheckError, match=words):
        await read_check(STATEMENT, "suite.yaml").check.look(evidence("please", ask=Judge(said).ask))


async def test_without_a_judge_there_is_no_verdict() -> None:
    with pytest.raises(CheckError, match="no judge model was named") as error:
        await read_check({"judge": {"statement": "The answer is kind."}}, "suite.yaml").check.look(evidence("please"))
    assert error.value.hint == "Name one with --judge-model."
