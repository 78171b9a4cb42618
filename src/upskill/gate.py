"""The gate judges a suite before money is spent on it: answers that know nothing must not pass.

Every case is tried with an empty answer, with its prompt repeated, with the skill recited, and with a refusal that
names the words its checks look for. A case that has a reference answer must be passed by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from upskill.checks import Evidence, Named
from upskill.errors import CheckError, blame
from upskill.plain import as_list, as_mapping
from upskill.skill import Skill
from upskill.suite import Case, Suite
from upskill.traces import Step, Trace

Probe = Literal["empty", "prompt", "skill", "refusal", "reference"]
WORDS: dict[Probe, str] = {
    "empty": "an empty answer passes",
    "prompt": "the prompt repeated as the answer passes",
    "skill": "the skill recited in full passes",
    "refusal": "a refusal that names the keywords passes",
    "reference": "its own reference answer fails",
}
ADVICE: dict[Probe, str] = {
    "empty": "add a check that an empty answer fails, such as contains or min_length",
    "prompt": "ask without naming the answer, or look for something the prompt does not say",
    "skill": "limit the length of an answer with max_length",
    "refusal": "look for the words in their place, with regex or equals",
    "reference": "mend the reference or the check",
}


@dataclass(frozen=True, slots=True)
class Leak:
    """A case that tells knowing from not knowing badly."""

    case: str
    probe: Probe
    reason: str

    def __str__(self) -> str:
        return f"case {self.case!r}: {WORDS[self.probe]} ({self.reason}); {ADVICE[self.probe]}"


def summarise(leaks: Iterable[Leak], most: int = 3) -> list[str]:
    """A line for each kind of leak, naming the first few cases."""
    by_probe: dict[Probe, list[Leak]] = {}
    for leak in leaks:
        by_probe.setdefault(leak.probe, []).append(leak)
    lines: list[str] = []
    for probe, found in by_probe.items():
        names = ", ".join(repr(leak.case) for leak in found[:most]) + (", …" if len(found) > most else "")
        cases = f"{len(found)} cases ({names})" if len(found) > 1 else f"case {names}"
        lines.append(f"{cases}: {WORDS[probe]}; {ADVICE[probe]}")
    return lines


async def try_suite(suite: Suite, skill: Skill | None = None) -> list[Leak]:
    """Every leak of a suite. Cases that a model grades are not tried: that would cost money."""
    leaks: list[Leak] = []
    for case in suite.cases:
        leaks += await try_case(case, skill)
    return leaks


async def try_case(case: Case, skill: Skill | None = None) -> list[Leak]:
    if any(named.check.needs_judge for named in case.checks):
        return []
    probes: list[tuple[Probe, str]] = [("empty", ""), ("prompt", case.prompt)]
    if skill is not None:
        probes.append(("skill", skill.body))
    if keywords := _keywords(case.checks):
        probes.append(("refusal", f"I cannot help with {', '.join(keywords)}."))
    leaks: list[Leak] = []
    for probe, answer in probes:
        failed = await _first_failure(case, answer)
        if failed is None:
            leaks.append(Leak(case.id, probe, ", ".join(named.name for named in case.checks) + " hold"))
    if case.reference and (failed := await _first_failure(case, case.reference)):
        leaks.append(Leak(case.id, "reference", failed))
    return leaks


def near_duplicates(cases: Iterable[Case], share: float = 0.9) -> list[tuple[str, str]]:
    """Pairs of cases whose prompts have nearly the same words: they count as two and prove as much as one."""
    words = [(case.id, frozenset(re.findall(r"\w+", case.prompt.lower()))) for case in cases]
    return [
        (one, two)
        for number, (one, first) in enumerate(words)
        for two, second in words[number + 1 :]
        if first and len(first & second) / len(first | second) >= share
    ]


async def _first_failure(case: Case, answer: str) -> str | None:
    evidence = Evidence(Trace((Step("assistant", answer),)), case.prompt)
    for named in case.checks:
        try:
            with blame(CheckError, f"checking {named.name}"):
                finding = await named.check.look(evidence)
        except CheckError as error:
            return error.message  # what breaks does not pass
        if not finding.passed:
            return finding.reason
    return None


def _keywords(checks: Iterable[Named]) -> list[str]:
    """The words a refusal would have to name, from the checks that look for plain text."""
    found: list[str] = []
    for named in checks:
        if named.name in ("contains", "contains_any", "equals", "starts_with"):
            mapping = as_mapping(named.written)
            texts: Any = mapping.get("text") if mapping else named.written
            found += [str(text) for text in (as_list(texts) or [texts])]
    return found
