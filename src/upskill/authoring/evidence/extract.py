"""Extract: compile traces into a Skill and a Suite by rules alone; the same traces always give the same result.

A skill holds what the traces are sure of: the commands that worked, in their order, errors with their cures, rules that
the person gave, and lines that commands printed. Where that is too little, extract says what it found and what is
missing. Test cases ask for the same facts, so they show whether a student can look them up and not whether that helps
it; only those that pass the quality probes are kept. Every line names the steps it came from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from upskill.authoring.evidence.evidence import TraceEvidence, evidence_of
from upskill.authoring.evidence.facts import Fact, Question, facts_of, slug
from upskill.authoring.evidence.placeholders import without_values
from upskill.authoring.evidence.user_rules import Objections, contradicts
from upskill.errors import UsageError
from upskill.plain import counted, digest_text
from upskill.skills import Skill, estimate_tokens
from upskill.suites import OWN_FACTS, Case, Suite
from upskill.suites.quality import probe_case, probe_suite
from upskill.suites.twins import near_duplicates
from upskill.traces import Trace
from upskill.traces.redaction.redact import MARK, redact_trace

DEFAULT_TOKENS = 800
MAX_CASES = 60
MAX_ANSWER = 240  # characters; a longer answer recites the skill
MIN_FACTS = 3  # a skill of fewer lines is not worth a folder
ONE_LINE = "Answer in one line."
# Programs that no extracted skill is named after, even where they were run most often.
COMMON_PROGRAMS = frozenset(
    (
        *("python", "node", "sh", "bash", "git", "npm", "npx", "pnpm", "yarn", "bun", "pip", "pip3", "uv", "make"),
        *("docker", "curl", "wget", "pytest", "ruff", "go", "cargo", "apt", "apt-get", "brew", "tsc", "eslint", "gcc"),
        *("golangci-lint", "gofmt", "rustfmt", "black", "isort", "mvn", "gradle", "dotnet", "cmake", "ninja", "tox"),
        *("zip", "psql", "sqlite3", "mypy", "cmake", "just", "prettier", "vitest", "jest", "kubectl", "helm", "gh"),
    )
)
SECTIONS = {
    "workflow": "Commands that worked, in order",
    "error": "Errors and their cures",
    "rule": "Rules",
    "printed": "What to expect",
    "setting": "Settings",
}
KINDS = {
    "workflow": ("command that worked", "commands that worked"),
    "error": ("error with a sure cure", "errors with a sure cure"),
    "rule": ("rule given by the person", "rules given by the person"),
    "printed": ("address or place that was printed", "addresses or places that were printed"),
    "setting": ("file of settings", "files of settings"),
}
REFUSALS = ["cannot", "can't", "unable to", "don't know"]
# Verbs with which people ask for work.
_REQUESTS = frozenset(
    (
        *(
            "add",
            "adopt",
            "back",
            "bring",
            "build",
            "bump",
            "change",
            "check",
            "clean",
            "compile",
            "configure",
            "convert",
        ),
        *(
            "copy",
            "create",
            "cut",
            "deploy",
            "download",
            "enable",
            "export",
            "extract",
            "find",
            "fire",
            "fix",
            "generate",
        ),
        *(
            "get",
            "implement",
            "import",
            "improve",
            "install",
            "load",
            "make",
            "measure",
            "merge",
            "migrate",
            "move",
            "open",
        ),
        *(
            "package",
            "port",
            "prepare",
            "publish",
            "put",
            "refactor",
            "release",
            "remove",
            "rename",
            "render",
            "replace",
        ),
        *("restore", "roll", "run", "scan", "send", "set", "ship", "solve", "split", "start", "stop", "switch", "sync"),
        *("test", "train", "translate", "turn", "update", "upgrade", "upload", "use", "validate", "verify", "write"),
    )
)
_ANY_FOLDER = frozenset(
    ("", "app", "src", "work", "workspace", "repo", "project", "root", "home", "tmp", "data", "code")
)


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
    _require_enough(facts, evidence)
    kept, left_out = _fit_tokens(facts, tokens, _title(_subject(facts, evidence)))
    subject = _subject(kept, evidence)
    skill, lines = _skill(name, subject, evidence, kept)
    suite, refused = await _suite(kept, skill, subject.name, cases)
    if not suite.cases:
        raise UsageError(
            "no test case could be made from this trace" + (f": {refused[0]}" if refused else ""),
            "Name a model as the teacher with -m, or give your own tests with --tests.",
        )
    sources = {line: fact.sources for fact, line in lines}
    return Extraction(skill, suite, sources, dict(counts), tuple(fact.line for fact in left_out), tuple(refused))


def _require_enough(facts: list[Fact], evidence: Sequence[TraceEvidence]) -> None:
    """Say what was found and what is missing, where that is too little for a skill."""
    kept = [fact for fact in facts if fact.telling]
    did = _any(kept, "workflow") or _any(kept, "error")
    if did and len(kept) >= MIN_FACTS:
        return
    plain = [fact for fact in facts if not fact.telling]
    found = [_found(kept)] if kept else []
    found += [f"{_found(plain)} that everyone would type anyway"] if plain else []
    missing = [
        *(["commands that worked and that someone would run again"] if not _any(kept, "workflow") else []),
        *(["an error and the later success of the same command"] if not _any(kept, "error") else []),
        *(["a correction that states a rule"] if not _any(kept, "rule") else []),
    ]
    calls = counted(sum(one.cost.calls for one in evidence), "tool call")
    these = "these traces" if len(evidence) > 1 else "this trace"
    least = f"a skill takes at least {MIN_FACTS} lines worth keeping, one of them a command or a cure"
    raise UsageError(
        f"too little in {these} ({calls}) for a skill: found "
        + (" and ".join(found) or "nothing that rules can be sure of")
        + f"; {least}; missing: {'; '.join(missing) or 'more of the same'}",
        "Give more traces of the same work with further --from, or let a model read them: -m MODEL or --handoff DIR.",
    )


def _found(facts: list[Fact]) -> str:
    """How many facts of each kind, with the first two as examples."""
    found = [f"{count} {KINDS[kind][count != 1]}" for kind in SECTIONS if (count := sum(f.kind == kind for f in facts))]
    return f"{', '.join(found)} ({'; '.join(fact.line for fact in facts[:2])}{'; …' if len(facts) > 2 else ''})"


def _any(facts: list[Fact], kind: str) -> bool:
    return any(fact.kind == kind for fact in facts)


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
    current = [
        fact
        for fact in merged.values()
        if not fact.questions or any(answered_by[question.prompt] == fact.line for question in fact.questions)
    ]
    return [
        fact
        for place, fact in enumerate(current)
        if fact.kind != "rule"
        or not any(later.kind == "rule" and contradicts(later.line, fact.line) for later in current[place + 1 :])
    ]


def _fit_tokens(facts: list[Fact], tokens: int, title: str) -> tuple[list[Fact], list[Fact]]:
    """The facts that fit, the workflow first; counted as `Skill.tokens` counts."""
    ranks = ("workflow", "rule", "setting", "error", "printed")
    kept: list[Fact] = []
    for fact in sorted(facts, key=lambda fact: ranks.index(fact.kind)):
        if estimate_tokens(_body(title, [*kept, fact])[0]) <= tokens:
            kept.append(fact)
    lines = {fact.line for fact in kept}
    return [fact for fact in facts if fact.line in lines], [fact for fact in facts if fact.line not in lines]


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a skill is about: one program, or the work in one project."""

    program: str
    project: str
    verbs: tuple[str, ...]  # of the program
    programs: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.program or self.project


def _subject(facts: list[Fact], evidence: Sequence[TraceEvidence]) -> _Subject:
    items = [item for one in evidence for item in one.workflow if item.subcommand]
    told = {(fact.kind, fact.group) for fact in facts}
    items = [item for item in items if ("workflow", slug(item.subcommand)) in told]
    counts: Counter[str] = Counter(item.subcommand.split()[0] for item in items)
    fixes = [fix for one in evidence for fix in one.fixes if fix.subcommand and ("error", slug(fix.subcommand)) in told]
    counts.update(name for fix in fixes if "." not in (name := fix.subcommand.split()[0]))
    own = {
        name: n for name, n in counts.items() if name not in COMMON_PROGRAMS and re.fullmatch(r"[A-Za-z][\w-]*", name)
    }
    best = min(own, key=lambda name: (-own[name], name)) if own else ""
    # A program that was run once among many others is not what the session was about.
    program = best if best and own[best] * 3 >= sum(counts.values()) else ""
    verbs = [item.subcommand.split(" ", 1)[1] for item in items if item.subcommand.startswith(f"{program} ")]
    folder = next((PurePosixPath(one.cwd).name for one in evidence if one.cwd), "")
    named = folder.lower() not in _ANY_FOLDER and re.fullmatch(r"[A-Za-z][\w.-]{1,40}", folder)
    project = folder if named and not re.match(r"tmp|temp|.*\d.*\d", folder) else ""
    common = [name for name, _ in counts.most_common() if re.fullmatch(r"[A-Za-z][\w.-]*", name)]
    return _Subject(program, project, tuple(dict.fromkeys(verbs)), tuple(common[:3]))


def _name(subject: _Subject) -> str:
    words = (
        ["using", subject.program] if subject.program else ["working-on", subject.project] if subject.project else []
    )
    words = words or ["using", *subject.programs[:2]]
    return "-".join(re.findall(r"[a-z0-9]+", " ".join(words).lower()))[:64].strip("-") or "extracted"


def _title(subject: _Subject) -> str:
    title = (
        f"Using {subject.program}" if subject.program else f"Working on {subject.project}" if subject.project else ""
    )
    return f"# {title or 'Using ' + _listed(subject.programs or ('these tools',))}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _description(subject: _Subject, evidence: Sequence[TraceEvidence], facts: list[Fact]) -> str:
    """What the skill holds, and when to use it."""
    errors = sum(fact.kind == "error" for fact in facts)
    holds = ["commands in the order that worked"] if _any(facts, "workflow") else []
    holds += ["the cure for one error" if errors == 1 else f"cures for {errors} errors"] if errors else []
    holds += ["rules given by its users"] if _any(facts, "rule") else []
    programs = _listed(subject.programs) if subject.programs else "the tools of this work"
    if subject.program:
        of = f"{subject.program} ({_listed(subject.verbs[:6])})" if subject.verbs else subject.program
        use = f"Use when a task calls for {subject.program}, or when one of its commands fails"
    else:
        of = f"the {subject.project} project ({programs})" if subject.project else programs
        use = f"Use when working on {subject.project}" if subject.project else f"Use when working with {programs}"
    goal = next((" ".join(one.goal.text.split()) for one in evidence if one.goal.text), "")
    goal = re.split(r"(?<=[.!])\s", goal)[0].rstrip(".! ")
    clean = re.fullmatch(r"[A-Z][\w ,.'/:()@-]{15,139}", goal) and goal.split()[0].lower() in _REQUESTS
    given_up = any(Objections(one.turns).against(goal, 0) for one in evidence)
    clean = clean and MARK.rstrip() not in goal and without_values(goal) == goal and not given_up
    use += f", for example: {goal}." if clean else "."
    return f"Covers {of}: {_listed(holds or ['what its commands print'])}. {use}"


def _skill(
    name: str, subject: _Subject, evidence: Sequence[TraceEvidence], facts: list[Fact]
) -> tuple[Skill, list[tuple[Fact, str]]]:
    body, lines = _body(_title(subject), facts)
    description = _description(subject, evidence, facts)
    skill = Skill.new(name or _name(subject), description, body)
    for one in evidence:
        for command in one.reused:
            file = next((file for file in one.files if file.path == command.path and file.whole), None)
            if file is not None and f"`{command.command}`" in body and len(file.content) <= 20_000:
                place = f"scripts/{PurePosixPath(file.path).name}"
                skill = skill.with_file(place, _encodable(file.content).encode(), executable=True)
    return skill, lines


def _body(title: str, facts: list[Fact]) -> tuple[str, list[tuple[Fact, str]]]:
    """The text of a skill, and each fact with its line in it."""
    body = [title]
    lines: list[tuple[Fact, str]] = []
    for kind, heading in SECTIONS.items():
        items = [fact for fact in facts if fact.kind == kind]
        if not items:
            continue
        numbered = kind == "workflow" and len(items) > 1
        found = [
            (fact, _encodable(f"{f'{place}.' if numbered else '-'} {fact.line}"))
            for place, fact in enumerate(items, start=1)
        ]
        body += ["", f"## {heading}", *(line for _, line in found)]
        lines += found
    return "\n".join(body), lines


def _encodable(text: str) -> str:
    """The text without half characters, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


# The suite.


async def _suite(facts: list[Fact], skill: Skill, subject: str, most: int) -> tuple[Suite, list[str]]:
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
    # The answer of one case must not be right for another.
    for weak in await probe_suite(Suite(tuple(kept.values()), "extracted"), skill):
        if kept.pop(weak.case, None):
            refused.append(str(weak))
    return Suite(tuple(kept.values()), f"extracted for {subject}" if subject else "extracted"), refused


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
        "max_output_tokens": max(64, len(question.answer)),
        "evidence": list(fact.sources),
        "held_out": False,  # a line and its questions come from one fact
    }
