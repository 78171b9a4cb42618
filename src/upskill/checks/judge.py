"""Checks made by a model, which sees the task and what it grades, but not which arm it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from upskill.checks import Check, Evidence, Finding, Text
from upskill.checks.texts import Texts
from upskill.checks.workspace import Path, read_left
from upskill.errors import JudgeError
from upskill.models import Message, Reply, Request
from upskill.models.prompt import read_prompt
from upskill.plain import as_list, as_mapping, normal_form, object_schema

REFERENCE = "reference"  # stands for the reference of the case
MAX_FILE_CHARACTERS = 20_000  # characters of a file that the judge is shown
# A quotation has so many bytes, or is the whole text: "the" is in every answer. Bytes, because three characters of
# Chinese say more than three of English.
MIN_BYTES = 9
_SENTENCE: dict[str, Any] = {"type": "string", "maxLength": 400}
_MARKDOWN = re.compile(r"^[ \t]*(?:[-+>#]+|\d+[.)])[ \t]+|[*`_~]+", re.MULTILINE)
_FORMS = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-"})
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")


_GRADE = {"evidence": _SENTENCE, "reason": _SENTENCE, "passed": {"type": "boolean"}}
_GRADE_FORM = (
    "`evidence` (words copied from the answer as they stand), `reason` (one sentence) and `passed` (true or false;"
    " false without such words)"
)
PAIR = object_schema({"reason": _SENTENCE, "better": {"type": "string", "enum": ["A", "B", "tie"]}})
T = TypeVar("T", "list[Grade]", tuple[str, str])


def _statements(value: object) -> object:
    """A text that is a Markdown list is the statements in it."""
    lines = [line for line in value.splitlines() if line.strip()] if isinstance(value, str) else []
    return (
        [_ITEM.sub("", line, count=1).strip() for line in lines]
        if all(map(_ITEM.match, lines)) and lines
        else value
    )


class Judge(Check):
    """Passes when the judge model finds that this statement is true of the answer, or every statement of a `rubric`,
    with words that are really in the answer as evidence; or that the answer is `better_than` this text or the case's
    `reference`, with either one shown first. `on` says in what, and `ties` whether as good is good enough. `files` of
    the workspace are shown with the answer."""

    statement: Text | None = None
    rubric: Annotated[Texts, BeforeValidator(_statements)] | None = None
    better_than: Text | None = None
    on: Text = "how well it does the task"
    ties: bool = False
    files: list[Path] = Field(default_factory=list)

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Judge:
        questions = [self.statement, self.rubric, self.better_than]
        if sum(question is not None for question in questions) != 1:
            raise ValueError("needs exactly one of `statement`, `rubric` and `better_than`")
        if self.better_than is None and {"on", "ties"} & self.model_fields_set:
            raise ValueError("`on` and `ties` can only be used with `better_than`")
        if self.better_than is not None and self.files:
            raise ValueError(
                "`files` cannot be compared with another answer; describe them in a rubric"
            )
        return self

    @property
    def asks(self) -> int:
        return 2 if self.better_than is not None else 1

    @property
    def prompts(self) -> Sequence[str]:
        graded = "judge_rubric" if self.rubric is not None or self.files else "judge"
        return [read_prompt("upskill.checks", graded if self.better_than is None else "judge_pair")]

    @property
    def needs_sandbox(self) -> bool:
        return bool(self.files)

    @property
    def paths(self) -> Sequence[str]:
        return self.files

    @property
    def needs_reference(self) -> bool:
        return self.better_than == REFERENCE

    async def run(self, evidence: Evidence) -> Finding:
        if self.better_than is not None:
            other = evidence.reference if self.needs_reference else self.better_than
            return await _compare(evidence, other, self.on, ties=self.ties)
        files: dict[str, str] = {}
        for path in self.files:
            content = await read_left(evidence, path)
            if isinstance(content, Finding):
                return content
            files[path] = content
        if self.rubric is not None or files:
            return await _grade(evidence, self.rubric or [str(self.statement)], files)
        return await _affirm(evidence, str(self.statement))


async def _affirm(evidence: Evidence, statement: str) -> Finding:
    content = {"task": evidence.prompt, "answer": evidence.answer, "statement": statement}

    def read(answer: dict[str, Any]) -> list[Grade]:
        return _prove([_read_grade(answer)], [evidence.answer], evidence.prompt)

    form = Form("passed", object_schema(_GRADE), _GRADE_FORM, 1024)
    (grade,) = await _ask(evidence, "judge", content, form, read)
    quoted = f" (evidence: {grade.quote!r})" if grade.quote and not grade.doubt else ""
    return Finding(grade.passed, f"judge: {grade.reason}{quoted}")


async def _grade(evidence: Evidence, rubric: list[str], files: dict[str, str]) -> Finding:
    shown = {path: text[:MAX_FILE_CHARACTERS] for path, text in files.items()}
    cut = {
        path: f"only the first {MAX_FILE_CHARACTERS:,} of {len(text):,} characters are shown"
        for path, text in files.items()
        if len(text) > MAX_FILE_CHARACTERS
    }
    content: dict[str, Any] = {"task": evidence.prompt, "answer": evidence.answer, "rubric": rubric}
    content |= ({"files": shown} if files else {}) | ({"cut": cut} if cut else {})
    count = len(rubric)
    grade_schema = object_schema({"number": {"type": "integer"}, **_GRADE})
    schema = object_schema(
        {"grades": {"type": "array", "items": grade_schema, "minItems": count, "maxItems": count}}
    )

    def read(answer: dict[str, Any]) -> list[Grade]:
        grades = [as_mapping(grade) or {} for grade in as_list(answer["grades"]) or []]
        by_number = {
            grade.get("number", place): grade for place, grade in enumerate(grades, start=1)
        }
        if len(grades) != count or set(by_number) != set(range(1, count + 1)):
            raise _Unusable(f"it does not grade each of the {count} statements once")
        in_order = [_read_grade(by_number[number]) for number in range(1, count + 1)]
        return _prove(in_order, [evidence.answer, *shown.values()], evidence.prompt)

    form = Form(
        "grades",
        schema,
        f"`grades`, a list of objects with `number`, {_GRADE_FORM}",
        512 + 300 * count,
    )
    grades = await _ask(evidence, "judge_rubric", content, form, read)
    note = "".join(f" ({path}: {words})" for path, words in cut.items())
    failed = [
        f"{statement!r}: {grade.reason}"
        for statement, grade in zip(rubric, grades, strict=True)
        if not grade.passed
    ]
    if failed:
        return Finding(
            False, f"judge: {len(failed)} of {count} do not hold: {'; '.join(failed)}{note}"
        )
    quotes = ", ".join(repr(grade.quote) for grade in grades if grade.quote)
    return Finding(True, f"judge: all {count} hold (evidence: {quotes or 'none'}){note}")


@dataclass(frozen=True, slots=True)
class Grade:
    """What the judge said about one statement. `doubt`: why its quote proves nothing."""

    passed: bool
    reason: str
    quote: str
    doubt: str = ""


def _read_grade(answer: dict[str, Any]) -> Grade:
    passed = {"true": True, "false": False}.get(str(answer.get("passed")).strip().lower())
    if passed is None:
        raise _Unusable(f"`passed` is neither true nor false but {answer.get('passed')!r}")
    return Grade(passed, str(answer.get("reason") or ""), str(answer.get("evidence") or ""))


def _prove(grades: Sequence[Grade], texts: Sequence[str], task: str) -> list[Grade]:
    """The grades, if those that pass are proven or one fails anyway. Who grades without proof has not graded."""
    looked = [replace(grade, doubt=_doubt(grade, texts, task)) for grade in grades]
    if all(grade.passed for grade in looked):
        unproven = [
            f"statement {number}: {grade.doubt}"
            for number, grade in enumerate(looked, start=1)
            if grade.doubt
        ]
        if unproven:
            raise _Unusable("; ".join(unproven))
    return looked


async def _compare(evidence: Evidence, other: str, on: str, *, ties: bool) -> Finding:
    """Asked twice, with each answer first once: judges favor a position, and such a preference does not count."""
    won, lost, reasons = 0, 0, list[str]()
    for own in ("A", "B"):
        answers = (
            {"A": evidence.answer, "B": other} if own == "A" else {"A": other, "B": evidence.answer}
        )
        content = {"task": evidence.prompt, "criterion": on, **answers}
        better, reason = await _ask(evidence, "judge_pair", content, _PAIR_FORM, _read_better)
        won += better == own
        lost += better not in (own, "tie")
        reasons.append(reason)
    both_reasons = f"({reasons[0]} / in the other order: {reasons[1]})"
    if won == 2:
        return Finding(True, f"judge: the answer is better {both_reasons}")
    if lost == 2:
        return Finding(False, f"judge: the other answer is better {both_reasons}")
    split = ", as the judge chose by position" if won and lost else ""
    return Finding(ties, f"judge: a tie{split} {both_reasons}")


def _read_better(answer: dict[str, Any]) -> tuple[str, str]:
    if answer["better"] not in ("A", "B", "tie"):
        raise _Unusable(f"`better` is neither A, B nor tie but {answer['better']!r}")
    return answer["better"], str(answer.get("reason") or "")


# Asking for a grade. A reply that cannot be used says nothing about the student. It is asked for once more, by rules
# that do not depend on what is graded, and then the trial is errored.


@dataclass(frozen=True, slots=True)
class Form:
    """What the judge has to write: a JSON object with this key."""

    key: str
    schema: dict[str, Any]
    fields: str  # in words: small judges copy an example as it stands
    max_output_tokens: int


_PAIR_FORM = Form("better", PAIR, '`reason` (one sentence) and `better` ("A", "B" or "tie")', 1024)


class _Unusable(Exception):
    """What is wrong with a reply, in words for the judge."""


async def _ask(
    evidence: Evidence,
    prompt: str,
    content: dict[str, Any],
    form: Form,
    read: Callable[[dict[str, Any]], T],
) -> T:
    """What the judge says. That it says something else when it is asked again is another draw."""
    if evidence.ask is None:
        raise JudgeError("no judge model was chosen", "Choose one with --judge.")
    material = json.dumps(content, ensure_ascii=False)
    messages = (
        Message("system", read_prompt("upskill.checks", prompt).strip()),
        Message("user", material),
    )
    request = Request(
        messages, max_output_tokens=form.max_output_tokens, temperature=0.0, schema=form.schema
    )
    reply = await evidence.ask(request)
    try:
        return read(_find_object(reply, form.key, content))
    except _Unusable as unusable:
        first = unusable
    again = f"This reply cannot be used: {first}.\nReply with nothing but one JSON object with {form.fields}."
    messages = (*messages, Message("assistant", reply.text or "(nothing)"), Message("user", again))
    reply = await evidence.ask(replace(request, messages=messages))
    try:
        return read(_find_object(reply, form.key, content))
    except _Unusable as second:
        raise JudgeError(
            f"the judge gave no usable grade, even when asked again: {second}"
        ) from second


def _find_object(reply: Reply, key: str, content: dict[str, Any]) -> dict[str, Any]:
    """The one JSON object in a reply that has the key. One that a student wrote is not the judge's."""
    texts = [value for value in content.values() if isinstance(value, str)]
    texts += (as_mapping(content.get("files")) or {}).values()
    own = {
        json.dumps(answer, sort_keys=True): answer
        for answer, source in _objects(reply.text)
        if key in answer
        and not any(_without_spaces(source) in _without_spaces(text) for text in texts)
    }
    if len(own) == 1:
        return next(iter(own.values()))
    if own:
        raise _Unusable("it has several JSON objects that differ")
    if reply.stop in ("length", "repetition"):
        raise _Unusable("it was cut off; give each reason in a few words")
    raise _Unusable(f"it has no JSON object of your own with {key!r} in it")


def _objects(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The JSON objects in a text that are not inside another, each with its source."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_doubles)
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            yield value, text[start:end]
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key appears twice")
    return dict(pairs)


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def _doubt(grade: Grade, texts: Sequence[str], task: str) -> str:
    """Why a quote proves nothing; empty where it does: it is not in the task, or it is all of an answer."""
    parts = [part for part in map(_plain, re.split(r"…|\.{3,}", grade.quote)) if part]
    if not parts:
        return "no words of the answer are quoted"
    holders = [text for text in map(_plain, texts) if all(part in text for part in parts)]
    if not holders:
        return f"{grade.quote!r} is not in the answer"
    if not grade.passed:
        return ""
    asked = _plain(task)
    whole = [text for text in holders if text in parts]
    own = [part for part in parts if part not in asked]
    if not own and not any(asked not in text for text in whole):
        return f"the task says {grade.quote!r} too; quote more words of the answer with it"
    if whole or any(len(part.encode()) >= MIN_BYTES for part in own):
        return ""
    return f"{grade.quote!r} is too short to prove anything; quote a whole sentence"


def _plain(text: str) -> str:
    """The words of a text, without spaces, case, Markdown and variants of quotes and dashes."""
    text = _MARKDOWN.sub("", normal_form(text.translate(_FORMS)))
    return " ".join(text.casefold().split()).strip("\"'.,:;。、 ")
