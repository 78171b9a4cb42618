"""`upskill trigger`: does a skill fire when it should, and only then?"""

from __future__ import annotations

from typing import Any

import click

from upskill.agents import Bounds
from upskill.cli.options import (
    CALLING,
    KEEPING,
    REAL_AGENTS,
    SAYING,
    SPENDING,
    Decorator,
    acting,
    offline_option,
    with_options,
)
from upskill.cli.triggering import TURNS, TriggerOptions, run_trigger

_OPTIONS: list[Decorator] = [
    click.option(
        "-m", "--model", "models", multiple=True, metavar="MODEL", help="A student; repeatable. Default: local."
    ),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible server; MODEL is its name for the model."),
    click.option("--queries", metavar="FILE", help="The queries (default: eval_queries.json in the skill's folder)."),
    click.option("--query-model", metavar="MODEL", help="Writes the queries when the skill has none."),
    click.option(
        "--count",
        type=click.IntRange(6, 100),
        default=20,
        show_default=True,
        metavar="N",
        help="How many queries to have written: half that should trigger, half near-misses.",
    ),
    click.option(
        "--runs", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="How often each query is run."
    ),
    click.option(
        "--with-skills",
        multiple=True,
        metavar="DIR",
        help="Skills to offer beside it: a skill, or a folder of them; repeatable.",
    ),
    click.option(
        "--agent",
        default="tools",
        show_default=True,
        metavar="AGENT",
        help=f"Who decides: tools, or a real agent: {REAL_AGENTS}.",
    ),
    *acting("students", Bounds(TURNS)),
    click.option("--improve", is_flag=True, help="Look for a better description, and say what it is worth."),
    click.option("--teacher", metavar="MODEL", help="Rewrites the description (default: settings)."),
    click.option(
        "--attempts",
        type=click.IntRange(1),
        default=5,
        show_default=True,
        metavar="N",
        help="How many descriptions to try.",
    ),
    click.option("--write", is_flag=True, help="Put a better description into SKILL itself."),
    click.option("-o", "--output", metavar="DIR", help="Write the skill with a better description here."),
    click.option("--force", is_flag=True, help="Replace the output folder, whatever is in it."),
    click.option(
        "--require",
        "requirements",
        multiple=True,
        metavar="CONDITION",
        help='Exit with 1 unless it holds, e.g. "recall>=0.8", "precision>=0.9"; repeatable. Judged at the '
        'unfavourable end of the interval unless written as "point:recall>=0.8".',
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="The first seed; run N uses seed + N - 1."),
    click.option("--temperature", type=click.FloatRange(0, 2), help="Default: 0 for one run, 0.7 for several."),
    click.option("--max-output-tokens", type=click.IntRange(1), metavar="N", help="How long one turn may be."),
    *CALLING,
    click.option("--fresh", is_flag=True, help="Start over, even if the store has results of these very runs."),
    *SPENDING,
    click.option("--no-cache", is_flag=True, help="Neither take nor keep stored replies."),
    click.option("--replay", is_flag=True, help="Answer from stored replies only: no key, no call, no cost."),
    offline_option,
    *KEEPING,
    *SAYING,
]


@click.command("trigger")
@click.argument("skill", type=click.Path())
@with_options(_OPTIONS)
def command(**given: Any) -> None:
    """Say whether SKILL fires when it should, and only then.

    Each query is put to an agent that has the skill in its catalog, beside the skills of --with-skills. A run ends when
    the skill is opened, or after --max-turns. With --improve a teacher rewrites the description from train queries,
    validation queries choose, and test queries are run once at the end. The same command goes on after Ctrl-C.

    \b
    upskill trigger ./skills/my-skill -m haiku --with-skills ./skills
    upskill trigger ./skills/my-skill -m haiku --query-model sonnet         have the queries written
    upskill trigger ./skills/my-skill -m haiku --improve --teacher sonnet --write
    """
    run_trigger(TriggerOptions(**given))
