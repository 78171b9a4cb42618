"""The gate judges a suite before money is spent on it: answers that know nothing must not pass.

Every case is tried with the answers of `guesses`: an empty one, "I do not know.", the form that was asked for with
nothing right in it, the references of other cases, and so on. In all of them nothing was done, so the workspace has the
case's own files and no tool was called. A case's own reference must pass, as far as an answer can, and so must the
answers that it calls right; those that it calls wrong must fail. Where these are scripts, they are run in a sandbox,
and what they print is the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from upskill.checks import SuiteCheck
from upskill.checks.denial import denies
from upskill.checks.tools import ToolCalled
from upskill.errors import SandboxError
from upskill.plain import as_list, as_mapping, short
from upskill.skills import Skill
from upskill.suites.schema_filler import fill_schema
from upskill.suites.shapes import Script
from upskill.suites.suite import Case, Suite
from upskill.suites.trying import Ground, NoSandbox, Trying

Probe = Literal[
    "empty",
    "unknown",
    "json",
    "fence",
    "prompt",
    "format",
    "skill",
    "refusal",
    "yes",
    "no",
    "denied",
    "other",
    "reference",
    "right",
    "wrong",
    "untouched",
    "breaks",
    "untried",
]
WORDS: dict[Probe, str] = {
    "empty": "an empty answer passes",
    "unknown": 'the answer "I do not know." passes',
    "json": "an empty JSON object passes",
    "fence": "an empty code block passes",
    "prompt": "the prompt repeated as the answer passes",
    "format": "the prompt's own words in the asked format pass",
    "skill": "the skill recited in full passes",
    "refusal": "a refusal that names the keywords passes",
    "yes": 'the answer "Yes." passes',
    "no": 'the answer "No." passes',
    "denied": 'its own reference denied ("It is not …") passes',
    "other": "the reference answer of another case passes",
    "reference": "its own reference answer fails",
    "right": "one of its right answers fails",
    "wrong": "one of its wrong answers passes",
    "untouched": "its checks of what was done hold where nothing was",
    "breaks": "its python check breaks where nothing was done, so that a student can choose an error",
    "untried": "whether knowing nothing passes could not be tried",
}
ADVICE: dict[Probe, str] = {
    "empty": "add a check that an empty answer fails, such as contains or min_length",
    "unknown": "look for what only a right answer says",
    "json": "name the fields that are required, and check what is in them",
    "fence": "check what the code does, with command or python",
    "prompt": "ask without naming the answer, or look for something the prompt does not say",
    "format": "check what is in it, and not only its form",
    "skill": "say with max_length how long an answer should be: a longer one that recites the skill fails",
    "refusal": "add `asserted: true` to contains and regex, or look for the words in their place",
    "yes": "ask so that a guess is not right half of the time: for the reason, or the thing itself",
    "no": "ask so that a guess is not right half of the time: for the reason, or the thing itself",
    "denied": "add `asserted: true` to contains and regex: what an answer denies does not count then",
    "other": "look for what only this case's answer has",
    "reference": "mend the reference or the check",
    "right": "let the checks take it, or mend the answer",
    "wrong": "let a check tell it apart from a right one",
    "untouched": "look for something that has to be done",
    "breaks": "return False there, or give a reference on which it runs",
    "untried": "its checks run something, and no sandbox works here: `upskill doctor` says what to install",
}


MOST_DENIED = 200  # characters of a reference that is put into a sentence


@dataclass(frozen=True, slots=True)
class WeakCase:
    """A case that tells knowing from not knowing badly."""

    case: str
    probe: Probe
    reason: str

    def __str__(self) -> str:
        return f"case {self.case!r}: {WORDS[self.probe]} ({self.reason}); {ADVICE[self.probe]}"


def summarise(weak: Iterable[WeakCase], most: int = 3) -> list[str]:
    """A line for each kind of leak, naming the first few cases."""
    by_probe: dict[Probe, list[WeakCase]] = {}
    for one in weak:
        by_probe.setdefault(one.probe, []).append(one)
    lines: list[str] = []
    for probe, found in by_probe.items():
        names = ", ".join(repr(one.case) for one in found[:most]) + (", …" if len(found) > most else "")
        cases = f"{len(found)} cases ({names})" if len(found) > 1 else f"case {names}"
        lines.append(f"{cases}: {WORDS[probe]}; {ADVICE[probe]}")
    return lines


async def probe_suite(suite: Suite, skill: Skill | None = None, sandbox: str = "") -> list[WeakCase]:
    """Every leak of a suite. Cases that a model grades are not tried: that would cost money.

    `sandbox` is the kind to use where something has to be run; without it, the first that works here.
    """
    ground = Ground(sandbox)
    references = [case for case in suite.cases if case.reference.strip()]
    longest = sorted(references, key=lambda case: -len(case.reference))[:2]
    places = {case.id: number for number, case in enumerate(references)}
    # A few at a time: a case may have to wait for its commands.
    gate = asyncio.Semaphore(os.cpu_count() or 1)

    async def attempt(case: Case) -> list[WeakCase]:
        # The next two, and the longest: what names much passes most.
        place = places.get(case.id, -1)
        async with gate:
            return await probe_case(
                case, skill, ground, [*references[place + 1 : place + 3], *references[:1], *longest]
            )

    return [one for weak in await asyncio.gather(*map(attempt, suite.cases)) for one in weak]


async def probe_case(
    case: Case, skill: Skill | None = None, ground: Ground | None = None, others: Iterable[Case] = ()
) -> list[WeakCase]:
    """The leaks of one case; `others` are cases whose references are tried as wrong answers."""
    if any(named.check.needs_judge for named in case.checks):
        return []
    trying = Trying(case, ground or Ground(), skill.body if skill else "")
    weak: dict[Probe, WeakCase] = {}
    held = ", ".join(named.name for named in case.checks) + (" holds" if len(case.checks) == 1 else " hold")
    for probe, answer in guesses(case, skill, others):
        try:
            if probe not in weak and await trying.failure(answer) is None:
                weak[probe] = WeakCase(case.id, probe, held)
                if probe == "empty":  # whatever else passes tells no more
                    break
        except (NoSandbox, SandboxError) as missing:
            weak["untried"] = WeakCase(case.id, "untried", str(missing))
    try:
        if case.reference and (failed := await trying.failure(case.reference, _within_reach(case))):
            weak["reference"] = WeakCase(case.id, "reference", failed)
        for one in await _try_own_answers(case, trying):
            weak.setdefault(one.probe, one)
        if broke := await trying.broken():
            weak["breaks"] = WeakCase(case.id, "breaks", broke)
    except (NoSandbox, SandboxError) as missing:
        weak["untried"] = WeakCase(case.id, "untried", str(missing))
    return list(weak.values())


async def _try_own_answers(case: Case, trying: Trying) -> list[WeakCase]:
    """What is wrong with the answers that a case calls right and wrong."""

    async def failure(answer: str | Script) -> str | None:
        return await (trying.failure(answer) if isinstance(answer, str) else trying.failure_of_script(answer.run))

    weak: list[WeakCase] = []
    for answer in case.right:
        if failed := await failure(answer):
            weak.append(WeakCase(case.id, "right", f"{_shown(answer)}: {failed}"))
    for answer in case.wrong:
        if await failure(answer) is None:
            weak.append(WeakCase(case.id, "wrong", _shown(answer)))
    return weak


def _shown(answer: str | Script) -> str:
    return short(answer if isinstance(answer, str) else answer.run)


async def passes_untouched(case: Case, ground: Ground | None = None) -> bool:
    """Whether all checks of what was done hold where nothing was done, so that they show nothing."""
    done = [named for named in case.checks if named.check.needs_sandbox]
    return bool(done) and await Trying(case, ground or Ground()).failure("", done) is None


def guesses(case: Case, skill: Skill | None = None, others: Iterable[Case] = ()) -> Iterator[tuple[Probe, str]]:
    """Answers to a case that know nothing of what it asks, or say that it is otherwise."""
    yield "empty", ""
    yield "unknown", "I do not know."
    yield "yes", "Yes."
    yield "no", "No."
    yield "json", "{}"
    language = next((_languages(named) for named in case.checks if named.name == "extract"), "")
    yield "fence", f"```{language}\n```"
    yield "prompt", case.prompt
    if formatted := _in_asked_format(case, language):
        yield "format", formatted
    if skill is not None:
        yield "skill", skill.body
    if keywords := _keywords(case.checks):
        yield "refusal", f"I cannot help with {', '.join(keywords)}."
    if reference := _deniable(case):
        yield "refusal", f"I cannot help with {reference}."
        yield "denied", f"It is not {reference}."
        yield "denied", f"Do not use {reference}."
    own, checks = _words(case.reference), [named.config for named in case.checks]
    for other in others:
        # One with all words of the right answer, or for which the same is looked for, may well be right.
        same = (bool(own) and own <= _words(other.reference)) or [named.config for named in other.checks] == checks
        if other.id != case.id and not same:
            yield "other", other.reference


def _deniable(case: Case) -> str:
    """The reference, where a sentence that denies it is surely wrong: it is short, denies nothing itself, and no part
    of the answer is taken out of it to be looked at alone."""
    reference = case.reference.strip().rstrip(".")
    taken = any(named.name in ("extract", "json_schema") for named in case.checks)
    plain = "\n" not in reference and len(reference) <= MOST_DENIED and not denies(reference)
    return reference if plain and not taken else ""


def only_by_acting(suite: Suite) -> str:
    """A warning of cases that look at what was done, for students that only answer; empty where there are none."""
    found = [case.id for case in suite.cases if any(_is_done(named) for named in _beyond_reach(case))]
    if not found:
        return ""
    names = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    cases = "1 case looks" if len(found) == 1 else f"{len(found)} cases look"
    return f"{cases} at what was done ({names}), and --agent chat only answers: --agent tools lets students act"


def unwritten(suite: Suite) -> str:
    """A warning of cases whose output is a file, for students that only answer; empty where there are none."""
    found = [case.id for case in suite.cases if case.output_file]
    if not found:
        return ""
    names = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    cases = "1 case has" if len(found) == 1 else f"{len(found)} cases have"
    return f"{cases} an output_file ({names}), which --agent chat does not write: the checks look at the answer"


def _is_done(named: SuiteCheck) -> bool:
    """Whether it looks for something that has to be done; the other checks hold where nothing was."""
    return named.check.needs_sandbox or isinstance(named.check, ToolCalled)


def _beyond_reach(case: Case) -> list[SuiteCheck]:
    reached = _within_reach(case)
    return [named for named in case.checks if named not in reached]


def _within_reach(case: Case) -> list[SuiteCheck]:
    """The checks that an answer alone can pass: those that look at it, and at what was taken from it into files."""
    if any(isinstance(answer, Script) for answer in case.right):  # something has to be done
        return [named for named in case.checks if named.check.reads_answer and not named.check.needs_sandbox]
    extracted = False
    found: list[SuiteCheck] = []
    for named in case.checks:
        extracted = extracted or (named.check.needs_sandbox and named.check.reads_answer)
        if named.check.reads_answer or (extracted and named.check.needs_sandbox):
            found.append(named)
    return found


def _languages(named: SuiteCheck) -> str:
    """The language that a code block is asked for in; empty for any."""
    return next(iter(getattr(named.check, "language", None) or ()), "")


def _in_asked_format(case: Case, language: str) -> str:
    """The words of the prompt as JSON of the asked schema, as a code block, or after the asked beginning."""
    answer = case.prompt
    by_name = {named.name: named for named in case.checks}
    if schema := by_name.get("json_schema"):
        answer = json.dumps(fill_schema(getattr(schema.check, "wanted", {}), case.prompt), ensure_ascii=False)
    if "extract" in by_name:
        answer = f"```{language}\n{answer}\n```"
    if beginning := by_name.get("starts_with"):
        answer = f"{getattr(beginning.check, 'text', '')} {answer}"
    return answer if answer != case.prompt else ""


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w.-]*\w|[^\w\s.,`'\"]", text.casefold()))


def _keywords(checks: Iterable[SuiteCheck]) -> list[str]:
    """The words a refusal would have to name, from the checks that look for plain text."""
    found: list[str] = []
    for named in checks:
        if named.name in ("contains", "contains_any", "equals", "starts_with"):
            mapping = as_mapping(named.config)
            texts: Any = mapping.get("text") if mapping else named.config
            found += [str(text) for text in (as_list(texts) or [texts])]
    return found
