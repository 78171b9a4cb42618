"""An Order is what a person asked of eval or benchmark: their options, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from upskill.agents import Bounds
from upskill.cli.options import (
    CALLING,
    KEEPING,
    REAL_AGENTS,
    SAYING,
    SPENDING,
    CommonOptions,
    Decorator,
    acting,
    judge_option,
    offline_option,
    with_options,
)
from upskill.verdicts.statistics import Scope

_OPTIONS: list[Decorator] = [
    click.option("-t", "--tests", metavar="FILE", help="The suite (default: the one in the skill's folder)."),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible server; MODEL is its name for the model."),
    click.option("--test-gen-model", metavar="MODEL", help="Writes the test cases when the skill has none."),
    judge_option,
    click.option(
        "--agent",
        default="chat",
        show_default=True,
        metavar="AGENT",
        help="How the student works: chat (the skill in the prompt, one answer), tools (the skill in a catalog, "
        f"commands and files in a sandbox), or a real agent: {REAL_AGENTS}.",
    ),
    *acting("an agent that acts, per trial", Bounds()),
    click.option(
        "--with-skills",
        multiple=True,
        metavar="DIR",
        help="Skills to offer beside the one under test, in every arm: a skill, or a folder of them; repeatable.",
    ),
    click.option("--no-baseline", is_flag=True, help="Skip the runs without the skill. Then there is no lift."),
    click.option(
        "--until-decided",
        is_flag=True,
        help="Run round after round, each case once in each arm, until the verdict stands; --runs is the most "
        "(default 20). Looking after every round is allowed for by the test.",
    ),
    click.option(
        "--scope",
        type=click.Choice(["cases", "suite"]),
        default="cases",
        show_default=True,
        help="What --until-decided is sure about: tasks like these cases, or these very cases.",
    ),
    click.option(
        "--margin",
        type=click.FloatRange(0, 100),
        default=5.0,
        show_default=True,
        metavar="POINTS",
        help="A lift of less than this counts as no effect.",
    ),
    click.option("--controls", is_flag=True, help="Also run a placebo of the same length, and the baseline twice."),
    click.option("--against", metavar="SKILL", help="Compare with this older skill instead of with none."),
    click.option(
        "--target", type=click.FloatRange(0, 100), metavar="PERCENT", help="Name the cheapest that passes so many."
    ),
    click.option(
        "--making-cost",
        type=click.FloatRange(0),
        metavar="USD",
        help="What the skill cost to make, for break-even (default: what its skill_meta.json says).",
    ),
    click.option(
        "--require",
        "requirements",
        multiple=True,
        metavar="CONDITION",
        help='Exit with 1 unless it holds, e.g. "lift>=0.1", "decision=helps", "tokens<=1.2x"; repeatable. '
        'Judged at the unfavourable end of the interval unless written as "point:lift>=0.1".',
    ),
    click.option("--junit", metavar="FILE", help="Write JUnit XML."),
    click.option("--markdown", metavar="FILE", help="Write a summary for a pull request."),
    click.option("--strict-suite", is_flag=True, help="A case that knowing nothing passes is an error, not a warning."),
    click.option("--seed", type=int, default=0, show_default=True, help="The first seed; run N uses seed + N - 1."),
    click.option("--temperature", type=click.FloatRange(0, 2), help="Default: 0 for one run, 0.7 for several."),
    click.option(
        "--max-output-tokens",
        type=click.IntRange(1),
        metavar="N",
        help="How long an answer may be. One that is cut there is scored as it is; without a limit of your own or of "
        "the suite's, one that is cut at 4096 is an error.",
    ),
    *CALLING,
    click.option("--resume", is_flag=True, help="Go on with a stored run of this plan, or say that there is none."),
    click.option("--fresh", is_flag=True, help="Start over, even if the store has results of this very plan."),
    *SPENDING,
    click.option("--no-cache", is_flag=True, help="Neither take nor keep stored replies."),
    click.option("--replay", is_flag=True, help="Answer from stored replies only: no key, no call, no cost."),
    click.option(
        "--batch",
        is_flag=True,
        help="Ask students through their provider's batch API: half the price, an answer within a day. The same "
        "command goes on waiting for a batch that was submitted before.",
    ),
    offline_option,
    *KEEPING,
    click.option("-v", "--verbose", is_flag=True, help="Also show every case."),
    *SAYING,
]


def models_option(otherwise: str) -> Decorator:
    """The students, and what holds where none is named."""
    return click.option(
        "-m", "--model", "models", multiple=True, metavar="MODEL", help=f"A student; repeatable. {otherwise}"
    )


def options(function: Any) -> Any:
    """Everything eval and benchmark have in common."""
    return with_options(_OPTIONS)(function)


@dataclass
class EvalOptions(CommonOptions):
    """What the person asked for."""

    skill: str
    tests: str | None = None
    models: tuple[str, ...] = ()
    runs: int | None = None
    until_decided: bool = False
    scope: Scope = "cases"
    margin: float = 5.0
    controls: bool = False
    against: str | None = None
    target: float | None = None
    making_cost: float | None = None
    requirements: tuple[str, ...] = ()
    junit: str | None = None
    markdown: str | None = None
    strict_suite: bool = False
    base_url: str | None = None
    test_gen_model: str | None = None
    judge_model: str | None = None
    agent: str = "chat"
    sandbox: str = ""
    with_skills: tuple[str, ...] = ()
    max_turns: int | None = None
    trial_tokens: int | None = None
    trial_timeout: float | None = None
    no_baseline: bool = False
    seed: int = 0
    temperature: float | None = None
    max_output_tokens: int | None = None
    resume: bool = False
    fresh: bool = False
    no_cache: bool = False
    replay: bool = False
    batch: bool = False
    verbose: bool = False

    @property
    def bounds(self) -> Bounds:
        usual = Bounds()
        return Bounds(self.max_turns or usual.turns, self.trial_tokens, self.trial_timeout or usual.seconds)
