from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from upskill.authoring.material.material import read_material
from upskill.authoring.saving.provenance import add_suite, own_suite
from upskill.cli.commands.tests import cases_with_limits
from upskill.cli.console import check_writable, note, write_file
from upskill.cli.help import Command
from upskill.cli.library import PlansOptions, confirm_writing, rounds_option
from upskill.cli.options import click_options
from upskill.errors import UsageError
from upskill.experiments.counterexamples import (
    PROPOSALS,
    Challenged,
    ChallengeSettings,
    propose,
    try_proposals,
)
from upskill.options import count_option, option
from upskill.plain import counted
from upskill.reports.experiments import report_challenge
from upskill.runs.planning.options import choose_students, model_option
from upskill.skills import Skill
from upskill.suites import Case, Suite


@dataclass(kw_only=True)
class ChallengeOptions(PlansOptions):
    skill: str = ""
    challenger: str | None = model_option(
        "--challenger",
        help="Proposes cases; handoff:DIR writes its prompts to files for you or an agent to answer.",
    )
    proposals: int = count_option(
        "--proposals", default=PROPOSALS, help="How many cases to propose.", maximum=60
    )
    sources: tuple[str, ...] = option(
        "-f",
        "--from",
        default=(),
        help="A trace or document for the challenger to read; repeatable.",
        metavar="PATH",
    )
    repeats: int | None = rounds_option("How many rounds a proposal may take (default 40).")
    output: str | None = option(
        "-o",
        "--output",
        default=None,
        help="Write the cases to this suite file instead of the skill.",
        metavar="FILE",
    )


@click.command("challenge", cls=Command)
@click.argument("skill")
@click_options(ChallengeOptions)
def command(**values: Any) -> None:
    """Look for requests where SKILL leads a student astray.

    \b
    upskill challenge my-skill -m haiku --challenger sonnet
    upskill challenge my-skill -m local --challenger handoff:desk    by hand
    upskill generate --from my-skill --teacher sonnet    improves it on these

    A challenger proposes cases with checks and a right answer. Each must pass the gate of all generated cases. The
    student answers it with and without the skill until it is clear whether the skill misleads. A proposal counts only
    if the student passes without the skill and fails with it, with a chance of at most 5% that any of them is a fluke.
    These are added to evals/evals.json as train cases, so `generate` works on them. A suite that you wrote is never
    changed: -o writes them to a file.

    If interrupted, run the same command again to continue.
    """
    options = ChallengeOptions(**values)
    skill = Skill.load(options.skill)
    suite = Suite.required(skill)
    if options.output:
        check_writable(options.output, force=True)
        if Path(options.output).exists():
            raise UsageError(f"{options.output}: already exists", "Choose another file.")
    challenged = options.run(_challenge(options, skill, suite))
    options.show(report_challenge(challenged))
    _save(options, skill, challenged.counterexamples)


async def _challenge(options: ChallengeOptions, skill: Skill, suite: Suite) -> Challenged:
    material = read_material("", sources=options.sources) if options.sources else None
    settings = ChallengeSettings(
        challenger=options.challenger or "", count=options.proposals, material=material
    )
    students = choose_students(options.students, options.settings, options.tell)
    plan = options.plan(skill, suite, students)
    async with options.open_engine() as engine:
        tokens = skill.tokens + (material.tokens if material else 0)
        confirm_writing(
            options, engine, settings.challenger, items=options.proposals, material=tokens
        )
        options.tell(f"{settings.challenger} proposes {counted(options.proposals, 'case')}...")
        proposed = await propose(plan, settings, engine)
        options.confirm_trials(engine, proposed, "about {}; more if many proposals mislead")
        return await try_proposals(proposed, engine, options.repeats)


def _save(options: ChallengeOptions, skill: Skill, found: Sequence[Case]) -> None:
    """Add them to the skill's generated suite as it is now, or write them to a file."""
    if not found:
        return
    names = counted(len(found), "case")
    if options.output:
        write_file(
            options.output,
            yaml.safe_dump(Suite(tuple(found)).to_dict(), sort_keys=False, allow_unicode=True),
        )
        note(f"Wrote {names} to {options.output}.")
        return
    if own := own_suite(skill):
        note(
            f"{own} is your own suite, which upskill never changes. Use -o FILE to write {names} to another file."
        )
        return
    folder = skill.folder
    assert folder is not None
    skill = Skill.load(folder)  # somebody may have edited it meanwhile
    cases = cases_with_limits(Suite.required(skill))
    known = {case.id for case in cases}
    added = [case for case in found if case.id not in known]
    add_suite(skill, Suite((*cases, *added), "generated")).save(folder, overwrite=True)
    note(f"Added {counted(len(added), 'case')} in {folder.name}.")
    note(f"To improve the skill on them: upskill generate --from {options.skill} --teacher MODEL")
