"""Checks made by a model, which sees the task and what it grades, but not which arm it comes from."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from upskill.checks import Check, Evidence, Finding, Text
from upskill.checks.denial import QUOTES, denies
from upskill.checks.texts import Texts
from upskill.checks.workspace import Path, read_left
from upskill.errors import CheckError
from upskill.models import Message, Reply, Request
from upskill.models.parsing import parse_json_answer
from upskill.models.prompt import read_prompt
from upskill.plain import as_list, as_mapping, object_schema

REFERENCE = "reference"  # stands for the reference of the case
MAX_FILE_CHARACTERS = 20_000  # characters of a file that the judge is shown
_SENTENCE: dict[str, Any] = {"type": "string", "maxLength": 400}
# Letters of scripts that put no space between words (Chinese, Thai), or glue particles to them (Korean).
_UNSPACED = (
    "\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19ff\u3005-\u3007\u3040-\u31ff"
    "\u3400-\u9fff\ua960-\ua97f\ua9e0-\ua9ff\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
_LETTER = rf"[^\W{_UNSPACED}]"  # one that makes another word of what it stands beside
_MARKDOWN = re.compile(r"^[ \t]*(?:[-+>#]+|\d+[.)])[ \t]+|[*`_~]+", re.MULTILINE)
_FORMS = QUOTES | str.maketrans({"–": "-", "—": "-"})
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")


_GRADE = {"evidence": _SENTENCE, "reason": _SENTENCE, "passed": {"type": "boolean"}}
PAIR = object_schema({"reason": _SENTENCE, "better": {"type": "string", "enum": ["A", "B", "tie"]}})


def _statements(value: object) -> object:
    """A text that is a Markdown list is the statements in it."""
    lines = [line for line in value.splitlines() if line.strip()] if isinstance(value, str) else []
    return [_ITEM.sub("", line, count=1).strip() for line in lines] if all(map(_ITEM.match, lines)) and lines else value


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
            raise ValueError("asks for one of statement, rubric and better_than")
        if self.better_than is None and {"on", "ties"} & self.model_fields_set:
            raise ValueError("`on` and `ties` go with better_than")
        if self.better_than is not None and self.files:
            raise ValueError("`files` cannot be set against another answer; say what they must have in a rubric")
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
            files[path] = content[:MAX_FILE_CHARACTERS]
        if self.rubric is not None or files:
            return await _grade(evidence, self.rubric or [str(self.statement)], files)
        return await _affirm(evidence, str(self.statement))


async def _affirm(evidence: Evidence, statement: str) -> Finding:
    content = {"task": evidence.prompt, "answer": evidence.answer, "statement": statement}

    async def ask(messages: tuple[Message, ...]) -> tuple[Reply, list[Grade]]:
        reply = await _ask(evidence, messages, object_schema(_GRADE), 1024)
        return reply, [_read_grade(_read(reply), reply)]

    (grade,) = await _prove(ask, _messages("judge", content), [statement], [evidence.answer])
    quoted = f" (evidence: {grade.quote!r})" if grade.proven else ""
    return Finding(grade.passed, f"judge: {grade.reason}{quoted}")


async def _grade(evidence: Evidence, rubric: list[str], files: dict[str, str]) -> Finding:
    content: dict[str, Any] = {"task": evidence.prompt, "answer": evidence.answer, "rubric": rubric}
    messages = _messages("judge_rubric", content | ({"files": files} if files else {}))
    count = len(rubric)
    grade_schema = object_schema({"number": {"type": "integer"}, **_GRADE})
    schema = object_schema({"grades": {"type": "array", "items": grade_schema, "minItems": count, "maxItems": count}})

    async def ask(messages: tuple[Message, ...]) -> tuple[Reply, list[Grade]]:
        reply = await _ask(evidence, messages, schema, 512 + 300 * count)
        grades = [as_mapping(grade) or {} for grade in as_list(_read(reply).get("grades")) or []]
        by_number = {grade.get("number"): grade for grade in grades}
        if len(grades) != count or set(by_number) != set(range(1, count + 1)):
            raise CheckError(f"the judge did not grade each of {count} statements once: {reply.text[:200]!r}")
        return reply, [_read_grade(by_number[number], reply) for number in range(1, count + 1)]

    grades = await _prove(ask, messages, rubric, [evidence.answer, *files.values()])
    failed = [
        f"{statement!r}: {grade.reason}" for statement, grade in zip(rubric, grades, strict=True) if not grade.passed
    ]
    if failed:
        return Finding(False, f"judge: {len(failed)} of {count} do not hold: {'; '.join(failed)}")
    quotes = ", ".join(repr(grade.quote) for grade in grades if grade.quote)
    return Finding(True, f"judge: all {count} hold (evidence: {quotes or 'none'})")


@dataclass(frozen=True, slots=True)
class Grade:
    """What the judge said about one statement. `proven`: the quote is really in what was graded."""

    passed: bool
    reason: str
    quote: str
    proven: bool = False


async def _prove(
    ask: Callable[[tuple[Message, ...]], Awaitable[tuple[Reply, list[Grade]]]],
    messages: tuple[Message, ...],
    statements: Sequence[str],
    texts: Sequence[str],
) -> list[Grade]:
    """The judge's grades. None passes without evidence: it is asked for once more, then counts as failed."""
    held_grades: list[Grade] = []
    for _ in range(2):
        reply, grades = await ask(messages)
        held_grades = [
            _held_to_evidence(grade, statement, texts) for statement, grade in zip(statements, grades, strict=True)
        ]
        unproven = [
            grade.quote for grade, held in zip(grades, held_grades, strict=True) if grade.passed and not held.passed
        ]
        if not unproven:
            break
        again = (
            f"These quotes are not in the answer: {json.dumps(unproven, ensure_ascii=False)}\n"
            "Grade again, with evidence that is quoted word for word. Without such words, a statement is not true."
        )
        messages = (*messages, Message("assistant", reply.text), Message("user", again))
    return held_grades


def _held_to_evidence(grade: Grade, statement: str, texts: Iterable[str]) -> Grade:
    """The grade, failed where its evidence is missing; a statement that denies something may hold without any."""
    if _occurs(grade.quote, texts):
        return replace(grade, proven=True)
    quoted = bool(grade.quote.strip())
    if not grade.passed or (not quoted and denies(statement)):
        return grade
    why = (
        f"the evidence {grade.quote!r} is not in the answer" if quoted else "no words of the answer were quoted for it"
    )
    return replace(grade, passed=False, reason=f"{why} ({grade.reason})")


async def _compare(evidence: Evidence, other: str, on: str, *, ties: bool) -> Finding:
    """Asked twice, with each answer first once: judges favor a position, and such a preference does not count."""
    won, lost, reasons = 0, 0, list[str]()
    for own in ("A", "B"):
        answers = {"A": evidence.answer, "B": other} if own == "A" else {"A": other, "B": evidence.answer}
        content = {"task": evidence.prompt, "criterion": on, **answers}
        reply = await _ask(evidence, _messages("judge_pair", content), PAIR, 1024)
        answer = _read(reply)
        better = answer.get("better")
        if better not in ("A", "B", "tie"):
            raise CheckError(f"the judge named neither A, B nor a tie: {reply.text[:200]!r}")
        won += better == own
        lost += better not in (own, "tie")
        reasons.append(str(answer.get("reason", "")))
    both_reasons = f"({reasons[0]} / in the other order: {reasons[1]})"
    if won == 2:
        return Finding(True, f"judge: the answer is better {both_reasons}")
    if lost == 2:
        return Finding(False, f"judge: the other answer is better {both_reasons}")
    split = ", as the judge chose by position" if won and lost else ""
    return Finding(ties, f"judge: a tie{split} {both_reasons}")


def _messages(prompt: str, content: dict[str, Any]) -> tuple[Message, ...]:
    return (
        Message("system", read_prompt("upskill.checks", prompt).strip()),
        Message("user", json.dumps(content, ensure_ascii=False)),
    )


async def _ask(evidence: Evidence, messages: tuple[Message, ...], schema: dict[str, Any], most: int) -> Reply:
    if evidence.ask is None:
        raise CheckError("no judge model was named", "Name one with --judge.")
    return await evidence.ask(Request(messages, max_output_tokens=most, temperature=0.0, schema=schema))


def _read(reply: Reply) -> dict[str, Any]:
    with suppress(ValueError):
        if (answer := as_mapping(parse_json_answer(reply.text))) is not None:
            return answer
    raise CheckError(f"the judge did not answer in the form asked for: {reply.text[:200]!r}")


def _read_grade(answer: dict[str, Any], reply: Reply) -> Grade:
    if not _GRADE.keys() <= set(answer):
        raise CheckError(f"the judge did not answer in the form asked for: {reply.text[:200]!r}")
    if not isinstance(answer["passed"], bool):
        raise CheckError(f"the judge said neither true nor false: {answer['passed']!r}")
    return Grade(answer["passed"], str(answer["reason"]), str(answer["evidence"]))


def _occurs(quote: str, texts: Iterable[str]) -> bool:
    """Whether one of the texts has these words; with an ellipsis, the parts around it."""
    patterns: list[str] = []
    for part in filter(None, map(_plain, re.split(r"…|\.{3,}", quote))):
        # Whole words, in scripts that have spaces between them: a single letter is in every answer.
        before = f"(?<!{_LETTER})" if re.match(_LETTER, part[0]) else ""
        after = f"(?!{_LETTER})" if re.match(_LETTER, part[-1]) else ""
        patterns.append(before + re.escape(part) + after)
    return bool(patterns) and any(all(re.search(pattern, text) for pattern in patterns) for text in map(_plain, texts))


def _plain(text: str) -> str:
    """The words of a text, without spaces, case, Markdown and variants of quotes and dashes."""
    text = _MARKDOWN.sub("", unicodedata.normalize("NFKC", text.translate(_FORMS)))
    return " ".join(text.casefold().split()).strip("\"'.,:;。、 ")
