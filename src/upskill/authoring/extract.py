"""Extract: compile traces into a Skill and a Suite by rules alone; the same traces always give the same result.

Commands that succeeded, errors with their fixes, corrections by the person and settings that were left behind become
lines that state one fact each, which is what small students can use. Test cases ask for the same facts, so they show
whether a student can look them up and not whether that helps it; only those that pass the quality probes are kept.
Every line names the steps it came from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from upskill.authoring.evidence import TraceEvidence, evidence_of
from upskill.authoring.facts import Fact, Question, facts_of
from upskill.authoring.trace_commands import only_inspects, program_and_verb, split_words
from upskill.errors import UpskillError, UsageError
from upskill.plain import digest_text
from upskill.skills import Skill, estimate_tokens
from upskill.suites import OWN_FACTS, Case, Suite
from upskill.suites.quality import probe_case
from upskill.suites.twins import near_duplicates
from upskill.traces import Trace
from upskill.traces.redact import MARK, redact_trace

DEFAULT_TOKENS = 800
MAX_CASES = 60
MAX_ANSWER = 240  # characters; a longer answer recites the skill
ONE_LINE = "Answer in one line."
# Programs that no extracted skill is about, even where they were run most often.
COMMON_PROGRAMS = frozenset(
    (
        *("python", "python3", "node", "sh", "bash", "git", "npm", "npx", "pip", "pip3", "uv", "uvx", "make", "sudo"),
        *("docker", "curl", "wget", "pytest", "ruff", "go", "cargo"),
    )
)
SECTIONS = {
    "rule": "Rules",
    "before": "Order",
    "command": "Commands",
    "option": "Options",
    "error": "Errors",
    "setting": "Settings",
}
REFUSALS = ["cannot", "can't", "unable to", "don't know"]


@dataclass(frozen=True, slots=True)
class Extraction:
    skill: Skill
    suite: Suite
    sources: Mapping[str, tuple[str, ...]]  # a line of the body -> the ids of its steps
    redacted: Mapping[str, int]
    left_out: tuple[str, ...] = ()  # facts that did not fit into the tokens
    refused: tuple[str, ...] = ()  # cases that are not worth asking, and why


async def extract(
    traces: Trace | Sequence[Trace], *, name: str = "", tokens: int = DEFAULT_TOKENS, cases: int = MAX_CASES
) -> Extraction:
    """A skill and a suite made from the facts of these traces. The same traces give the same bytes."""
    given = [traces] if isinstance(traces, Trace) else list(traces)
    redactions = [redact_trace(trace) for trace in given]
    counts: Counter[str] = Counter()
    for redaction in redactions:
        counts.update(redaction.counts)
    evidence = [evidence_of(redaction.trace) for redaction in redactions]
    facts = _merge(
        fact for number, one in enumerate(evidence) for fact in facts_of(one, f"r{number + 1}-" if number else "")
    )
    if not facts:
        raise UsageError(
            "there is nothing to extract: no command that worked, no error that was fixed, no correction, no settings",
            "Use a trace in which an agent ran commands, or name a model as the teacher with -m.",
        )
    kept, left_out = _fit_tokens(facts, tokens)
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


# The skill.


def _merge(facts: Iterable[Fact]) -> list[Fact]:
    """Each line once, with all its steps. Of two lines that contradict each other the later is kept."""
    merged: dict[str, Fact] = {}
    for fact in facts:
        before = merged.get(fact.line)
        if before is not None:
            fact = replace(fact, sources=tuple(dict.fromkeys([*before.sources, *fact.sources])))  # noqa: PLW2901
        merged[fact.line] = fact
    answered_by: dict[str, str] = {}
    for fact in merged.values():
        for question in fact.questions:
            answered_by[question.prompt] = fact.line
    # A line is outdated when later lines answer all of its questions.
    return [
        fact
        for fact in merged.values()
        if not fact.questions or any(answered_by[question.prompt] == fact.line for question in fact.questions)
    ]


def _fit_tokens(facts: list[Fact], tokens: int) -> tuple[list[Fact], list[Fact]]:
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
    """The program that the skill is about: of those that are not common, the one that was run most often."""
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
        if items := [f"- {fact.line}" for fact in facts if fact.kind == kind]:
            lines += ["", f"## {heading}", *items]
    skill = Skill.new(name, description, _encodable("\n".join(lines)))
    for one in evidence:
        for command in one.reused:
            file = next((file for file in one.files if file.path == command.path and file.whole), None)
            if file is not None and len(file.content) <= 20_000:
                place = f"scripts/{PurePosixPath(file.path).name}"
                skill = skill.with_file(place, _encodable(file.content).encode(), executable=True)
    return skill


def _encodable(text: str) -> str:
    """The text without half characters, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


# The suite.


async def _suite(facts: list[Fact], skill: Skill, program: str, most: int) -> tuple[Suite, list[str]]:
    written = [
        _case(fact, question, min(MAX_ANSWER, len(skill.body) - 1)) for fact in facts for question in fact.questions
    ]
    kept: dict[str, Case] = {}
    refused: list[str] = []
    for fields in written:
        case = Suite.parse([fields], "an extracted case").cases[0]
        if weak := await probe_case(case, skill):
            refused.append(str(weak[0]))
        elif case.id not in kept and len(kept) < most:
            kept[case.id] = case
    for _, duplicate in near_duplicates(kept.values()):
        kept.pop(duplicate, None)
    return Suite(tuple(kept.values()), f"extracted for {program}" if program else "extracted", 64), refused


def _case(fact: Fact, question: Question, longest: int) -> dict[str, Any]:
    prompt = _encodable(f"{question.prompt} {ONE_LINE}")
    return {
        "id": f"{fact.kind}-{fact.group}-{digest_text(prompt)[:6]}",
        "prompt": prompt,
        "checks": [
            {"regex": {"pattern": question.pattern, "ignore_case": True, "asserted": True}},
            {"not_contains": REFUSALS},
            {"max_length": longest},
        ],
        "tags": [fact.kind, OWN_FACTS],
        "reference": _encodable(question.answer),
        "evidence": list(fact.sources),
        "held_out": False,  # a line and its questions come from one fact
    }
