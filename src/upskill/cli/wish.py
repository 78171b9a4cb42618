"""A Wish is what a person asked of generate or teach: their options, in one value."""

from __future__ import annotations

from dataclasses import dataclass

import click

from upskill.cli.options import (
    CALLING,
    KEEPING,
    SAYING,
    SPENDING,
    CommonOptions,
    Decorator,
    judge_option,
    offline_option,
)

# What a skill is made from, beside the task.
SOURCES: list[Decorator] = [
    click.option("-e", "--example", "examples", multiple=True, metavar="'IN -> OUT'", help="An example; repeatable."),
    click.option(
        "--tool",
        "tools",
        multiple=True,
        metavar="FILE#NAME",
        help="An MCP tool schema, or all in FILE; mcp:COMMAND or a URL asks a running server; repeatable.",
    ),
    click.option(
        "-f",
        "--from",
        "sources",
        multiple=True,
        metavar="PATH",
        help="A trace, a document, a skill's folder to improve, or claude-code:last, codex:last, …; repeatable. "
        "doc:PATH, trace:PATH and skill:PATH say which.",
    ),
]
# How it is written, tried and improved.
MAKING: list[Decorator] = [
    click.option("--test-gen-model", metavar="MODEL", help="Writes the test cases (default: the teacher)."),
    click.option(
        "-o", "--output", metavar="DIR", help="The skill's folder, named like the skill (default ./skills/NAME)."
    ),
    click.option("--force", is_flag=True, help="Replace the output folder, whatever is in it."),
    click.option(
        "--tokens", type=click.IntRange(50), default=800, show_default=True, help="How long the skill should be."
    ),
    click.option("-t", "--tests", metavar="FILE", help="Your own suite, instead of a generated one."),
    click.option(
        "--cases", type=click.IntRange(3, 60), default=20, show_default=True, metavar="N", help="How many to generate."
    ),
    click.option("--no-eval", is_flag=True, help="Write the skill and its tests, and run nothing."),
    click.option("--eval-model", metavar="MODEL", help="The student (default: settings, or local)."),
    click.option("--eval-base-url", metavar="URL", help="An OpenAI-compatible server; the student is its name for it."),
    judge_option,
    click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="How often each case is run."),
    click.option(
        "--attempts",
        type=click.IntRange(0),
        metavar="N",
        help="How often to try for a better one (default: settings, 3).",
    ),
    click.option(
        "--candidates",
        type=click.IntRange(1, 10),
        default=1,
        show_default=True,
        metavar="N",
        help="How many first drafts.",
    ),
    click.option(
        "--target", type=click.FloatRange(0, 100), default=100, metavar="PERCENT", help="Stop at this pass rate."
    ),
    *SPENDING,
    *CALLING,
    offline_option,
    *KEEPING,
    *SAYING,
]


@dataclass
class GenerateOptions(CommonOptions):
    """What the person asked for."""

    task: str = ""
    examples: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    model: str | None = None
    test_gen_model: str | None = None
    handoff: str | None = None
    output: str | None = None
    force: bool = False
    tokens: int = 800
    tests: str | None = None
    cases: int = 20
    no_eval: bool = False
    eval_model: str | None = None
    eval_base_url: str | None = None
    judge_model: str | None = None
    runs: int = 1
    attempts: int | None = None
    candidates: int = 1
    target: float = 100
