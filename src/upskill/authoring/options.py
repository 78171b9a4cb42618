"""Options of the verbs that make a skill."""

from __future__ import annotations

from dataclasses import dataclass

from upskill.agents import Bounds
from upskill.authoring.lesson.lesson import TEACHER_BOUNDS
from upskill.options import count_option, option
from upskill.runs.planning.options import StudentOptions, model_option
from upskill.skills.agent_specs import REAL_AGENTS


@dataclass(kw_only=True)
class GenerateOptions(StudentOptions):
    task: str = ""  # what the skill is for; with a trace or an older skill it may be left out
    examples: tuple[str, ...] = option(
        "-e", "--example", default=(), help="An example; repeatable.", metavar="'IN -> OUT'"
    )
    tools: tuple[str, ...] = option(
        "--tool",
        default=(),
        help="An MCP tool schema; without #NAME, all in FILE. Use mcp:COMMAND or a URL to ask a server; repeatable.",
        metavar="FILE#NAME",
    )
    sources: tuple[str, ...] = option(
        "-f",
        "--from",
        default=(),
        help="A trace, a document (text, PDF, HTML, Word, notebook), a folder of them, a skill to improve, "
        "claude-code:last, "
        "codex:last, …; repeatable. "
        "To force the type, write doc:PATH, trace:PATH or skill:PATH.",
        metavar="PATH",
    )
    feedback: bool = option(
        "--feedback",
        default=False,
        help="Show the teacher what people said about the skill's answers in `upskill view`.",
    )
    teacher: str | None = model_option(
        "-m",
        "--teacher",
        help="The model that writes the skill (default: settings, or sonnet with ANTHROPIC_API_KEY).",
    )
    handoff: str | None = option(
        "--handoff",
        default=None,
        help="Write the teacher's prompts to files, for you or any agent to answer.",
        metavar="DIR",
    )
    test_writer: str | None = model_option(
        "--test-writer", help="Writes the test cases (default: the teacher)."
    )
    ask: bool = option(
        "--ask",
        default=False,
        help="Answer the teacher's questions about what the sources leave out.",
    )
    output: str | None = option(
        "-o",
        "--output",
        default=None,
        help="The skill's folder; its last part becomes the skill's name (default ./skills/NAME).",
        metavar="DIR",
    )
    force: bool = option(
        "--force", default=False, help="Replace the output folder even if it was edited by hand."
    )
    tokens: int = option(
        "--tokens",
        default=1_500,
        help="How long the skill should be.",
        metavar="N",
        minimum=50,
        show_default=True,
    )
    file_tokens: int = option(
        "--file-tokens",
        default=2_000,
        help="How long its scripts and references may be in total.",
        metavar="N",
        minimum=0,
        show_default=True,
    )
    tests: str | None = option(
        "-t",
        "--tests",
        default=None,
        help="Your own suite, instead of a generated one.",
        metavar="FILE",
    )
    cases: int = count_option(
        "--cases",
        default=24,
        help="How many test cases to generate; half are kept fresh.",
        minimum=3,
        maximum=60,
    )
    no_eval: bool = option(
        "--no-eval",
        default=False,
        help="Write the skill and its tests, but don't test the skill on a student.",
    )
    student: str | None = model_option(
        "--student", help="The model to test (default: settings, or local)."
    )
    judge: str | None = model_option(
        "--judge", help="The model that grades cases with `judge` checks."
    )
    attempts: int | None = option(
        "--attempts",
        default=None,
        help="How many revisions of the skill to try on the shown cases (default: settings, or 1).",
        metavar="N",
        minimum=0,
    )
    refiner: str = option(
        "--refiner",
        default="rewrite",
        help="How changes are proposed: rewrite (by the teacher) or gepa.",
        metavar="KIND",
        show_default=True,
    )

    @property
    def student_acts(self) -> bool:
        return self.agent != "chat"

    @property
    def eval_bounds(self) -> Bounds:
        return self.bounds


@dataclass(kw_only=True)
class TeachOptions(GenerateOptions):
    default_bounds = TEACHER_BOUNDS

    teacher: str | None = model_option(
        "-m", "--teacher", help="The model that does the task and writes the skill."
    )
    teacher_agent: str = option(
        "--teacher-agent",
        default="tools",
        help=f"How the teacher works: tools (built-in agent), or a real agent: {REAL_AGENTS}.",
        metavar="AGENT",
        show_default=True,
    )
    files: tuple[str, ...] = option(
        "--files",
        default=(),
        help="A file or folder to copy into the workspace; repeatable.",
        metavar="PATH",
    )
    check: str = option(
        "--check",
        default="",
        help="A command to run in the workspace afterwards; it must succeed if the task was done.",
        metavar="COMMAND",
    )
    fresh: bool = option(
        "--fresh", default=False, help="Do the task again, even if this lesson was recorded before."
    )
    only_record: bool = option(
        "--only-record",
        default=False,
        help="Record the session and print its path, but write no skill.",
    )

    @property
    def eval_bounds(self) -> Bounds:
        return Bounds()  # max_turns and the like are the teacher's
