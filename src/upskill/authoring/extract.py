"""Extract: compile traces to a Skill and a Suite by rules alone, with no model and always with the same result.

Commands that worked, errors with what mended them, corrections by the person and settings that were left behind each
become one line that states one fact, which is what small students can use. Questions and clozes are made from the
same facts; a case stays only if the gate lets it. Every line names the steps that it came from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from upskill.authoring.evidence import (
    ErrorFix,
    File,
    SuccessfulCommand,
    TraceEvidence,
    evidence_of,
    only_inspects,
    program_and_verb,
    split_words,
)
from upskill.errors import UpskillError, UsageError
from upskill.plain import digest_text
from upskill.skills import Skill, estimate_tokens
from upskill.suites import Case, Suite, held_out_by_id
from upskill.suites.quality import near_duplicates, probe_case
from upskill.traces import Trace
from upskill.traces.redact import MARK, redact_trace

DEFAULT_TOKENS = 800
MAX_CASES = 60
MAX_ANSWER = 240  # characters; what is longer was recited
MAX_VALUE = 60
MAX_COMMAND = 120
ONE_LINE = "Answer in one line."
# Programs that a skill is not about, even where they were run most often.
COMMON_PROGRAMS = frozenset(
    (
        *("python", "python3", "node", "sh", "bash", "git", "npm", "npx", "pip", "pip3", "uv", "uvx", "make", "sudo"),
        *("docker", "curl", "wget", "pytest", "ruff", "go", "cargo"),
    )
)
SETTINGS_FILES = (".toml", ".ini", ".cfg", ".conf", ".env", ".yaml", ".yml", ".json", ".properties")
SECTIONS = {
    "rule": "Rules",
    "before": "Order",
    "command": "Commands",
    "option": "Options",
    "error": "Errors",
    "setting": "Settings",
}
REFUSALS = ["cannot", "can't", "unable to", "don't know"]
_STOP = frozenset(
    (
        *("the", "and", "for", "are", "was", "were", "with", "from", "that", "this", "then", "than", "into", "only"),
        *("also", "not", "one", "but", "you", "your", "has", "have", "had", "its", "always", "never", "use", "run"),
        *("before", "after", "first", "must", "should", "please", "until", "when", "while", "all", "any"),
    )
)
_SETTING = re.compile(
    r"""^\s*(?:export\s+)?["']?(?P<key>[A-Za-z_][\w.-]*)["']?\s*[=:]\s*(?P<value>[^\s#{\[|>&*].*?)\s*,?\s*$"""
)
_SECTION = re.compile(r"^\s*\[+(?P<name>[\w. -]+)\]+\s*$")


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a skill. `group` keeps what is about the same thing on one side of the split."""

    kind: str
    line: str
    sources: tuple[str, ...]  # ids of steps: s12 is the twelfth of the first trace, r2-s12 of the second
    group: str
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    pattern: str  # of a right answer
    answer: str


@dataclass(frozen=True, slots=True)
class Extraction:
    skill: Skill
    suite: Suite
    sources: Mapping[str, tuple[str, ...]]  # a line of the body -> the ids of its steps
    redacted: Mapping[str, int]
    left_out: tuple[str, ...] = ()  # facts that did not fit into the tokens
    refused: tuple[str, ...] = ()  # cases that the gate did not let pass, and why


async def extract(
    traces: Trace | Sequence[Trace], *, name: str = "", tokens: int = DEFAULT_TOKENS, cases: int = MAX_CASES
) -> Extraction:
    """A skill and a suite from what happened. The same traces give the same bytes."""
    given = [traces] if isinstance(traces, Trace) else list(traces)
    redactions = [redact_trace(trace) for trace in given]
    counts: Counter[str] = Counter()
    for redaction in redactions:
        counts.update(redaction.counts)
    evidence = [evidence_of(redaction.trace) for redaction in redactions]
    facts = _merged(
        fact for number, one in enumerate(evidence) for fact in facts_of(one, f"r{number + 1}-" if number else "")
    )
    if not facts:
        raise UsageError(
            "there is nothing to extract: no command that worked, no error that was mended, no correction, no settings",
            "Use a trace in which an agent ran commands, or name a model as the teacher with -m.",
        )
    kept, left_out = _fit_into(facts, tokens)
    program = _program(evidence)
    skill = _skill(name or _name(program, evidence), program, evidence, kept)
    suite, refused = await _suite(kept, skill, program, cases)
    if not suite.cases:
        raise UpskillError(
            "no test case could be made from this trace" + (f": {refused[0]}" if refused else ""),
            "Name a model as the teacher with -m, or give your own tests with --tests.",
        )
    sources = {f"- {fact.line}": fact.sources for fact in kept}
    return Extraction(skill, suite, sources, dict(counts), tuple(fact.line for fact in left_out), tuple(refused))


# Facts.


def facts_of(evidence: TraceEvidence, prefix: str = "") -> Iterator[Fact]:
    """Everything that one trace has to say, most telling first."""
    known = _words_of(evidence)
    for item in evidence.corrections:
        for sentence in _sentences(item.text):
            yield _rule(sentence, known, (f"{prefix}s{item.step}",))
    for fix in evidence.fixes:
        if fix.kind == "before":
            yield from _order(fix, prefix)
    for item in evidence.successes:
        yield from _command(item, prefix)
    for fix in evidence.fixes:
        if fix.kind == "command":
            yield from _error(fix, prefix)
    for file in evidence.files:
        yield from _settings(file, prefix)


def _quotable(*texts: str) -> bool:
    return all(text.strip() and "\n" not in text and MARK.rstrip() not in text and "`" not in text for text in texts)


def _sentences(text: str) -> Iterator[str]:
    """What a correction says, one sentence at a time, without the words that only answer."""
    plain = " ".join(text.strip().strip("\"'").split())
    for part in re.split(r"(?<=[.!?])\s+", plain):
        said = re.sub(
            r"^(?:no|nope|yes|ok|okay|stop|wait|actually|and|but|please|well)\b[,.!:]*\s*", "", part, flags=re.I
        )
        said = re.sub(r"^(?:no|please|and)\b[,.!:]*\s*", "", said, flags=re.I)
        if len(said.split()) >= 3 and len(said) <= 200 and _quotable(said) and not said.endswith("?"):
            yield said[0].upper() + said[1:] + ("" if said[-1] in ".!" else ".")


def _words_of(evidence: TraceEvidence) -> set[str]:
    """The words that proved to matter: verbs and values of commands that worked, and what was left in files."""
    texts = [item.command for item in evidence.successes] + [file.content for file in evidence.files]
    return {word.lower() for text in texts for word in re.findall(r"(?<![\w-])[A-Za-z][\w-]{2,}", text)}


def _rule(sentence: str, known: set[str], sources: tuple[str, ...]) -> Fact:
    questions: list[Question] = []
    words = re.findall(r"[\w-]+", sentence)
    telling = [
        word
        for word in words
        if word.lower() in known and word.lower() not in _STOP and len(word) > 2 and words.count(word) == 1
    ]
    if telling:
        blank = telling[0]
        gap = re.sub(rf"\b{re.escape(blank)}\b", "____", sentence, count=1)
        questions.append(Question(f"Fill in the blank: {gap}", _pattern(blank), blank))
    return Fact("rule", sentence, sources, _slug(sentence), tuple(questions))


def _order(fix: ErrorFix, prefix: str) -> Iterator[Fact]:
    later, first = program_and_verb(split_words(fix.command)), program_and_verb(split_words(fix.fix))
    if later and first and later != first and _quotable(later, first):
        asked = Question(f"What is the command that must run before {later}?", _pattern(first), f"`{first}`")
        line = f"The command that must run before `{later}` is `{first}`."
        yield Fact("before", line, _steps(fix.steps, prefix), _slug(f"before {later}"), (asked,))


def _command(item: SuccessfulCommand, prefix: str) -> Iterator[Fact]:
    words = split_words(item.command)
    head = program_and_verb(words)
    if not _quotable(item.command) or len(item.command) > MAX_COMMAND or not head:
        return
    program = head.split()[0]
    purpose = _purpose(item.purpose)
    what = f"to {purpose}" if purpose else f"for {head}"
    pattern = _pattern(" ".join(_rest(words, head)) or item.command)
    asked = Question(f"What is the command {what} with {program}?", pattern, f"`{item.command}`")
    sources = (f"{prefix}s{item.step}",)
    yield Fact("command", f"The command {what} is `{item.command}`.", sources, _slug(head), (asked,))
    for option in [word for word in words if re.match(r"--[a-z]", word)]:
        value = _value_of(option, words)
        name = option.partition("=")[0].lstrip("-").replace("-", " ")
        if value and not value.startswith("-") and _quotable(value) and len(value) <= MAX_VALUE:
            asked = Question(f"What is the {name} for {head}?", _pattern(value), value)
            yield Fact("option", f"The {name} for {head} is `{value}`.", sources, _slug(head), (asked,))


def _error(fix: ErrorFix, prefix: str) -> Iterator[Fact]:
    head = program_and_verb(split_words(fix.command))
    cure = _cure(fix)
    said = _complaint(fix.error, head)
    if not cure or not said or not _quotable(said, cure) or len(said) > 120 or len(cure) > MAX_COMMAND:
        return
    telling = [word for word in cure.split() if word.lower() not in said.lower()]
    if not telling or any(word.startswith("-") and word in said for word in cure.split()):
        return  # a wrong value: the line on the option says the right one
    asked = Question(f'What is the cure for "{said}"?', _pattern(telling[-1]), f"`{cure}`")
    yield Fact("error", f'The cure for "{said}" is `{cure}`.', _steps(fix.steps, prefix), _slug(head), (asked,))


def _settings(file: File, prefix: str) -> Iterator[Fact]:
    """The settings of a file, one by one."""
    name = PurePosixPath(file.path).name
    if not name.endswith(SETTINGS_FILES) or not file.whole:
        return
    section = ""
    for line in file.content.splitlines()[:200]:
        if found := _SECTION.match(line):
            section = found["name"].strip() + "."
        elif found := _SETTING.match(line):
            key, value = f"{section}{found['key']}", found["value"].strip("\"'")
            if _quotable(key, value) and len(value) <= MAX_VALUE and not key.lower().endswith(("version", "schema")):
                asked = Question(f"What is the {key} in {name}?", _pattern(value), value)
                told = f"The {key} in {name} is `{value}`."
                yield Fact("setting", told, _steps(file.steps, prefix), _slug(f"{name} {key}"), (asked,))


# Words.


def _steps(numbers: Iterable[int], prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}s{number}" for number in numbers)


def _purpose(said: str) -> str:
    """An agent's word for what it does, as it can stand after "to"; empty when it is no such word."""
    plain = said.strip().rstrip(".:!").strip()
    if not re.fullmatch(r"[A-Za-z]+(?: [\w'./-]+){1,9}", plain) or re.match(
        r"(?i)(?:i|it|now|the|this|that|let)\b", plain
    ):
        return ""
    first, _, rest = plain.partition(" ")
    if first.lower().endswith(("ing", "ed")):
        return ""
    return f"{first if first.isupper() else first.lower()} {rest}"


def _rest(words: tuple[str, ...], head: str) -> tuple[str, ...]:
    """The words of a command behind its name and verb."""
    known = head.split()
    rest = list(words)
    for word in known:
        for place, other in enumerate(rest):
            if other == word or PurePosixPath(other).name == word:
                del rest[place]
                break
    return tuple(rest)


def _value_of(option: str, words: tuple[str, ...]) -> str:
    if "=" in option:
        return option.partition("=")[2]
    place = words.index(option)
    return words[place + 1] if place + 1 < len(words) else ""


def _cure(fix: ErrorFix) -> str:
    """What the command that worked has and the one that failed has not: an option with its value, or all of it."""
    before, after = split_words(fix.command), split_words(fix.fix)
    if program_and_verb(before) != program_and_verb(after):
        return fix.fix
    new: list[str] = []
    for place, word in enumerate(after):
        if word in before:
            continue
        if place and after[place - 1].startswith("-") and after[place - 1] not in new and not word.startswith("-"):
            new.append(after[place - 1])
        new.append(word)
    return " ".join(new)


def _complaint(error: str, head: str) -> str:
    """An error without the names in front of it and without the advice behind it."""
    said = error.strip()
    for word in head.split():
        said = re.sub(rf"^{re.escape(word)}:\s*", "", said)
    said = re.sub(r"^(?:\w*error|fatal):\s*", "", said, flags=re.I)
    said = re.split(r"\s*[;(]|\.\s", said)[0].strip().rstrip(".:")
    return said.replace('"', "'")


def _pattern(answer: str) -> str:
    """A regular expression for an answer: its words in their order, whole."""
    words = [re.escape(word) for word in re.split(r"[\s=]+", answer) if word]
    return r"(?<![\w-])" + r"[\s=\"'`]+".join(words) + r"(?![\w-])"


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())[:6])


# The skill.


def _merged(facts: Iterable[Fact]) -> list[Fact]:
    """Each line once, with all the steps that it came from; the later of two that contradict each other."""
    merged: dict[str, Fact] = {}
    for fact in facts:
        before = merged.get(fact.line)
        if before is not None:
            fact = replace(fact, sources=tuple(dict.fromkeys([*before.sources, *fact.sources])))  # noqa: PLW2901
        merged[fact.line] = fact
    asked: dict[str, str] = {}
    for fact in merged.values():
        for question in fact.questions:
            asked[question.prompt] = fact.line
    # A line all of whose questions a later line answers otherwise is out of date.
    return [
        fact
        for fact in merged.values()
        if not fact.questions or any(asked[question.prompt] == fact.line for question in fact.questions)
    ]


def _fit_into(facts: list[Fact], tokens: int) -> tuple[list[Fact], list[Fact]]:
    room = tokens - 40  # for headings
    kept: list[Fact] = []
    left_out: list[Fact] = []
    for fact in facts:
        need = estimate_tokens(fact.line) + 2
        if need <= room:
            kept.append(fact)
            room -= need
        else:
            left_out.append(fact)
    return kept, left_out


def _program(evidence: Sequence[TraceEvidence]) -> str:
    """The program that it is all about: the one that was run most often, of those that not everyone knows."""
    counts: Counter[str] = Counter()
    for one in evidence:
        for command in [*(item.command for item in one.successes), *(fix.command for fix in one.fixes)]:
            words = split_words(command)
            program = program_and_verb(words).split(" ", maxsplit=1)[0] if words else ""
            if (
                program
                and not only_inspects(words)
                and program not in COMMON_PROGRAMS
                and re.fullmatch(r"[\w.-]+", program)
            ):
                counts[program] += 1
    return min(counts, key=lambda program: (-counts[program], program)) if counts else ""


def _name(program: str, evidence: Sequence[TraceEvidence]) -> str:
    goal = next((one.goal.text for one in evidence if one.goal.text), "")
    words = re.findall(r"[a-z0-9]+", program.lower() or goal.lower())
    if program:
        words = ["using", *words]
    return "-".join(words[:5])[:64].strip("-") or "extracted"


def _skill(name: str, program: str, evidence: Sequence[TraceEvidence], facts: list[Fact]) -> Skill:
    goal = next((" ".join(one.goal.text.split()) for one in evidence if one.goal.text), "")
    goal = re.sub(r"[<>`\"]", "", goal.split(". ")[0])[:160].rstrip(". ")
    about = program or "this task"
    description = (
        f"States the commands, options, errors, settings and rules of {about} that proved right in practice. "
        f"Use when {about} is to be run, configured or mended"
    )
    description += f", for example: {goal}." if goal and MARK.rstrip() not in goal else "."
    lines = [f"# {'Using ' + program if program else 'What worked'}"]
    for kind, heading in SECTIONS.items():
        told = [f"- {fact.line}" for fact in facts if fact.kind == kind]
        if told:
            lines += ["", f"## {heading}", *told]
    skill = Skill.new(name, description, _encodable("\n".join(lines)))
    for one in evidence:
        for helper in one.reused:
            file = next((file for file in one.files if file.path == helper.path and file.whole), None)
            if file is not None and len(file.content) <= 20_000:
                place = f"scripts/{PurePosixPath(file.path).name}"
                skill = skill.with_file(place, _encodable(file.content).encode(), executable=True)
    return skill


def _encodable(text: str) -> str:
    """Without half characters, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


# The suite.


async def _suite(facts: list[Fact], skill: Skill, program: str, most: int) -> tuple[Suite, list[str]]:
    made = [
        _case(fact, question, min(MAX_ANSWER, len(skill.body) - 1)) for fact in facts for question in fact.questions
    ]
    _balance(made)
    kept: dict[str, Case] = {}
    refused: list[str] = []
    for said in made:
        case = Suite.parse([said], "an extracted case").cases[0]
        leaks = await probe_case(case, skill)
        if leaks:
            refused.append(str(leaks[0]))
        elif case.id not in kept and len(kept) < most:
            kept[case.id] = case
    for _, again in near_duplicates(kept.values()):
        kept.pop(again, None)
    return Suite(tuple(kept.values()), f"extracted for {program}" if program else "extracted", 64), refused


def _case(fact: Fact, question: Question, longest: int) -> dict[str, Any]:
    prompt = _encodable(f"{question.prompt} {ONE_LINE}")
    return {
        "id": f"{fact.kind}-{fact.group}-{digest_text(prompt)[:6]}",
        "prompt": prompt,
        "checks": [
            {"regex": {"pattern": question.pattern, "ignore_case": True}},
            {"not_contains": REFUSALS},
            {"max_length": longest},
        ],
        "tags": [fact.kind],
        "reference": _encodable(question.answer),
        "evidence": list(fact.sources),
        # Decided by what it is about: two questions on one fact never stand on both sides.
        "held_out": held_out_by_id(fact.group),
    }


def _balance(cases: list[dict[str, Any]]) -> None:
    """Few cases may all fall on one side; then every third group is held out, in the order of their names."""
    if len({case["held_out"] for case in cases}) == 2:
        return
    groups = sorted({case["id"].rsplit("-", 1)[0] for case in cases})
    for case in cases:
        case["held_out"] = groups.index(case["id"].rsplit("-", 1)[0]) % 3 == 2
