"""A model writes test cases from a task and its material, somebody else answers them, and their checks are tried.

Three requests: `write_cases`, `add_answers` (by somebody who has not seen the checks) and `fix_checks` (of the cases
that break a rule or judge an answer otherwise, each once). `write_suite` makes them one after the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from upskill.authoring.material.material import Material, free_id, quote
from upskill.authoring.saving.provenance import is_from_memory, shared_name
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    InvalidAnswer,
    NoUsableAnswer,
    StructuredRequest,
    Tell,
    ask,
    list_schema,
    no_message,
    read_ids,
    read_items,
    text_schema,
)
from upskill.authoring.writing.summarize import DEFAULT_BUDGET, summarize
from upskill.checks import SuiteCheck
from upskill.errors import UpskillError, UsageError
from upskill.models import Model
from upskill.plain import as_list, as_mapping, counted, list_or_empty, object_schema
from upskill.skills import Skill
from upskill.suites import FAILED_BY, LOOK_UP, READ, Case, Reading, Suite
from upskill.suites.near_duplicates import near_duplicates
from upskill.suites.quality import SandboxOpener, WeakCase, passes_untouched, probe_case
from upskill.suites.suite import hash_to_unit
from upskill.traces.redaction.redact import redact

CASES = 24  # in one request; half of them are kept fresh
ANSWERS = 3  # right ones, and wrong ones, for each case
MIN_ANSWERS = 2  # of each that a case keeps, after those that its writer disputes
MAX_KNOWN_PROMPTS = 40  # of cases that exist, for one who writes more
# A case that only these decide is a look-up if the material has what they look for.
WORD_CHECKS = ("contains", "contains_any", "equals", "starts_with")
BESIDE = ("max_length", "not_contains", "not_regex")
CHECK_KINDS = (*WORD_CHECKS, *BESIDE, "regex", "command_line", "json_schema")
# For students that act; run in the sandbox only.
ACTING_KINDS = ("file_exists", "file_contains", "command", "python")
CHALLENGES = (
    "challenges"  # in the metadata of a counterexample: the line of the skill that misleads
)
SHORT_ANSWER = 200  # characters that no answer is called verbose for
LONG_ANSWER = 1_000  # characters beyond which an answer is verbose, unless a right one is longer
MAX_WRITTEN = 4  # times as many as are wanted, where only hard ones are
UNASKED_SHARE = 4  # one in four is kept whatever the student says, so that harm can show


@dataclass(frozen=True, kw_only=True)
class TestWriter:
    """Who writes cases, from what, and beside which. It reads the skill only where there is no material."""

    __test__ = False  # for pytest

    model: Model
    material: Material
    author: str = "a model"
    acts: bool = False  # the students work in a folder
    challenges: bool = False  # the cases are to be ones on which the skill misleads
    existing: tuple[Case, ...] = ()  # of these it sees only cases that are not held out
    opener: SandboxOpener = field(default_factory=SandboxOpener)

    @property
    def reads(self) -> Reading:
        skill = self.material.skill
        if (self.material.pieces and not self.challenges) or skill is None:
            return "material" if self.material.pieces else "task"
        return "memory" if is_from_memory(skill) else "skill"

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*CHECK_KINDS, *ACTING_KINDS) if self.acts else CHECK_KINDS

    def prompt(self, name: str, **values: object) -> str:
        """A prompt that explains the kinds of checks."""
        kinds = read_prompt("check_kinds") + (read_prompt("acting_kinds") if self.acts else "")
        return read_prompt(name, kinds=kinds.strip(), **values)

    def about(self, ids: Iterable[str] = ()) -> str:
        """The task, the skill where there is one, and the material that has these ids."""
        material = self.material
        fields: dict[str, Any] = {"task": material.task} if material.task else {}
        if skill := material.skill:
            fields |= {"name": skill.name, "description": redact(skill.description)}
            if not material.pieces or self.challenges:
                fields["body"] = redact(skill.body)
        text = json.dumps(fields, ensure_ascii=False)
        return f"{text}\n\n{quote(material.cited(ids))}" if material.pieces else text


@dataclass(frozen=True)
class WrittenCase:
    """A case as it was handed in, with what is found wrong with it."""

    fields: Mapping[str, Any]
    case: Case | None = None  # None: its checks cannot be read
    answers: Mapping[str, str] = field(default_factory=dict[str, str])  # by name: r1, …, w1, …
    problems: Mapping[str, str] = field(default_factory=dict[str, str])  # by answer or probe
    is_fresh: bool = False

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    @property
    def sound(self) -> Case | None:
        return None if self.problems else self.case

    def named(self, letter: str) -> list[str]:
        return [text for name, text in self.answers.items() if name.startswith(letter)]


class TooFewCases(UpskillError):
    """Less than half of the generated cases are usable."""


async def write_suite(  # noqa: PLR0913 - options, by name
    subject: Material | Skill,
    model: Model,
    *,
    count: int = CASES,
    author: str = "a model",
    budget: int = DEFAULT_BUDGET,
    existing: Sequence[Case] = (),
    acts: bool = False,
    challenges: bool = False,
    tell: Tell = no_message,
) -> Suite:
    """Cases that pass the quality probes and tell fresh right answers from wrong ones."""
    material = Material("", skill=subject) if isinstance(subject, Skill) else subject
    writer = TestWriter(
        model=model,
        material=await summarize(material, model, budget=budget, tell=tell),
        author=author,
        acts=acts,
        challenges=challenges,
        existing=tuple(existing),
    )
    written = await write_cases(writer, count, tell=tell)
    if challenges:
        return Suite(tuple(each.sound for each in written if each.sound))
    fewest = 1 if existing else 3
    check_enough(written, len(written), count, fewest)
    written = await add_answers(writer, written, tell=tell)
    return as_suite(await fix_checks(writer, written), count, fewest, tell)


async def write_cases(
    writer: TestWriter, count: int, *, title: str = "1-tests", tell: Tell = no_message
) -> list[WrittenCase]:
    """So many cases, of which a hash keeps half fresh; those that ask what another asks are left out."""
    items = await _ask_for_cases(writer, count, title)
    written: list[WrittenCase] = []
    for fields in items:
        if each := await _read_case(writer, fields, written):
            written.append(each)
    if repeated := len(items) - len(written):
        tell(f"Left out {counted(repeated, 'case')} that ask nothing, or what another case asks.")
    written = written[:count]
    by_hash = sorted(written, key=lambda each: hash_to_unit(str(each.fields["prompt"])))
    fresh = {each.id for each in by_hash[: len(written) // 2]}
    look_ups = sum(bool(each.case and LOOK_UP in each.case.metadata) for each in written)
    if 2 * look_ups > len(written):
        tell(f"{look_ups} of {len(written)} cases only look up words from the material.")
    return [replace(each, is_fresh=each.id in fresh) for each in written]


async def _ask_for_cases(writer: TestWriter, count: int, title: str) -> list[dict[str, Any]]:
    text = writer.about()
    known = writer.existing
    # Of held-out cases not even this prompt has anything.
    prompts = [case.prompt for case in known if not case.held_out][:MAX_KNOWN_PROMPTS]
    if prompts:
        left = len(known) - len(prompts)
        which = f" (of {len(known)}; the other {left} are not shown)" if left else ""
        listed = json.dumps(prompts, ensure_ascii=False)
        text += f"\n\nPrompts that already exist{which}, as JSON:\n{listed}"
    name = "write_counterexamples" if writer.challenges else "write_suite"
    system = writer.prompt(name, cases=counted(count, "case"))
    request = StructuredRequest(
        "writing test cases",
        system + (read_prompt("write_acting_cases") if writer.acts else ""),
        text,
        _suite_schema(count, writer),
        max_output_tokens=600 * count + 2000,
        title=title,
    )
    return await ask(writer.model, request, _read_cases)


async def _read_cases(answer: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    items = read_items(answer.get("cases"))
    if not items:
        raise InvalidAnswer("it has no list `cases`")
    return items, []


async def _read_case(
    writer: TestWriter, fields: Mapping[str, Any], written: Sequence[WrittenCase]
) -> WrittenCase | None:
    """None for one that asks nothing, or what another case asks."""
    prompt = str(fields.get("prompt") or "").strip()
    if not prompt:
        return None
    known = [*writer.existing, *(each.case for each in written if each.case)]
    used = {*(case.id for case in known), *(each.id for each in written)}
    name = free_id(str(fields.get("id") or "case"), used)
    # Its own answers would be of no use: whoever wrote the checks writes what they look for.
    own = {key: value for key, value in fields.items() if key not in ("right", "wrong")}
    tried = await _try(writer, WrittenCase({**own, "id": name, "prompt": prompt}), known)
    if tried.case and any(name in pair for pair in near_duplicates([*known, tried.case])):
        return None
    return tried


async def add_answers(
    writer: TestWriter,
    cases: Sequence[WrittenCase],
    *,
    title: str = "2-answers",
    tell: Tell = no_message,
) -> list[WrittenCase]:
    """The cases with right and wrong answers by somebody who has not seen their checks, and what these get wrong."""
    if not cases:
        return []
    tell(f"Writing answers to {counted(len(cases), 'case')}...")
    ids = [each.id for each in cases]
    texts = list_schema(text_schema(2000), ANSWERS, MIN_ANSWERS)
    name = {"type": "string", "enum": ids}
    item = object_schema({"case": name, "right": texts, "wrong": texts})
    questions = "\n".join(map(_question, cases))
    request = StructuredRequest(
        "writing fresh answers",
        read_prompt("write_answers", count=ANSWERS),
        f"{writer.about(_cited_by(cases))}\n\nThe questions:\n{questions}",
        object_schema({"answers": list_schema(item, len(cases), len(cases))}),
        max_output_tokens=400 * len(cases) + 1600,
        title=title,
    )

    async def read(said: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
        answers = {str(item.get("case")): item for item in read_items(said.get("answers"))}
        missing = [name for name in ids if name not in answers]
        flaws = [f"it has no answers to {', '.join(missing[:3])}"] if missing else []
        if len(missing) == len(ids):
            raise InvalidAnswer(flaws[0])
        return answers, flaws

    answers = await ask(writer.model, request, read)
    answered: list[WrittenCase] = []
    for each in cases:
        named: dict[str, str] = {}
        for kind in ("right", "wrong"):
            for number, text in enumerate(list_or_empty(answers.get(each.id, {}).get(kind)), 1):
                if str(text).strip():
                    named[f"{kind[0]}{number}"] = str(text)
        answered.append(await _try(writer, replace(each, answers=named)))
    right, wrong = (_count_judged(answered, letter) for letter in "rw")
    tell(f"{right} right answers pass, {wrong} wrong answers fail.")
    return answered


def _cited_by(cases: Iterable[WrittenCase]) -> set[str]:
    """The pieces that the cases rest on; none, which stands for all, where a case names none."""
    evidence = [read_ids(each.fields.get("evidence")) for each in cases]
    return set[str]().union(*evidence) if all(evidence) else set()


def _question(each: WrittenCase) -> str:
    question = {"id": each.id, "prompt": each.case.prompt if each.case else each.fields["prompt"]}
    if each.case and each.case.needs_sandbox:
        question |= {"acts": True, "files": dict(each.case.files)}
    return json.dumps(question, ensure_ascii=False)


def _count_judged(cases: Iterable[WrittenCase], letter: str) -> str:
    well = [
        name not in each.problems
        for each in cases
        for name in each.answers
        if name.startswith(letter)
    ]
    return f"{sum(well)} of {len(well)}"


async def fix_checks(
    writer: TestWriter, cases: Sequence[WrittenCase], *, title: str = "3-checks"
) -> list[WrittenCase]:
    """The cases, those with problems as their writer fixed them. What is still wrong then stays written on them."""
    broken = {each.id: each for each in cases if not each.sound}
    if not broken:
        return [*cases]
    fields = {
        "id": {"type": "string", "enum": [*broken]},
        "checks": list_schema(_check_schema(writer.kinds), 5, 1),
        "disputed": list_schema(text_schema(3), 2 * ANSWERS),
    }
    text = "\n".join(map(_describe_broken, broken.values()))
    if cited := _cited_by(broken.values()):
        text = f"{quote(writer.material.cited(cited))}\n\n{text}"
    request = StructuredRequest(
        "fixing test cases",
        writer.prompt("fix_checks", fewest=MIN_ANSWERS),
        text,
        object_schema({"cases": list_schema(object_schema(fields), len(broken), 1)}),
        max_output_tokens=500 * len(broken) + 2000,
        title=title,
    )
    try:
        items = await ask(writer.model, request, _read_cases, required=False)
    except NoUsableAnswer:
        return [*cases]
    for item in items:
        if before := broken.get(str(item.get("id"))):
            # Only what is judged otherwise can be disputed.
            disputed = {*read_ids(item.get("disputed"))} & {*before.problems}
            answers = {key: text for key, text in before.answers.items() if key not in disputed}
            fixed = {**before.fields, "checks": item.get("checks")}
            broken[before.id] = await _try(writer, replace(before, fields=fixed, answers=answers))
    return [broken.get(each.id, each) for each in cases]


def _describe_broken(each: WrittenCase) -> str:
    kept = {name: value for name, value in each.fields.items() if name not in ("tags", "evidence")}
    kept |= {"answers": dict(each.answers), "problems": dict(each.problems)}
    return json.dumps(kept, ensure_ascii=False)


def as_suite(
    written: Sequence[WrittenCase], count: int, fewest: int = 3, tell: Tell = no_message
) -> Suite:
    """The sound cases; TooFewCases where less than half are."""
    left_out: list[str] = []
    cases: list[Case] = []
    for each in written:
        few = each.answers and min(len({*each.named(letter)}) for letter in "rw") < MIN_ANSWERS
        if each.sound is None or few:
            left_out.append(each.id)
        else:
            cases.append(replace(each.sound, held_out=each.is_fresh))
    if left_out:
        what = (
            f"{counted(len(left_out), 'case')} whose checks are too weak or judge an answer wrongly"
        )
        tell(f"Left out {what}: {', '.join(left_out)}.")
    check_enough(written, len(cases), count, fewest)
    return Suite(tuple(cases), "generated")


def check_enough(written: Sequence[WrittenCase], usable: int, count: int, fewest: int = 3) -> None:
    """TooFewCases where less than half are usable."""
    if usable >= max(fewest, count // 2):
        return
    problems = (f"{each.id}: {why}" for each in written for why in each.problems.values())
    last = next((f". One that is not: {why}" for why in problems), "")
    raise TooFewCases(
        f"only {usable} of {count} generated test cases are usable{last}",
        "Choose a stronger model with --test-writer, or write the cases yourself and pass them with --tests.",
    )


async def _try(
    writer: TestWriter, written: WrittenCase, others: Sequence[Case] = ()
) -> WrittenCase:
    """Hold a case against answers that know nothing, and against those that somebody else wrote to it."""
    fields = {**written.fields, "right": written.named("r"), "wrong": written.named("w")}
    try:
        case = _parse_case(writer, fields)
    except UsageError as error:
        return replace(written, case=None, problems={"checks": error.message})
    references = [other for other in others if other.reference][-2:]
    weak = await probe_case(case, writer.material.skill, writer.opener, references)
    if case.needs_sandbox and await passes_untouched(case, writer.opener):
        weak.append(WeakCase(case.id, "untouched", "the folder as it was passes"))
    # What the checks get wrong, by the name of the answer, or of the probe.
    problems: dict[str, str] = {}
    for each in weak:
        why = {"right": f"is right, and fails: {each.reason}", "wrong": "is wrong, and passes"}
        names = [name for name, text in written.answers.items() if text == each.answer != ""]
        for name in names:
            problems[name] = why.get(each.probe, "")
        if not names:
            problems[each.probe] = str(each)
    return replace(written, case=case, problems=problems)


def _parse_case(writer: TestWriter, fields: Mapping[str, Any]) -> Case:
    # Not every model keeps to the schema, and a generated check must not ask a judge, nor run anything where
    # nothing acts.
    for check in read_items(fields.get("checks")):
        if check.get("kind") not in writer.kinds:
            kind = str(check.get("kind"))
            raise UsageError(f"{kind!r} is not one of the kinds of checks above")
    material = writer.material
    metadata: dict[str, Any] = {"author": shared_name(writer.author), READ: writer.reads}
    if fields.get("line"):
        metadata[CHALLENGES] = str(fields["line"])
    evidence = material.resolve_citations(read_ids(fields.get("evidence")))
    row = as_suite_case(fields, material.skill) | {"evidence": [*evidence], "metadata": metadata}
    (case,) = Suite.parse([row], "a generated case").cases
    known = "\n".join(piece.text for piece in material.pieces)
    if is_look_up(case, known or (material.skill.body if material.skill else "")):
        metadata = {**case.metadata, LOOK_UP: True}
        case = replace(case, metadata=metadata)
    return replace(case, held_out=False)


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


def _check_schema(kinds: Sequence[str]) -> dict[str, Any]:
    return object_schema(
        {
            "kind": {"type": "string", "enum": list(kinds)},
            "texts": list_schema(text_schema(2000), 6),
            "number": {"type": "integer"},
            "exact": {"type": "boolean"},
        }
    )


def _suite_schema(count: int, writer: TestWriter) -> dict[str, Any]:
    text = text_schema(2000)
    path = text_schema(100)
    fields: dict[str, Any] = {"id": text_schema(60)}
    if writer.challenges:
        fields["line"] = text_schema(300)
    fields |= {"prompt": text, "words": {"type": "integer"}}
    if writer.acts:
        file = object_schema({"path": path, "text": text})
        fields |= {"files": list_schema(file, 6), "outputs": list_schema(path, 6)}
    fields |= {
        "checks": list_schema(_check_schema(writer.kinds), 5, 1),
        "reference": text,
        "tags": list_schema(text_schema(30), 3),
        "evidence": list_schema(text_schema(20), 6),
    }
    return object_schema({"cases": list_schema(object_schema(fields), count, 1)})


def as_suite_case(fields: Mapping[str, Any], skill: Skill | None) -> dict[str, Any]:
    written = read_items(fields.get("checks"))
    checks = [each for check in written for each in _read_check(check, str(fields.get("prompt")))]
    reference = fields.get("reference", "")
    right, wrong = (list_or_empty(fields.get(name)) for name in ("right", "wrong"))
    more = _length(fields)
    if any(check.get("kind") in ACTING_KINDS for check in written):
        right, wrong = (
            [{"run": script} for script in dict.fromkeys(map(str, scripts))]
            for scripts in ([reference, *right], wrong)
        )
        more = {"outputs": list_or_empty(fields.get("outputs")) or ["**"]}
    elif not any("max_length" in check for check in checks):
        longest = max(len(str(answer)) for answer in (reference, *right))
        # It is verbose when it is well above the right ones; what just repeats the skill is.
        most = len(skill.body) - 1 if skill else LONG_ANSWER
        limit = max(longest, min(max(SHORT_ANSWER, 4 * longest), most))
        checks.append({"max_length": limit})
    files = {file.get("path"): file.get("text") for file in read_items(fields.get("files"))}
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
    kind = str(check.get("kind"))
    texts = list_or_empty(check.get("texts"))
    exact = bool(check.get("exact"))
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


# Cases that can show a difference: most of them are ones that a student fails without the skill
# ------------------------------------------------------------------------------------------------


async def write_hard_cases(
    write: Callable[[int, tuple[Case, ...]], Awaitable[tuple[Case, ...]]],
    fails: Callable[[tuple[Case, ...]], Awaitable[Collection[str]]],
    count: int,
    student: str,
) -> tuple[tuple[Case, ...], str]:
    """Until there are so many, or four times as many are written; and how they were chosen, in words.

    `write` adds so many cases to these, `fails` names those that the student fails. Each kept case says whether it was.
    """
    unasked = -(-count // UNASKED_SHARE)
    written: tuple[Case, ...] = ()
    kept: list[Case] = []
    while len(kept) < count and len(written) < MAX_WRITTEN * count:
        try:
            cases = await write(min(count, MAX_WRITTEN * count - len(written)), written)
        except TooFewCases:
            if not written:
                raise
            break
        asked = cases if written else cases[unasked:]
        kept += cases[: len(cases) - len(asked)]
        written += cases
        failing = await fails(asked) if asked else ()
        for case in asked:
            if case.id in failing:
                kept.append(replace(case, metadata={**case.metadata, FAILED_BY: student}))
    kept = kept[:count]
    failed = sum(FAILED_BY in case.metadata for case in kept)
    words = (
        f"{len(written)} written, {failed} that it fails and {len(kept) - failed} unasked are kept"
    )
    return tuple(kept), words
