"""Checks a suite before you spend money on it: answers that know nothing (`guesses`) must not pass.

They are tried on the case's own files, with no tool called. A case's reference and right answers must pass, its wrong
ones must fail. Scripts run in a sandbox, and what they print is the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from upskill.checks import Check, SuiteCheck
from upskill.checks.extract import Extract
from upskill.checks.room import Delivery
from upskill.checks.tools import ToolCalled
from upskill.errors import CheckError, SandboxError, UsageError
from upskill.plain import as_list, as_mapping, counted, dict_or_empty, short
from upskill.sandboxes import Limits, Sandbox, SandboxBackend, Setup, choose_sandbox
from upskill.sandboxes.gpu import open_in_turn
from upskill.skills import Skill
from upskill.suites.grading import collect_delivery, grade
from upskill.suites.shapes import Script
from upskill.suites.suite import Case, Suite
from upskill.traces import Step, Trace

SCRIPT_SECONDS = 60.0
MAX_ON_GPU = 3  # cases of a suite whose checks run each guess on a GPU, which takes seconds


class SandboxOpener:
    """Where checks run what they have to run; found once, when first needed."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._backend: SandboxBackend | None = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def open(self, setup: Setup) -> AsyncGenerator[Sandbox]:
        async with self._lock:
            try:
                self._backend = self._backend or (await choose_sandbox(self.name or None)).backend
            except UsageError as error:
                raise SandboxError(error.message) from error
        async with open_in_turn(self._backend, setup) as sandbox:
            yield sandbox


@dataclass
class CaseProbe:
    """The checks of one case, tried on answers that come without any work."""

    case: Case
    opener: SandboxOpener
    skill: str = ""  # what the skill says, which an answer may recite
    known: dict[str, str | None] = field(
        default_factory=dict[str, "str | None"]
    )  # by what the checks look at

    async def failure(self, answer: str, checks: Iterable[SuiteCheck] | None = None) -> str | None:
        """Why this answer fails; None when it passes."""
        chosen = list(self.case.checks if checks is None else checks)
        # What needs no sandbox first: most of what knows nothing fails there.
        plain = [named for named in chosen if not named.check.needs_sandbox]
        sandboxed = [named for named in chosen if named.check.needs_sandbox]
        failed = await self._first(plain, answer)
        if failed is not None or not sandboxed:
            return failed
        if checks is not None:
            return await self._first(sandboxed, answer)
        # Checks that do not look at the answer find the same for every one, and a command may take its time.
        key = answer if any(named.check.reads_answer for named in sandboxed) else ""
        if key not in self.known:
            self.known[key] = await self._first(sandboxed, answer)
        return self.known[key]

    async def failure_of(self, answer: str | Script) -> str | None:
        """Why an answer fails, or what a script leaves and prints; None when it passes."""
        if isinstance(answer, str):
            return await self.failure(answer)
        async with self.opener.open(Setup(files=self.case.files)) as sandbox:
            done = await sandbox.run(answer.run, Limits(wall=SCRIPT_SECONDS, cpu=SCRIPT_SECONDS))
            delivery = await collect_delivery(sandbox, self.case)
        # No tool was called, so nothing can be said about that.
        checks = [
            named
            for named in self.case.checks
            if named.check.needs_sandbox or named.check.reads_answer
        ]
        failed = delivery.problem or await self._first(checks, done.output.strip(), delivery)
        if failed is not None and done.code:
            error = done.error.strip()[-200:]
            return f"{failed}; the script exited with code {done.code}" + (
                f": {error}" if error else ""
            )
        return failed

    async def _first(
        self, checks: Sequence[SuiteCheck], answer: str, delivery: Delivery | None = None
    ) -> str | None:
        trace = Trace((Step("assistant", answer),))
        evidence = self.case.evidence_of(trace, skill_body=self.skill)
        graded = grade(self.case, evidence, self.opener.open, delivery, checks)
        async with aclosing(graded):
            try:
                async for named, finding in graded:
                    if not finding.passed and finding.decides and named.check.decides:
                        return finding.reason
            except CheckError as error:
                return error.message  # what breaks does not pass
        return None


WORDS = {
    "empty": "an empty answer passes",
    "unknown": 'the answer "I do not know." passes',
    "json": "an empty JSON object passes",
    "fence": "an empty code block passes",
    "prompt": "the prompt repeated as the answer passes",
    "format": "the prompt's own words in the requested format pass",
    "values": "what its schema asks for, copied from the prompt, passes",
    "skill": "the skill recited in full passes",
    "short": "the skill recited in full passes: it is no longer than max_length allows",
    "yes": 'the answer "Yes." passes',
    "no": 'the answer "No." passes',
    "other": "the reference answer of another case passes",
    "reference": "its own reference answer fails",
    "right": "one of its right answers fails",
    "wrong": "one of its wrong answers passes",
    "untouched": "its checks on the work pass when nothing was done",
    "untried": "could not test whether an empty answer passes",
    "sampled": "answers that know nothing were not tried, because each takes a run on the GPU",
}
ADVICE = {
    "empty": "add a check that an empty answer fails, such as contains",
    "unknown": "look for something that only a right answer says",
    "json": "list the required fields, and check their values",
    "fence": "check what the code does, with command or python",
    "prompt": "ask without naming the answer, or look for something the prompt does not say",
    "format": "check its content, not only its form",
    "values": "the prompt gives the values away: ask so that a student has to know them",
    "skill": "set max_length, so that an answer that recites the skill fails",
    "short": "lower max_length to less than the length of the skill",
    "yes": "ask for the reason or the thing itself, so that a guess is not right half the time",
    "no": "ask for the reason or the thing itself, so that a guess is not right half the time",
    "other": "look for something that only this case's answer contains",
    "reference": "fix the reference or the check",
    "right": "make the checks accept it, or fix the answer",
    "wrong": "add a check that rejects it",
    "untouched": "look for something that has to be done",
    "untried": "its checks run commands, and no sandbox works here: `upskill doctor` says what to install",
    "sampled": f"{MAX_ON_GPU} other cases were tried",
}
UNTRIED = ("untried", "sampled")


@dataclass(frozen=True, slots=True)
class WeakCase:
    case: str
    probe: str
    reason: str
    answer: str = ""  # the right or wrong one that is judged otherwise

    def __str__(self) -> str:
        return f"case {self.case!r}: {WORDS[self.probe]} ({self.reason}); {ADVICE[self.probe]}"


def summarize_weak(weak: Iterable[WeakCase], most: int = 3) -> list[str]:
    """A line for each kind of leak, naming the first few cases."""
    by_probe: dict[str, list[WeakCase]] = {}
    for leak in weak:
        by_probe.setdefault(leak.probe, []).append(leak)
    lines: list[str] = []
    for probe, leaks in by_probe.items():
        ids = dict.fromkeys(repr(leak.case) for leak in leaks)
        names = _first_few([*ids], most)
        cases = f"{len(ids)} cases ({names})" if len(ids) > 1 else f"case {names}"
        lines.append(f"{cases}: {WORDS[probe]}; {ADVICE[probe]}")
    return lines


async def probe_suite(
    suite: Suite, skill: Skill | None = None, sandbox: str = ""
) -> list[WeakCase]:
    """Every leak of a suite. Cases that a model grades are not tried: that would cost money."""
    opener = SandboxOpener(sandbox)
    references = [case for case in suite.cases if case.reference.strip()]
    longest = sorted(references, key=lambda case: -len(case.reference))[:2]
    numbers = {case.id: number for number, case in enumerate(references)}
    on_gpu = [
        case.id for case in suite.cases if any(named.check.needs_gpu for named in case.checks)
    ]
    untried = {*on_gpu} - {
        on_gpu[len(on_gpu) * part // MAX_ON_GPU] for part in range(MAX_ON_GPU) if on_gpu
    }
    # A few at a time: a case may have to wait for its commands.
    gate = asyncio.Semaphore(os.cpu_count() or 1)

    async def attempt(case: Case) -> list[WeakCase]:
        # The next two, and the longest: what names much passes most.
        following = numbers.get(case.id, -1) + 1
        others = [*references[following : following + 2], *references[:1], *longest]
        async with gate:
            weak = await probe_case(case, skill, opener, others, guess=case.id not in untried)
        return (
            [WeakCase(case.id, "sampled", "its checks need a GPU"), *weak]
            if case.id in untried
            else weak
        )

    return [leak for leaks in await asyncio.gather(*map(attempt, suite.cases)) for leak in leaks]


async def probe_case(
    case: Case,
    skill: Skill | None = None,
    opener: SandboxOpener | None = None,
    others: Iterable[Case] = (),
    *,
    guess: bool = True,
) -> list[WeakCase]:
    """The leaks of one case; `others` are cases whose references are tried as wrong answers, if at all: `guess`."""
    if any(named.check.needs_judge for named in case.checks):
        return []
    case_probe = CaseProbe(case, opener or SandboxOpener(), skill.body if skill else "")
    weak: dict[tuple[str, str], WeakCase] = {}

    def add(probe: str, reason: str, answer: str = "") -> None:
        weak.setdefault((probe, answer), WeakCase(case.id, probe, reason, answer))

    # A limit on the length holds for any guess.
    held = list(
        dict.fromkeys(named.name for named in case.checks if named.name != "max_length")
    ) or ["max_length"]
    why = f"{', '.join(held)} {'pass' if held[1:] else 'passes'}"
    for probe, answer in guesses(case, skill, others) if guess else ():
        try:
            if (probe, "") not in weak and await case_probe.failure(answer) is None:
                add(probe, why)
                if probe == "empty":  # whatever else passes tells no more
                    break
        except SandboxError as missing:
            add("untried", str(missing))
            break
    try:
        if case.reference and (
            failed := await case_probe.failure(case.reference, _within_reach(case))
        ):
            add("reference", failed)
        for answer in case.right:
            if failed := await case_probe.failure_of(answer):
                add("right", f"{short(_text(answer))}: {failed}", _text(answer))
        for answer in case.wrong:
            if await case_probe.failure_of(answer) is None:
                add("wrong", short(_text(answer)), _text(answer))
    except SandboxError as missing:
        add("untried", str(missing))
    return list(weak.values())


def _text(answer: str | Script) -> str:
    return answer if isinstance(answer, str) else answer.run


async def passes_untouched(case: Case, opener: SandboxOpener | None = None) -> bool:
    """Whether all checks of the work pass when nothing was done, so that they prove nothing."""
    done = [named for named in case.checks if named.check.needs_sandbox]
    return bool(done) and await CaseProbe(case, opener or SandboxOpener()).failure("", done) is None


def guesses(
    case: Case, skill: Skill | None = None, others: Iterable[Case] = ()
) -> Iterator[tuple[str, str]]:
    """Answers to a case that know nothing about it."""
    yield "empty", ""
    yield "unknown", "I do not know."
    yield "yes", "Yes."
    yield "no", "No."
    yield "json", "{}"
    extract = next((named.check for named in case.checks if isinstance(named.check, Extract)), None)
    language = (
        extract.language[0] if extract and extract.language else ""
    )  # of a code block; empty for any
    yield "fence", f"```{language}\n```"
    yield "prompt", case.prompt
    if formatted := _in_asked_format(case, language):
        fixed = any(_fixes_values(named.check) for named in case.checks)
        yield "values" if fixed else "format", formatted
    if skill is not None:
        yield (
            "short" if any(named.name == "max_length" for named in case.checks) else "skill",
            skill.body,
        )
    own, checks = _words(case.reference), [named.config for named in case.checks]
    for other in others:
        # One with all words of the right answer, or for which the same is looked for, may well be right.
        same = (bool(own) and own <= _words(other.reference)) or [
            named.config for named in other.checks
        ] == checks
        if other.id != case.id and not same:
            yield "other", other.reference


def only_by_acting(suite: Suite) -> str:
    """A warning about cases that check the work, for students that only answer; empty without any."""
    ids = [
        case.id
        for case in suite.cases
        for named in case.checks
        if named not in _within_reach(case)
        and (named.check.needs_sandbox or isinstance(named.check, ToolCalled))
    ]
    return _warn_of(
        dict.fromkeys(ids),
        "checks on what the student did",
        "--agent chat only answers: use --agent tools",
    )


def unwritten(suite: Suite) -> str:
    """A warning about cases whose output is a file, for students that only answer; empty without any."""
    ids = [case.id for case in suite.cases if case.output_file]
    return _warn_of(
        ids, "an output_file", "--agent chat writes no files: the checks read the answer instead"
    )


def _warn_of(ids: Iterable[str], what: str, but: str) -> str:
    names = list(ids)
    return (
        f"{what} in {counted(len(names), 'case')} ({_first_few(names)}), but {but}" if names else ""
    )


def _first_few(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _within_reach(case: Case) -> list[SuiteCheck]:
    """The checks that an answer alone can pass: those that look at it, and at what was taken from it into files."""
    if any(isinstance(answer, Script) and answer.run == case.reference for answer in case.right):
        return []  # it is tried as a script
    if any(isinstance(answer, Script) for answer in case.right):  # something has to be done
        return [
            named
            for named in case.checks
            if named.check.reads_answer and not named.check.needs_sandbox
        ]
    extracted = False
    reached: list[SuiteCheck] = []
    for named in case.checks:
        extracted = extracted or (named.check.needs_sandbox and named.check.reads_answer)
        if named.check.reads_answer or (extracted and named.check.needs_sandbox):
            reached.append(named)
    return reached


def _fixes_values(check: Check) -> bool:
    """Whether it is a schema that allows certain values only."""
    return re.search(r'"(?:const|enum)": ', json.dumps(getattr(check, "wanted", {}))) is not None


def _in_asked_format(case: Case, language: str) -> str:
    """The words of the prompt as JSON of the asked schema, as a code block, or after the asked beginning."""
    answer = case.prompt
    by_name = {named.name: named for named in case.checks}
    if schema := by_name.get("json_schema"):
        answer = json.dumps(
            fill_schema(getattr(schema.check, "wanted", {}), case.prompt), ensure_ascii=False
        )
    if "extract" in by_name:
        answer = f"```{language}\n{answer}\n```"
    if beginning := by_name.get("starts_with"):
        answer = f"{getattr(beginning.check, 'text', '')} {answer}"
    return answer if answer != case.prompt else ""


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w.-]*\w|[^\w\s.,`'\"]", text.casefold()))


MAX_DEPTH = 12  # of a schema that refers to itself


def fill_schema(schema: object, text: str, depth: int = 0) -> Any:
    """A value of this schema whose texts are all these words; of names and allowed values, only those in the words."""
    rules = dict_or_empty(schema)
    if depth > MAX_DEPTH:
        return None
    options = [rules["const"]] if "const" in rules else as_list(rules.get("enum"))
    if options:
        return next((option for option in options if _is_word(option, text)), text)
    for word in ("anyOf", "oneOf", "allOf"):
        if parts := as_list(rules.get(word)):
            values = [
                fill_schema(part, text, depth + 1)
                for part in (parts if word == "allOf" else parts[:1])
            ]
            mappings = [mapping for value in values if (mapping := as_mapping(value)) is not None]
            return (
                {key: value for mapping in mappings for key, value in mapping.items()}
                if mappings
                else values[0]
            )
    kinds = as_list(rules.get("type")) or [rules.get("type")]
    match kinds[0] if kinds[0] is not None else "object" if "properties" in rules else "string":
        case "object":
            fields = dict_or_empty(rules.get("properties"))
            names = dict.fromkeys(map(str, [*fields, *(as_list(rules.get("required")) or [])]))
            return {
                name: fill_schema(fields.get(name, {}), text, depth + 1)
                for name in names
                if _is_word(name, text)
            }
        case "array":
            count = rules.get("minItems") if isinstance(rules.get("minItems"), int) else 1
            return [
                fill_schema(rules.get("items"), text, depth + 1)
                for _ in range(min(int(count or 1), 100))
            ]
        case "integer" | "number":
            least = rules.get("minimum", rules.get("exclusiveMinimum"))
            return (
                (least + 1 if "exclusiveMinimum" in rules else least)
                if isinstance(least, int | float)
                else 0
            )
        case "boolean":
            return True
        case "null":
            return None
        case _:
            most = rules.get("maxLength")
            return text[:most] if isinstance(most, int) else text


def _is_word(value: object, text: str) -> bool:
    """Whether a text has this as a word of its own, and not as a part of one."""
    return re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text) is not None
