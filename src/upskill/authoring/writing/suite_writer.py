"""A model writes test cases from a task and its material; only cases that pass the quality probes are kept."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from upskill.authoring.material.material import OWN_KNOWLEDGE, TASK, Material, Piece, quote
from upskill.authoring.saving.provenance import is_from_memory, shared_name
from upskill.authoring.writing.fresh_answers import AnsweredCase, fix, write_answers
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
from upskill.authoring.writing.summarize import (
    DEFAULT_BUDGET,
    SMALL_BUDGET,
    Tell,
    no_message,
    summarize,
)
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
MAX_KNOWN_PROMPTS = 40  # of cases that exist, for one who writes more
MAX_FIXES = 2  # requests to fix cases that judge fresh answers otherwise
# A case that only these decide is a look-up if the material has what they look for.
WORD_CHECKS = ("contains", "contains_any", "equals", "starts_with")
BESIDE = ("max_length", "not_contains", "not_regex")
CHECK_KINDS = (
    *("contains", "contains_any", "not_contains", "equals", "starts_with", "regex", "not_regex"),
    *("command_line", "json_schema", "max_length"),
)
ACTING_KINDS = (
    "file_exists",
    "file_contains",
    "command",
    "python",
)  # for students that act; run in the sandbox only
PLAIN_CHECKS = frozenset(
    ["contains", "max_length"]
)  # an answer that just lists the words passes these
# A suite of at least so many cases needs other checks in a quarter of them, of at least so many kinds.
VARIETY_FROM, OTHER_KINDS = 10, 2
CHALLENGES = (
    "challenges"  # in the metadata of a counterexample: the line of the skill that misleads
)
SHORT_ANSWER = 200  # characters that no answer is called verbose for
LONG_ANSWER = 1_000  # characters beyond which an answer is verbose, unless a right one is longer


async def write_suite(  # noqa: PLR0913 - options, by name
    subject: Material | Skill,
    model: Model,
    *,
    count: int = 12,
    author: str = "a model",
    budget: int = DEFAULT_BUDGET,
    existing: Sequence[Case] = (),
    acts: bool = False,
    challenges: bool = False,
    tell: Tell = no_message,
) -> Suite:
    """Cases that pass the quality probes and tell fresh right answers from wrong ones; others are retried twice.

    The writer reads the skill only where there is no material. Of `existing` cases it sees only train cases. A small
    model need not vary its checks, and is asked for no answers. With `challenges`, they are cases on which the skill
    may mislead a student: they pass the probes, and nothing else is known of them.
    """
    material = Material("", skill=subject) if isinstance(subject, Skill) else subject
    material = await summarize(material, model, budget=budget, tell=tell)
    small = budget < SMALL_BUDGET
    writer = _SuiteWriter(
        model,
        count,
        material,
        author,
        tuple(existing),
        small=small,
        acts=acts,
        tell=tell,
        challenges=challenges,
    )
    for number in range(MAX_ROUNDS):
        if len(writer.accepted) == count:
            break
        await writer.ask_for_missing(first=number == 0)
    for case in writer.spares:
        is_new = case.id not in writer.accepted and not _is_duplicate(case, writer.known)
        if len(writer.accepted) < count and is_new:
            writer.accept(case)
    if writer.refused:
        refused = counted(len(writer.refused), "case")
        tell(f"Sent back {refused} whose checks did not tell right from wrong or broke a rule.")
    if challenges:
        return Suite(tuple(writer.accepted.values()), "proposals")
    if writer.accepted and not small:
        await writer.try_fresh_answers()
    cases, refused = tuple(writer.accepted.values()), writer.refused
    if len(cases) < max(1 if existing else 3, count // 2):
        last = f". The last rejected one: {refused[-1]}" if refused else ""
        raise UpskillError(
            f"only {len(cases)} of {count} generated test cases are usable{last}",
            "Choose a stronger model with --test-writer, or write the cases yourself and pass them with --tests.",
        )
    if missing_variety(cases, len(cases)):
        kinds = sorted(set[str]().union(*map(_other_kinds, cases)))
        tell(
            f"Apart from contains, the generated cases use few kinds of checks: {', '.join(kinds) or 'none'}."
        )
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
    challenges: bool = False  # they are to be cases on which the skill misleads
    accepted: dict[str, Case] = field(default_factory=dict[str, Case])
    written: dict[str, dict[str, Any]] = field(
        default_factory=dict[str, "dict[str, Any]"]
    )  # the fields of each case
    spares: list[Case] = field(
        default_factory=list[Case]
    )  # usable, but a task or another kind of check is wanted
    refused: list[str] = field(default_factory=list[str])  # why
    sent_back: list[str] = field(
        default_factory=list[str]
    )  # of the last answer: why, and what it was
    cited: list[set[str]] = field(
        default_factory=list[set[str]]
    )  # by these cases: the ids of pieces
    opener: SandboxOpener = field(default_factory=SandboxOpener)

    @property
    def reads(self) -> Reading:
        skill = self.material.skill
        if (self.material.pieces and not self.challenges) or skill is None:
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
        is_plain = self.small or self.challenges
        try:
            items = await self._ask(self._pieces(), "" if first or is_plain else self._wanted())
        except Paused:
            if (
                self.sent_back
            ):  # whoever answers by hand wants to know before the next prompt is opened
                reasons = "".join(f"\n  - {why}" for why in self.refused[-len(self.sent_back) :])
                self.tell(f"Sent back {counted(len(self.sent_back), 'case')}:{reasons}")
            raise
        self.sent_back, self.cited = [], []
        for item in items:
            case, why = await self._read_case(item)
            left = self.count - len(self.accepted)
            if case is None:
                fields = dict_or_empty(item)
                written = f"\n  {json.dumps(fields, ensure_ascii=False)}" if fields else ""
                self.refused.append(why)
                self.sent_back.append(f"- {why}{written}")
                self.cited.append(
                    {*read_ids(fields.get("evidence"))} & self.material.ids - {TASK, OWN_KNOWLEDGE}
                )
            elif left and (is_plain or self._fits(case, left, first=first)):
                self.accept(case)
            else:
                self.spares.append(case)

    def _fits(self, case: Case, left: int, *, first: bool) -> bool:
        cases = [*self.accepted.values(), case]
        # Look-ups beyond half of the suite are set aside once.
        look_ups = (
            sum(LOOK_UP in each.metadata for each in cases)
            if first and LOOK_UP in case.metadata
            else 0
        )
        return missing_variety(cases, self.count) < left and look_ups <= self.count // 2

    def accept(self, case: Case) -> None:
        *_, held_out = split(
            [*((known.id, known.held_out) for known in self.known), (case.id, None)]
        )
        self.accepted[case.id] = replace(case, held_out=held_out)

    def _wanted(self) -> str:
        """What the cases that are still missing have to be."""
        cases, lines = list(self.accepted.values()), list[str]()
        if needed := missing_variety(cases, self.count):
            used = set[str]().union(*map(_other_kinds, cases))
            unused = [kind for kind in self.kinds if kind not in PLAIN_CHECKS and kind not in used]
            plain = " and ".join(sorted(PLAIN_CHECKS))
            lines.append(
                f"At least {needed} of them must have a check other than {plain}; not used so far: {', '.join(unused)}."
            )
        if look_ups := sum(LOOK_UP in case.metadata for case in self.spares):
            lines.append(
                f"More than half of the cases only look up words from the material, so {look_ups} of these were set"
                " aside. Write tasks instead: the whole command, file or function for a situation of its own, or"
                " two facts put together, with checks that look for what no single line says."
            )
        return "\n".join(lines)

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

    def _about(self, pieces: Sequence[Piece]) -> str:
        """The task, these pieces of its material, and what skill it is about; its body only where there is none."""
        material = self.material
        fields: dict[str, Any] = {"task": material.task} if material.task else {}
        if skill := material.skill:
            fields |= _describe_skill(skill, body=not material.pieces or self.challenges)
        text = json.dumps(fields, ensure_ascii=False)
        return f"{text}\n\n{quote(pieces)}" if pieces else text

    @property
    def _kinds_prompt(self) -> str:
        return (
            read_prompt("check_kinds") + (read_prompt("acting_kinds") if self.acts else "")
        ).strip()

    async def _ask(self, pieces: Sequence[Piece], wanted: str) -> list[Any]:
        count, text = self.count - len(self.accepted), self._about(pieces)
        # Of held-out cases even this prompt has only those that were sent back, whose checks are to be fixed.
        if prompts := [case.prompt for case in self.known if not case.held_out][:MAX_KNOWN_PROMPTS]:
            more = len(self.known) - len(prompts)
            which = f" (of {len(self.known)}; the other {more} are not shown)" if more else ""
            text += f"\n\nPrompts that already exist{which}, as JSON:\n{json.dumps(prompts, ensure_ascii=False)}"
        if self.sent_back:
            text += "\n\nThese cases were sent back. Each line says what is wrong. Fix them, or write others:\n"
            text += "\n".join(self.sent_back[:20])
        if wanted:
            text += f"\n\n{wanted}"
        name = "write_counterexamples" if self.challenges else "write_suite"
        system = read_prompt(name, cases=counted(count, "case"), kinds=self._kinds_prompt)
        request = StructuredRequest(
            "writing test cases",
            system + (read_prompt("write_acting_cases") if self.acts else ""),
            text,
            _suite_schema(count, self.kinds, small=self.small, challenges=self.challenges),
            max_output_tokens=600 * count + 2000,
        )
        try:
            return await ask(
                self.model, request, lambda answer, _: list_or_empty(answer.get("cases")), repairs=0
            )
        except UpskillError as error:
            if isinstance(error.__cause__, InvalidAnswer):
                return []  # the next round asks again
            raise

    async def _read_case(self, item: Any) -> tuple[Case | None, str]:
        fields = as_mapping(item)
        if fields is None:
            return None, "a case that is not an object"
        # Its own answers would be of no use: whoever wrote the checks writes what they look for.
        fields = {key: value for key, value in fields.items() if key not in ("right", "wrong")}
        try:
            case = self._parse(fields)
        except UsageError as error:
            return None, error.message
        if any(case.id == other.id for other in self.known):
            return None, f"the id {case.id!r} is already taken"
        if _is_duplicate(case, self.known):
            return None, f"case {case.id!r}: another case asks the same"
        if overruled := overruled_answer(case.reference, case.evidence, self.material):
            return None, f"case {case.id!r}: {overruled}"
        if weak := await self._probe(case):
            first, *others = map(str, weak[:3])
            return None, "; ".join(
                [first, *(why.removeprefix(f"case {case.id!r}: ") for why in others)]
            )
        self.written[case.id] = fields
        return case, ""

    def _parse(self, fields: Mapping[str, Any]) -> Case:
        checks = [dict_or_empty(check) for check in list_or_empty(fields.get("checks"))]
        # Not every model keeps to the schema, and a generated check must not ask a judge, nor run anything where
        # nothing acts.
        if strange := [
            kind for check in checks if (kind := str(check.get("kind"))) not in self.kinds
        ]:
            raise UsageError(f"{strange[0]!r} is not one of the kinds of checks above")
        ids = read_ids(fields.get("evidence"))
        challenged = {CHALLENGES: str(fields["line"])} if fields.get("line") else {}
        (case,) = Suite.parse(
            [
                as_suite_case(fields, self.material.skill)
                | {"evidence": list(self.material.resolve_citations(ids))}
                | {"metadata": {"author": shared_name(self.author), READ: self.reads, **challenged}}
            ],
            "a generated case",
        ).cases
        return (
            replace(case, metadata={**case.metadata, LOOK_UP: True})
            if is_look_up(case, self._known_text)
            else case
        )

    async def _probe(self, case: Case) -> list[WeakCase]:
        others = [other for other in self.known if other.reference][-2:]
        weak = await probe_case(case, self.material.skill, self.opener, others)
        if not weak and case.needs_sandbox and await passes_untouched(case, self.opener):
            weak = [WeakCase(case.id, "untouched", "the folder as it was passes")]
        return weak

    async def try_fresh_answers(self) -> None:
        """Hold the cases against answers of somebody who has not seen their checks; what judges them otherwise is
        fixed by its writer, alone, or left out."""
        self.tell(f"Writing fresh answers for {counted(len(self.accepted), 'case')}...")
        answers = await write_answers(
            self.model, list(self.accepted.values()), self._about(self.material.pieces)
        )
        tried = {
            name: await self._try(AnsweredCase(self.written[name], answers[name]))
            for name in self.accepted
        }
        judged = Counter(
            (name[0], name not in each.problems) for each in tried.values() for name in each.answers
        )
        passed, failed = (
            f"{judged[it, True]} of {judged[it, True] + judged[it, False]}" for it in "rw"
        )
        sent_back = {name: each for name, each in tried.items() if each.problems}
        more = f"; sent {counted(len(sent_back), 'case')} back to be fixed" if sent_back else ""
        self.tell(f"Fresh answers: {passed} right answers pass, {failed} wrong answers fail{more}.")
        for _ in range(MAX_FIXES):
            if not sent_back:
                break
            cited = set[str]().union(
                *(read_ids(each.fields.get("evidence")) for each in sent_back.values())
            )
            pieces = [each for each in self.material.pieces if {each.id, *each.based_on} & cited]
            material = quote(pieces) if pieces else ""
            fixed = await fix(
                self.model, sent_back, material, self._kinds_prompt, _check_schema(self.kinds)
            )
            sent_back = {name: await self._try(each) for name, each in fixed.items()}
            tried |= sent_back
            sent_back = {
                name: each for name, each in sent_back.items() if each.problems and each.has_enough
            }
        left_out = [
            name
            for name, each in tried.items()
            if each.case is None or each.problems or not each.has_enough
        ]
        self.accepted = {
            name: replace(each.case, held_out=self.accepted[name].held_out)
            for name, each in tried.items()
            if each.case and name not in left_out
        }
        if left_out:
            cases = counted(len(left_out), "case")
            self.tell(f"Left out {cases} whose checks and answers disagree: {', '.join(left_out)}.")

    async def _try(self, answered: AnsweredCase) -> AnsweredCase:
        try:
            case = self._parse(
                {**answered.fields, "right": answered.named("r"), "wrong": answered.named("w")}
            )
        except UsageError as error:
            return replace(answered, case=None, problems={"checks": error.message})
        return replace(
            answered, case=case, problems=_explain_problems(answered, await self._probe(case))
        )


def _explain_problems(answered: AnsweredCase, weaknesses: Iterable[WeakCase]) -> dict[str, str]:
    """What the checks get wrong, by the name of the answer, or of the probe."""
    problems: dict[str, str] = {}
    for weak in weaknesses:
        names = [
            name for name, text in answered.answers.items() if weak.answer and text == weak.answer
        ]
        why = {"right": f"is right, and fails: {weak.reason}", "wrong": "is wrong, and passes"}
        problems |= dict.fromkeys(names, why.get(weak.probe, "")) or {weak.probe: str(weak)}
    return problems


def _describe_skill(skill: Skill, *, body: bool = True) -> dict[str, str]:
    """As a request may have it: without secrets."""
    fields = {"name": skill.name, "description": redact(skill.description)}
    return fields | ({"body": redact(skill.body)} if body else {})


def _is_duplicate(case: Case, others: Iterable[Case]) -> bool:
    return any(case.id in pair for pair in near_duplicates([*others, case]))


def _check_schema(kinds: Sequence[str], *, small: bool = False) -> dict[str, Any]:
    return object_schema(
        {
            "kind": {"type": "string", "enum": sorted(PLAIN_CHECKS) if small else list(kinds)},
            "texts": list_schema(text_schema(30 if small else 2000), 2 if small else 6),
            "number": {"type": "integer"},
            "exact": {"type": "boolean"},
        }
    )


def _suite_schema(
    count: int, kinds: Sequence[str], *, small: bool, challenges: bool = False
) -> dict[str, Any]:
    text = text_schema(120 if small else 2000)
    path = text_schema(100)
    file = object_schema({"path": path, "text": text})
    workspace = {"files": list_schema(file, 6), "outputs": list_schema(path, 6)}
    case = object_schema(
        {
            "id": text_schema(60),
            **({"line": text_schema(300)} if challenges else {}),
            "prompt": text,
            **({} if small else {"words": {"type": "integer"}}),
            **(workspace if "command" in kinds else {}),
            "checks": list_schema(_check_schema(kinds, small=small), 2 if small else 5, 1),
            "reference": text,
            "tags": list_schema(text_schema(30), 1 if small else 3),
            "evidence": list_schema(text_schema(20), 6),
        }
    )
    return object_schema({"cases": list_schema(case, count, 1)})


def as_suite_case(fields: Mapping[str, Any], skill: Skill | None) -> dict[str, Any]:
    written = [dict_or_empty(check) for check in list_or_empty(fields.get("checks"))]
    checks = [each for check in written for each in _read_check(check, str(fields.get("prompt")))]
    right, wrong = (list_or_empty(fields.get(name)) for name in ("right", "wrong"))
    more = _length(fields)
    if any(check.get("kind") in ACTING_KINDS for check in written):
        scripts = [fields.get("reference", ""), *right]
        right, wrong = (
            [{"run": script} for script in dict.fromkeys(map(str, each))]
            for each in (scripts, wrong)
        )
        more = {"outputs": list_or_empty(fields.get("outputs")) or ["**"]}
    elif not any("max_length" in check for check in checks):
        longest = max(len(str(answer)) for answer in (fields.get("reference", ""), *right))
        # It is verbose when it is well above the right ones; what just repeats the skill is.
        most = len(skill.body) - 1 if skill else LONG_ANSWER
        limit = max(longest, min(max(SHORT_ANSWER, 4 * longest), most))
        checks.append({"max_length": limit})
    placed = map(dict_or_empty, list_or_empty(fields.get("files")))
    files = {file.get("path"): file.get("text") for file in placed}
    unchanged = {key: fields[key] for key in ("id", "prompt", "reference", "tags") if key in fields}
    return {**unchanged, "files": files, **more, "checks": checks, "right": right, "wrong": wrong}


def _length(fields: Mapping[str, Any]) -> dict[str, Any]:
    """How long an answer may be, and the prompt that asks for it; empty where it need not be said."""
    words, prompt = fields.get("words"), str(fields.get("prompt"))
    if not isinstance(words, int) or words < 1:
        return {}
    most = max(words, len(str(fields.get("reference", "")).split()))
    said = _names_number(prompt, most)
    return {
        "max_words": most,
        "prompt": prompt if said else f"{prompt.rstrip()}\n\nAnswer in at most {most} words.",
    }


def _names_number(prompt: str, number: int) -> bool:
    return re.search(rf"(?<!\d){number}(?!\d)", prompt) is not None


def _read_check(check: Mapping[str, Any], prompt: str) -> list[dict[str, Any]]:
    """A check as a suite file has it, without those that the writer may not choose."""
    kind, texts, exact = (
        str(check.get("kind")),
        list_or_empty(check.get("texts")),
        bool(check.get("exact")),
    )
    first, more = texts[0] if texts else "", texts[1:]
    match kind:
        case "max_length":
            number = check.get("number")  # brevity is the task only where the student is told so
            in_prompt = number and _names_number(prompt, number)
            return [{kind: {"characters": number, "brief": True}}] if in_prompt else []
        case "contains" | "contains_any" | "not_contains":
            return [{kind: {"text": texts, "ignore_case": False} if exact else texts}]
        case "regex" | "not_regex":
            return [{kind: {"pattern": text, "ignore_case": not exact}} for text in texts or [""]]
        case "equals":
            return [{kind: {"text": texts, "exact": exact}}]
        case "starts_with":
            return [{kind: {"text": first, "exact": exact}}]
        case "command_line":
            aliases = [text.split() for text in texts if text.startswith("-")]
            commands = [text for text in texts if not text.startswith("-")]
            return [{kind: {"command": commands, "aliases": aliases}}]
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
