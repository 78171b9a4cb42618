"""Evidence is what a trace can teach: typed items, each citing the steps it comes from (counted from 1).

Items are the goal, errors with their fixes (`fixes`), corrections by the person, the workflow (the commands that
worked, in their order), what commands printed that the next person needs, the files that were left behind, scripts that
were reused, and the cost. They are found by rules, without a model, so they are guesses; the text of a trace is quoted
and never obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from upskill.authoring.evidence.fixes import ErrorFix, find_fixes
from upskill.authoring.evidence.trace_commands import CommandRun, command_runs, step_failed
from upskill.authoring.evidence.trace_files import FinalFile, changed_files, final_files
from upskill.authoring.evidence.weaker import is_weaker
from upskill.traces import Step, Trace, Usage

VERIFY = "verify"  # the tool name under which `teach` records the check that decides on success
MAX_COMMAND = 200  # characters of a command that anyone would type again
MAX_TURN = 600  # characters of a turn that corrects; a longer one is a task
MAX_LINE = 160
_CONFIRMS = re.compile(
    r"\b(?:test|tests|pytest|unittest|check|verify|validate|lint|ruff|mypy|pyright|tsc|build|compile"
    r"|status|doctor|health)\b"
)
# Words that correct wherever they stand, and words that only complain about what was just done.
_CORRECTS = re.compile(
    r"^\W*(?:no|nope|stop|wait|wrong|actually)\b(?! (?:problem|worries|need))|\b(?:don't|do not|never|always|instead"
    r"|rather than|must(?:n't| not)?|should(?:n't| not| have)?|you forgot|you missed|i said|i meant|not what i"
    r"|that's wrong|incorrect|make sure|only use|have to)\b|^\W*(?:forget|drop|ditch|scrap)\b|\buse\b[^.!?]*, *not\b",
    re.I,
)
_COMPLAINS = re.compile(
    r"\b(?:still|but|gone|missing|broken|wrong|fails?|failed|failing|doesn't|does not|isn't|aren't|not|no longer|again"
    r"|wants?|prefer|use|belongs?|error|too (?:many|much|long|slow|big|small))\b",
    re.I,
)
_GOES_ON = re.compile(
    r"^\W*(?:thanks?|thank you|great|perfect|nice|awesome|cool|lovely|excellent|ok(?:ay)?|yes|yep|sure|good"
    r"|go on|go ahead|continue|proceed|now|next|then|also|and|can|could|would|will|how|what|why|where|when|which|who"
    r"|is|are|do|does"
    r"|please (?:add|write|create|update|implement|commit|push|continue|explain|show|run)|let's|commit|push|add|create"
    r"|write|implement|update|review|read|look|check)\b",
    re.I,
)
_APPROVES = re.compile(r"\b(?:good|great|nice|fine|perfect|lgtm|thanks?|continue|go on|looks? ok(?:ay)?)\b", re.I)
# What programs write into the turns of a person.
_WRITTEN_BY_PROGRAMS = re.compile(
    r"^\s*(?:<(?!user_query)[a-z][\w-]*[ >]|Caveat:|This session is being continued|\[Request interrupted[^\]]*\]\s*$"
    r"|\[Image|API Error|# AGENTS\.md|OBSERVATION|Observation:|Base directory for this skill|\[?System)",
)
_PATH = r"(?:[\w~.-]*/[\w./@:+~-]+|[\w-]+\.[A-Za-z]\w{0,6}\b)"
# Lines of an output that the next person needs: an address, where something was put, which values are possible.
_TELLS = (
    re.compile(
        r"\b(?:local|listening|running|serving|served|available|started|ready|uploaded|published|deployed)\b"
        r".*https?://\S+",
        re.I,
    ),
    re.compile(
        r"^\W*(?:(?:wrote|writing)\s+|(?:wrote|written|saved|output|exported|restored|results?)\b"
        rf"[^|]*?(?:\bto|\bon|\bin|\binto|:)\s*){_PATH}",
        re.I,
    ),
)
_TELLS_VALUES = re.compile(
    r"\b(?:one of|choose from|(?:valid|allowed|possible|supported) (?:values|options|choices|formats)(?: are)?)\b"
    r"\W{1,4}[\w.-]+[\"'`]?(?:, | or | \| )\W?[\w.-]+",
    re.I,
)


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the person wrote: the goal, or a correction."""

    text: str
    step: int


@dataclass(frozen=True, slots=True)
class WorkflowCommand:
    """A command that worked, in the form in which it last did; `<version>` stands for a value that varied."""

    command: str
    purpose: str  # in the agent's words, where it gave one
    steps: tuple[int, ...]
    subcommand: str = ""
    folder: str = ""
    confirms: bool = False  # it examines the result: a test, a check, a build

    @property
    def step(self) -> int:
        return self.steps[-1]


@dataclass(frozen=True, slots=True)
class Observation:
    """A line that a command printed."""

    command: str
    line: str
    step: int


@dataclass(frozen=True, slots=True)
class ReusedCommand:
    """A shell script that was written and run, or another script or command that was run again."""

    command: str
    steps: tuple[int, ...]
    path: str = ""  # of the script


@dataclass(frozen=True, slots=True)
class Cost:
    usage: Usage
    calls: int
    failed: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TraceEvidence:
    goal: UserMessage
    fixes: tuple[ErrorFix, ...]
    corrections: tuple[UserMessage, ...]
    workflow: tuple[WorkflowCommand, ...]
    observations: tuple[Observation, ...]
    files: tuple[FinalFile, ...]
    reused: tuple[ReusedCommand, ...]
    cost: Cost
    cwd: str = ""
    turns: tuple[UserMessage, ...] = ()  # everything the person said

    @property
    def confirmed(self) -> tuple[WorkflowCommand, ...]:
        """The commands that examined the result and found it good."""
        return tuple(item for item in self.workflow if item.confirms)


def evidence_of(trace: Trace) -> TraceEvidence:
    """Everything that a trace can teach."""
    runs = command_runs(trace)
    files = final_files(trace)
    writes = changed_files(trace)
    asked = [(number, step) for number, step in _numbered(trace) if _is_asked(step)]
    goal = UserMessage(trace.goal or (asked[0][1].text if asked else ""), asked[0][0] if asked else 0)
    calls = trace.calls
    took = [step.seconds for step in calls if step.seconds is not None]
    cost = Cost(trace.usage, len(calls), sum(step_failed(step) for step in calls), sum(took) if took else None)
    return TraceEvidence(
        goal,
        tuple(find_fixes(runs, writes)),
        tuple(_corrections(trace, asked, runs, [(number, write.path) for number, write in writes])),
        tuple(_workflow(trace, runs)),
        tuple(_observations(runs)),
        tuple(files),
        tuple(_reused(runs, files)),
        cost,
        trace.cwd,
        tuple(UserMessage(step.text, number) for number, step in asked),
    )


def _numbered(trace: Trace) -> Iterator[tuple[int, Step]]:
    return enumerate(trace.steps, start=1)


# What the person said.


def _is_asked(step: Step) -> bool:
    return step.kind == "user" and not step.agent and not _WRITTEN_BY_PROGRAMS.match(step.text)


def _corrections(
    trace: Trace, asked: list[tuple[int, Step]], runs: Sequence[CommandRun], writes: list[tuple[int, str]]
) -> Iterator[UserMessage]:
    """Turns that correct, by their words or by their place: after a finished attempt that is then done differently."""
    ends = [number for number, _ in asked[1:]] + [len(trace.steps) + 1]
    for place, (number, step) in enumerate(asked[1:]):
        text = step.text.strip()
        if len(text) > MAX_TURN or text.endswith("?"):
            continue
        before = asked[place][0]
        tried = any(one.kind == "tool" for one in trace.steps[before : number - 1])
        finished = tried and trace.steps[number - 2].kind in ("assistant", "thinking")
        again = (
            len(text) <= 200 and not _APPROVES.search(text) and _redone(before, number, ends[place + 1], runs, writes)
        )
        corrects = bool(_CORRECTS.search(text)) and (tried or not _GOES_ON.match(text))
        goes_on = bool(_GOES_ON.match(text)) and not re.match(r"\W*(?:no|don't|never|always)\b", text, re.I)
        if goes_on and not re.search(r"\b(?:never|always|don't|must|instead|rather)\b", text, re.I):
            continue
        if corrects or (finished and (bool(_COMPLAINS.search(text)) or again)):
            yield UserMessage(text, number)


def _redone(before: int, turn: int, end: int, runs: Sequence[CommandRun], writes: list[tuple[int, str]]) -> bool:
    """Whether the work after a turn does again, in another way, what the attempt before it did."""
    first = {path for number, path in writes if before < number < turn}
    if any(path in first for number, path in writes if turn < number < end):
        return True
    done = [run for run in runs if before < run.number < turn and run.role == "work"]
    redone = [run for run in runs if turn < run.number < end and run.role == "work"]
    lines = {run.text for run in done}
    return any(run.text not in lines and run.subcommand in {one.subcommand for one in done} for run in redone)


# The commands that worked.


def _workflow(trace: Trace, runs: Sequence[CommandRun]) -> Iterator[WorkflowCommand]:
    """Each thing that was done, in the form that worked last, in the order of the last success."""
    worked: dict[str, list[CommandRun]] = {}
    attempts: dict[str, list[CommandRun]] = {}
    for run in runs:
        fits = run.whole and len(run.text) <= MAX_COMMAND and run.subcommand and not _is_check(run)
        attempts.setdefault(run.subcommand, []).append(run)
        if run.outcome == "ok" and run.role == "work" and fits and not is_weaker(run, attempts[run.subcommand]):
            worked.setdefault(run.subcommand, []).append(run)
    for subcommand, same in sorted(worked.items(), key=lambda item: item[1][-1].order):
        last = same[-1]
        alike = [run for run in same if _shape(run) == _shape(last)]
        command = _template(alike)
        steps = tuple(dict.fromkeys(run.number for run in alike))
        confirms = bool(_CONFIRMS.search(command))
        yield WorkflowCommand(command, _purpose(trace, runs, last), steps, subcommand, last.folder, confirms)
    # A check that was named beforehand always counts.
    for number, step in _numbered(trace):
        if step.tool == VERIFY and not step_failed(step) and (command := str(step.arguments.get("command", ""))):
            yield WorkflowCommand(command, "Verify the result", (number,), confirms=True)


def _is_check(run: CommandRun) -> bool:
    return run.step.tool == VERIFY


def _shape(run: CommandRun) -> tuple[str, ...]:
    """What runs a command, its options, and where its other words stand: equal for runs that differ in values only."""
    return (
        *(word.partition("=")[0] for word in run.runner),
        *(word.partition("=")[0] if word.startswith("-") and not word.startswith("-=") else "·" for word in run.words),
    )


def _template(runs: Sequence[CommandRun]) -> str:
    """The last of these runs, with a placeholder for every value that varied."""
    last = runs[-1]
    if last.subcommand.endswith((" install", " add", " uninstall", " remove")):
        return last.text  # what is installed is no value that varies
    texts = [run.text.split(" ") for run in runs]
    if len({run.text for run in runs}) == 1 or len({len(words) for words in texts}) != 1:
        return last.text
    words = list(texts[-1])
    varied = [place for place in range(len(words)) if len({text[place] for text in texts}) > 1]
    if not varied or len(varied) > 3 or len(varied) * 2 > len(words):
        return last.text
    if any(re.search(r"[\"'$|<>&;]", text[place]) for text in texts for place in varied):
        return last.text
    for place in varied:
        words[place] = _placeholder([text[place] for text in texts], words[place - 1] if place else "")
    return " ".join(words)


def _placeholder(values: list[str], before: str) -> str:
    option, equals, _ = values[-1].partition("=")
    if equals and option.startswith("-"):
        return f"{option}=<{option.lstrip('-')}>"
    if equals:
        return f"{option}=<{option.lower().replace('_', '-')}>"
    if before.startswith("--"):
        return f"<{before.lstrip('-')}>"
    if before == "-m":
        return "<message>"
    if all(re.search(r"\w\.\w+$", value) for value in values):
        return "<file>"
    return "<path>" if all("/" in value for value in values) else "<name>"


def _purpose(trace: Trace, runs: Sequence[CommandRun], run: CommandRun) -> str:
    """What the agent said the command is for. What it said of a line with several commands is about none of them."""
    if not _is_alone(run, runs):
        return ""
    stated = run.step.arguments.get("description") or run.step.arguments.get("explanation")
    if isinstance(stated, str) and stated.strip():
        return " ".join(stated.split())
    before = trace.steps[run.number - 2] if run.number >= 2 else None
    if before is not None and before.kind == "assistant" and before.agent == run.step.agent:
        return re.split(r"(?<=[.!?:])\s", " ".join(before.text.split()))[-1]
    return ""


def _is_alone(run: CommandRun, runs: Sequence[CommandRun]) -> bool:
    """Whether a call ran nothing beside this command but what sets up, shows or looks around."""
    others = [other for other in runs if other.number == run.number and other is not run]
    return all(other.role in ("context", "look") and "$(" not in other.text for other in others)


# What they printed.


def _observations(runs: Sequence[CommandRun]) -> Iterator[Observation]:
    last: dict[tuple[str, int], Observation] = {}
    for run in runs:
        if run.role != "work" or not run.whole or len(run.text) > MAX_COMMAND or not _is_alone(run, runs):
            continue  # of several commands nobody knows which one printed a line
        for line in run.step.output.splitlines()[:200]:
            plain = " ".join(line.split())
            if not 8 <= len(plain) <= MAX_LINE:
                continue
            kinds = [
                *(number for number, pattern in enumerate(_TELLS) if run.outcome == "ok" and pattern.search(plain)),
                *([len(_TELLS)] if run.outcome != "unknown" and _TELLS_VALUES.search(plain) else []),
            ]
            for kind in kinds:
                last[run.subcommand, kind] = Observation(run.text, plain, run.number)
    yield from sorted(last.values(), key=lambda seen: seen.step)


# Reuse.


def _reused(runs: Sequence[CommandRun], files: list[FinalFile]) -> Iterator[ReusedCommand]:
    scripts = {file.path: file for file in files if re.search(r"\.(?:sh|py|js|ts|rb|pl|mjs)$", file.path)}
    worked = [run for run in runs if run.outcome == "ok" and run.role == "work"]
    for path, file in scripts.items():
        ran = [run for run in worked if any(word.removeprefix("./") == path for word in run.words)]
        if len(ran) > 1 or (ran and path.endswith(".sh")):
            yield ReusedCommand(ran[-1].text, (*file.steps, *(run.number for run in ran)), path)
    again: dict[str, list[int]] = {}
    for run in worked:
        if run.whole:
            again.setdefault(run.text, []).append(run.number)
    for command, numbers in again.items():
        if len(numbers) > 1 and not any(path in command for path in scripts):
            yield ReusedCommand(command, tuple(numbers))
