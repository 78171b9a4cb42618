"""A model writes test cases from a task and its material; only cases that pass the quality probes are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from upskill.authoring.material.material import OWN_KNOWLEDGE, TASK, Material, Piece, quote
from upskill.authoring.saving.provenance import is_from_memory, shared_name
from upskill.authoring.writing.grounding import overruled_answer
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    InvalidAnswer,
    StructuredRequest,
    ask,
    list_schema,
    read_ids,
    text_schema,
)
from upskill.authoring.writing.summarize import DEFAULT_BUDGET, SMALL_BUDGET, Tell, no_message, summarize
from upskill.checks import SuiteCheck
from upskill.errors import Paused, UpskillError, UsageError
from upskill.models import Model
from upskill.plain import as_list, as_mapping, counted, dict_or_empty, list_or_empty, object_schema
from upskill.skills import Skill
from upskill.suites import LOOK_UP, READ, Case, Reading, Suite, split
from upskill.suites.near_duplicates import near_duplicates
from upskill.suites.quality import SandboxOpener, WeakCase, passes_untouched, probe_case
from upskill.traces.redaction.redact import redact

MAX_ROUNDS = 3  # the first request for cases, and two more for replacements
# A case that only these decide is a look-up if the material has what they look for.
WORD_CHECKS = ("contains", "contains_any", "equals", "starts_with")
BESIDE = ("max_length", "not_contains", "not_regex")
MIN_ANSWERS = 2  # right ones, and wrong ones, that every case comes with
CHECK_KINDS = (
    *("contains", "contains_any", "not_contains", "equals", "starts_with", "regex", "not_regex"),
    *("json_schema", "max_length"),
)
ACTING_KINDS = ("file_exists", "file_contains", "command", "python")  # for students that act; run in the sandbox only
PLAIN_CHECKS = frozenset(["contains", "max_length"])  # an answer that just lists the words passes these
# A suite of at least so many cases needs other checks in a quarter of them, of at least so many kinds.
VARIETY_FROM, OTHER_KINDS = 10, 2
# What a writer can do about a leak: it cannot set every field that a person can.
_ELSEWHERE = "what is denied counts as absent already: look for more of the right answer, or where it stands in it"
WRITER_ADVICE = {
    "empty": "add a check that an empty answer fails, such as contains",
    "refusal": _ELSEWHERE,
    "denied": _ELSEWHERE,
}
SHORT_ANSWER = 200  # characters that no answer is called verbose for
LONG_ANSWER = 1_000  # characters beyond which an answer is verbose, unless a right one is longer


async def write_suite(
    subject: Material | Skill,
    model: Model,
    *,
    count: int = 12,
    author: str = "a model",
    budget: int = DEFAULT_BUDGET,
    existing: Sequence[Case] = (),
    acts: bool = False,
    tell: Tell = no_message,
) -> Suite:
    """Cases that pass the quality probes and tell their own right answers from wrong ones; others are retried twice.

    The writer reads the skill only where there is no material. Of `existing` cases it sees only train cases. A small
    model need not vary its checks or give answers.
    """
    material = Material("", skill=subject) if isinstance(subject, Skill) else subject
    material = await summarize(material, model, budget=budget, tell=tell)
    small = budget < SMALL_BUDGET
    writer = _SuiteWriter(model, count, material, author, tuple(existing), small=small, acts=acts, tell=tell)
    for number in range(MAX_ROUNDS):
        if len(writer.accepted) == count:
            break
        await writer.ask_for_missing(first=number == 0)
    for case in writer.spares:
        is_new = case.id not in writer.accepted and not _is_duplicate(case, writer.known)
        if len(writer.accepted) < count and is_new:
            writer.accept(case)
    cases, refused = tuple(writer.accepted.values()), writer.refused
    if len(cases) < max(3, count // 2):
        last = f"; the last one refused: {refused[-1]}" if refused else ""
        raise UpskillError(
            f"only {len(cases)} of {count} generated test cases can be used{last}",
            "Name a stronger model with --test-writer, or write the cases yourself and give them with --tests.",
        )
    if refused:
        tell(f"Sent back {len(refused)} generated cases whose checks did not tell right from wrong or broke a rule.")
    if missing_variety(cases, len(cases)):
        kinds = sorted(set[str]().union(*map(_other_kinds, cases)))
        tell(f"The generated cases have few kinds of checks beside contains: {', '.join(kinds) or 'none'}.")
    return Suite(cases, "generated")


def missing_variety(cases: Sequence[Case], count: int) -> int:
    """How many more cases with other kinds of checks than `contains` a suite of so many cases needs."""
    if count < VARIETY_FROM:
        return 0
    others = [kinds for case in cases if (kinds := _other_kinds(case))]
    return max(-(-count // 4) - len(others), OTHER_KINDS - len(set[str]().union(*others)), 0)


def is_look_up(case: Case, material: str) -> bool:
    """Whether a case only asks for words from the material."""
    deciding = [named for named in case.checks if named.name not in BESIDE]
    return bool(deciding) and all(
        named.name in WORD_CHECKS and _is_in(named, material.casefold()) for named in deciding
    )


def _is_in(named: SuiteCheck, material: str) -> bool:
    text = (as_mapping(named.config) or {"text": named.config}).get("text")
    found = [str(each).casefold() in material for each in as_list(text) or [text]]
    return any(found) if named.name in ("contains_any", "equals") else all(found)


def _other_kinds(case: Case) -> set[str]:
    return {named.name for named in case.checks} - PLAIN_CHECKS


@dataclass
class _SuiteWriter:
    model: Model
    count: int
    material: Material
    author: str
    existing: tuple[Case, ...]
    small: bool
    acts: bool
    tell: Tell
    accepted: dict[str, Case] = field(default_factory=dict[str, Case])
    spares: list[Case] = field(default_factory=list[Case])  # usable, but a case with another kind of check is wanted
    refused: list[str] = field(default_factory=list[str])  # why
    sent_back: list[str] = field(default_factory=list[str])  # of the last answer: why, and what it was
    cited: list[set[str]] = field(default_factory=list[set[str]])  # by these cases: the ids of pieces
    opener: SandboxOpener = field(default_factory=SandboxOpener)

    @property
    def reads(self) -> Reading:
        skill = self.material.skill
        if self.material.pieces or skill is None:
            return "material" if self.material.pieces else "task"
        return "memory" if is_from_memory(skill) else "skill"

    @property
    def _known_text(self) -> str:
        skill = self.material.skill
        texts = [piece.text for piece in self.material.pieces] or ([skill.body] if skill else [])
        return "\n".join(texts)

    @property
    def known(self) -> list[Case]:
        return [*self.existing, *self.accepted.values()]

    async def ask_for_missing(self, *, first: bool) -> None:
        try:
            items = await self._ask(self._pieces(), "" if first or self.small else self._variety_request())
        except Paused:
            if self.sent_back:  # whoever answers by hand wants to know before the next prompt is opened
                reasons = "".join(f"\n  - {why}" for why in self.refused[-len(self.sent_back) :])
                self.tell(f"Sent back {counted(len(self.sent_back), 'case')}:{reasons}")
            raise
        self.sent_back, self.cited = [], []
        for item in items:
            case, why = await self._read_case(item)
            left = self.count - len(self.accepted)
            if case is None:
                # The prompt is left out, as it may yet be held out.
                fields = {key: value for key, value in dict_or_empty(item).items() if key != "prompt"}
                written = f"\n  {json.dumps(fields, ensure_ascii=False)}" if fields else ""
                self.refused.append(why)
                self.sent_back.append(f"- {why}{written}")
                self.cited.append({*read_ids(fields.get("evidence"))} & self.material.ids - {TASK, OWN_KNOWLEDGE})
            elif left and (self.small or missing_variety([*self.accepted.values(), case], self.count) < left):
                self.accept(case)
            else:
                self.spares.append(case)

    def accept(self, case: Case) -> None:
        *_, held_out = split([*((known.id, known.held_out) for known in self.known), (case.id, None)])
        self.accepted[case.id] = replace(case, held_out=held_out)

    def _variety_request(self) -> str:
        cases = list(self.accepted.values())
        if not (needed := missing_variety(cases, self.count)):
            return ""
        used = set[str]().union(*map(_other_kinds, cases))
        unused = [kind for kind in self.kinds if kind not in PLAIN_CHECKS and kind not in used]
        return (
            f"At least {needed} of them must have a check of another kind than {' and '.join(sorted(PLAIN_CHECKS))};"
            f" not used so far: {', '.join(unused)}."
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*CHECK_KINDS, *ACTING_KINDS) if self.acts else CHECK_KINDS

    def _pieces(self) -> tuple[Piece, ...]:
        """All of the material, or only what the cases that were sent back cite, where these are all that is missing."""
        missing = self.count - len(self.accepted)
        if not self.sent_back or len(self.sent_back) < missing or not all(self.cited):
            return self.material.pieces
        cited = set[str]().union(*self.cited)
        return tuple(each for each in self.material.pieces if {each.id, *each.based_on} & cited)

    async def _ask(self, pieces: Sequence[Piece], variety: str) -> list[Any]:
        material, count = self.material, self.count - len(self.accepted)
        fields: dict[str, Any] = {"task": material.task} if material.task else {}
        if (skill := material.skill) and not material.pieces:
            fields |= {"name": skill.name, "description": skill.description, "body": redact(skill.body)}
        text = json.dumps(fields, ensure_ascii=False)
        if pieces:
            text += f"\n\n{quote(pieces)}"
        # No prompt contains a held-out case, not even this one.
        if prompts := [case.prompt for case in self.known if not case.held_out]:
            text += f"\n\nSome prompts that are there already, as JSON:\n{json.dumps(prompts[:40], ensure_ascii=False)}"
        if self.sent_back:
            text += "\n\nThese cases are sent back, each with what is wrong. Mend them, or write others:\n"
            text += "\n".join(self.sent_back[:20])
        if variety:
            text += f"\n\n{variety}"
        request = StructuredRequest(
            "writing test cases",
            read_prompt("write_suite", count=count) + (read_prompt("write_acting_cases") if self.acts else ""),
            text,
            _suite_schema(count, self.kinds, small=self.small),
            max_output_tokens=600 * count + 2000,
        )
        try:
            return await ask(self.model, request, lambda answer, _: list_or_empty(answer.get("cases")), repairs=0)
        except UpskillError as error:
            if isinstance(error.__cause__, InvalidAnswer):
                return []  # the next round asks again
            raise

    async def _read_case(self, item: Any) -> tuple[Case | None, str]:
        fields = as_mapping(item)
        if fields is None:
            return None, "a case that is not an object"
        if self.small:  # its answers would be of no use
            fields = {key: value for key, value in fields.items() if key not in ("right", "wrong")}
        checks = [dict_or_empty(check) for check in list_or_empty(fields.get("checks"))]
        # Not every model keeps to the schema, and a generated check must not ask a judge, nor run anything where
        # nothing acts.
        if strange := [kind for check in checks if (kind := str(check.get("kind"))) not in self.kinds]:
            return None, f"{strange[0]!r} is not a kind of check that was offered"
        ids = read_ids(fields.get("evidence"))
        try:
            case = Suite.parse(
                [
                    as_suite_case(fields, self.material.skill)
                    | {"evidence": list(self.material.resolve_citations(ids))}
                    | {"metadata": {"author": shared_name(self.author), READ: self.reads}}
                ],
                "a generated case",
            ).cases[0]
        except UsageError as error:
            return None, error.message
        if any(case.id == other.id for other in self.known):
            return None, f"the id {case.id!r} is there already"
        if _is_duplicate(case, self.known):
            return None, f"case {case.id!r}: another case asks the same"
        if overruled := overruled_answer(case.reference, case.evidence, self.material):
            return None, f"case {case.id!r}: {overruled}"
        for name, answers in () if self.small else (("right", case.right), ("wrong", case.wrong)):
            different = len({str(answer).strip() for answer in answers} - {""})
            if different < MIN_ANSWERS:
                few = counted(different, f"different {name} answer")
                return None, f"case {case.id!r}: {few}, at least {MIN_ANSWERS} are needed"
        others = [other for other in self.known if other.reference][-2:]
        weak = await probe_case(case, self.material.skill, self.opener, others)
        if not weak and case.needs_sandbox and await passes_untouched(case, self.opener):
            weak = [WeakCase(case.id, "untouched", "the folder as it was passes")]
        if not weak and is_look_up(case, self._known_text):
            case = replace(case, metadata={**case.metadata, LOOK_UP: True})
        return (None, "; ".join(each.explain(WRITER_ADVICE) for each in weak[:3])) if weak else (case, "")


def _is_duplicate(case: Case, others: Iterable[Case]) -> bool:
    return any(case.id in pair for pair in near_duplicates([*others, case]))


def _suite_schema(count: int, kinds: Sequence[str], *, small: bool) -> dict[str, Any]:
    text = text_schema(120 if small else 2000)
    answers = list_schema(text, 4, MIN_ANSWERS)
    check = object_schema(
        {
            "kind": {"type": "string", "enum": sorted(PLAIN_CHECKS) if small else list(kinds)},
            "texts": list_schema(text_schema(30 if small else 2000), 2 if small else 6),
            "number": {"type": "integer"},
            "exact": {"type": "boolean"},
        }
    )
    file = object_schema({"path": text_schema(100), "text": text})
    case = object_schema(
        {
            "id": text_schema(60),
            "prompt": text,
            **({} if small else {"words": {"type": "integer"}}),
            **({"files": list_schema(file, 6)} if "command" in kinds else {}),
            "checks": list_schema(check, 2 if small else 5, 1),
            "reference": text,
            **({} if small else {"right": answers, "wrong": answers}),
            "tags": list_schema(text_schema(30), 1 if small else 3),
            "evidence": list_schema(text_schema(20), 6),
        }
    )
    return object_schema({"cases": list_schema(case, count, 1)})


def as_suite_case(fields: Mapping[str, Any], skill: Skill | None) -> dict[str, Any]:
    written = [dict_or_empty(check) for check in list_or_empty(fields.get("checks"))]
    checks = [each for check in written for each in _read_check(check, str(fields.get("prompt")))]
    right, wrong = (list_or_empty(fields.get(name)) for name in ("right", "wrong"))
    length = _length(fields, right)
    if any(check.get("kind") in ACTING_KINDS for check in written):
        right, wrong = ([{"run": script} for script in scripts] for scripts in (right, wrong))
        length = {}
    elif not any("max_length" in check for check in checks):
        longest = max(len(str(answer)) for answer in (fields.get("reference", ""), *right))
        # It is verbose when it is well above the right ones; what just repeats the skill is.
        most = len(skill.body) - 1 if skill else LONG_ANSWER
        limit = max(longest, min(max(SHORT_ANSWER, 4 * longest), most))
        checks.append({"max_length": limit})
    files = [dict_or_empty(file) for file in list_or_empty(fields.get("files"))]
    unchanged = {key: fields[key] for key in ("id", "prompt", "reference", "tags") if key in fields}
    placed = {"files": {str(file.get("path")): file.get("text") for file in files}} if files else {}
    return {**unchanged, **placed, **length, "checks": checks, "right": right, "wrong": wrong}


def _length(fields: Mapping[str, Any], right: Sequence[Any]) -> dict[str, Any]:
    """How long an answer may be, and the prompt that asks for it; empty where it need not be said."""
    words, prompt = fields.get("words"), str(fields.get("prompt"))
    if not isinstance(words, int) or words < 1:
        return {}
    most = max(words, *(len(str(answer).split()) for answer in (fields.get("reference", ""), *right)))
    said = _names_number(prompt, most)
    return {"max_words": most, "prompt": prompt if said else f"{prompt.rstrip()} Answer in at most {most} words."}


def _names_number(prompt: str, number: int) -> bool:
    return re.search(rf"(?<!\d){number}(?!\d)", prompt) is not None


def _read_check(check: Mapping[str, Any], prompt: str) -> list[dict[str, Any]]:
    """A check as a suite file has it, without those that the writer may not choose."""
    kind, texts, exact = str(check.get("kind")), list_or_empty(check.get("texts")), bool(check.get("exact"))
    first, more = texts[0] if texts else "", texts[1:]
    match kind:
        case "max_length":
            number = check.get("number")  # brevity is the task only where the student is told so
            in_prompt = number and _names_number(prompt, number)
            return [{kind: {"characters": number, "brief": True}}] if in_prompt else []
        case "contains" | "contains_any" | "not_contains":
            return [{kind: {"text": texts, "asserted": True, **({"ignore_case": False} if exact else {})}}]
        case "regex" | "not_regex":
            return [{kind: {"pattern": text, "ignore_case": not exact, "asserted": True}} for text in texts or [""]]
        case "equals":
            return [{kind: {"text": texts, "exact": exact}}]
        case "starts_with":
            return [{kind: {"text": first, "exact": exact}}]
        case "json_schema":
            try:
                return [{kind: json.loads(first)}]
            except ValueError:
                return [{kind: {"schema": "not JSON"}}]
        case "file_exists":
            return [{kind: texts}]
        case "file_contains":
            return [{kind: {"path": first, "text": more, "ignore_case": not exact}}]
        case "command":
            return [{kind: {"run": first, **({"contains": more} if more else {})}}]
        case "python":
            return [{kind: {"file": "check.py", "source": first}}]
        case _:
            return [{kind: first}]
