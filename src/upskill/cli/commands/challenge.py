from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from upskill.authoring.material.material import gather
from upskill.authoring.saving.provenance import add_suite, own_suite
from upskill.cli.commands.tests import cases_with_limits
from upskill.cli.console import check_writable, note, write_file
from upskill.cli.help import Command
from upskill.cli.library import PlansOptions, confirm_writing, rounds_option
from upskill.cli.options import click_options
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.experiments.attacks import ROUNDS, Attacked, attack_checks
from upskill.experiments.counterexamples import (
    PROPOSALS,
    Challenged,
    ChallengeSettings,
    propose,
    try_proposals,
)
from upskill.options import count_option, option
from upskill.plain import counted
from upskill.reports.challenged import attacks_to_json, render, render_attacks, to_json
from upskill.runs.planning.options import choose_students, model_option
from upskill.skills import Skill
from upskill.suites import Case, Suite


@dataclass(kw_only=True)
class ChallengeOptions(PlansOptions):
    skill: str = ""
    challenger: str | None = model_option(
        "--challenger",
        help="Proposes cases, or attacks the checks; handoff:DIR writes its prompts to files for you or an agent to"
        " answer. Without one: the suite's own prompts, wrapped in small talk.",
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
    attack_checks: bool = option(
        "--attack-checks",
        default=False,
        help="Attack the checks in the suite instead: find wrong answers that pass and right ones that fail, and fix"
        " the checks.",
    )
    rounds: int = count_option(
        "--rounds",
        default=ROUNDS,
        help="With --attack-checks: the maximum number of attack rounds.",
        maximum=20,
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
    """Look for requests where SKILL leads a student astray, or attack the checks in its suite.

    \b
    upskill challenge my-skill -m haiku --challenger sonnet
    upskill challenge my-skill -m local     the suite's prompts, in small talk
    upskill challenge my-skill --attack-checks --challenger sonnet
    upskill generate --from my-skill --teacher sonnet    improves it on these

    A challenger proposes cases with checks and a right answer. Each must pass the gate of all generated cases. The
    student answers it with and without the skill until it is clear whether the skill misleads. A proposal counts only
    if the student passes without the skill and fails with it, with a chance of at most 5% that any of them is a fluke.
    These are added to evals/evals.json as train cases, so `generate` works on them. A suite that you wrote is never
    changed: -o writes them to a file.

    With --attack-checks, the challenger sees the checks and writes wrong answers that pass and right ones that fail.
    Then --judge (default: the challenger), who does not see the checks, says which answers really are right or wrong.
    The checks are then fixed so that all answers known so far are judged correctly, until a round finds nothing. What
    was found stays with the cases.

    If interrupted, run the same command again to continue.
    """
    options = ChallengeOptions(**values)
    skill = Skill.load(options.skill)
    suite = Suite.required(skill)
    if options.attack_checks and not options.challenger:
        raise UsageError("--attack-checks needs a --challenger", "Choose a model, or handoff:DIR.")
    if options.attack_checks and options.students:
        raise UsageError("no student runs with --attack-checks", "Drop -m.")
    if options.output:
        check_writable(options.output, force=True)
        if Path(options.output).exists():
            raise UsageError(f"{options.output}: already exists", "Choose another file.")
    if options.attack_checks:
        attacked = options.run(_attack(options, skill, suite))
        options.show(attacks_to_json(attacked), render_attacks(attacked))
        found = [case for case in cases_with_limits(attacked.suite) if case.id in attacked.changed]
    else:
        challenged = options.run(_challenge(options, skill, suite))
        options.show(to_json(challenged), render(challenged))
        found = challenged.counterexamples
    _save(options, skill, suite, found)


async def _challenge(options: ChallengeOptions, skill: Skill, suite: Suite) -> Challenged:
    students = choose_students(options.students, options.settings, options.tell)
    plan = options.plan(skill, suite, students)
    material = gather("", sources=options.sources) if options.sources else None
    settings = ChallengeSettings(
        challenger=options.challenger or "", count=options.proposals, material=material
    )
    async with options.open_engine() as engine:
        if settings.challenger:
            tokens = skill.tokens + (material.tokens if material else 0)
            confirm_writing(
                options, engine, settings.challenger, items=options.proposals, material=tokens
            )
            options.tell(f"{settings.challenger} proposes {counted(options.proposals, 'case')}...")
        proposed = await propose(plan, settings, engine)
        options.confirm_trials(engine, proposed, "about {}; more if many proposals mislead")
        return await try_proposals(proposed, engine, options.repeats)


async def _attack(options: ChallengeOptions, skill: Skill, suite: Suite) -> Attacked:
    name, answers = options.challenger or "", len(suite.cases) * options.rounds
    async with options.open_engine() as engine:
        confirm_writing(options, engine, name, items=answers, material=skill.tokens)
        attacker = await engine.open_model(name, "test writer")
        judge = await engine.open_model(options.judge, "judge") if options.judge else None
        with RunProgress(quiet=options.silent):
            return await attack_checks(
                suite,
                attacker,
                skill=skill,
                judge=judge,
                rounds=options.rounds,
                tell=options.tell,
                models=engine.models,
            )


def _save(options: ChallengeOptions, skill: Skill, before: Suite, changed: Sequence[Case]) -> None:
    """Into the skill's generated suite as it is now, or only what is new into a file."""
    if not changed:
        return
    names = counted(len(changed), "case")
    if options.output:
        write_file(
            options.output,
            yaml.safe_dump(Suite(tuple(changed)).to_dict(), sort_keys=False, allow_unicode=True),
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
    old, cases = (
        {case.id: case for case in cases_with_limits(each)}
        for each in (before, Suite.required(skill))
    )
    if edited := [case.id for case in changed if cases.get(case.id) != old.get(case.id)]:
        note(f"Edited in the meantime, so left as they are: {', '.join(edited)}.")
    if not (saved := [case for case in changed if case.id not in edited]):
        return
    cases |= {case.id: case for case in saved}
    add_suite(skill, Suite(tuple(cases.values()), "generated")).save(folder, overwrite=True)
    note(
        f"{'Changed' if options.attack_checks else 'Added'} {counted(len(saved), 'case')} in {folder.name}."
    )
    if not options.attack_checks:
        note(
            f"To improve the skill on them: upskill generate --from {options.skill} --teacher MODEL"
        )
