from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.material.material import Material
from upskill.authoring.revising import RevisionRequest
from upskill.authoring.saving.output import Destination, changes, check_output
from upskill.cli.console import note, show_document
from upskill.cli.help import Command
from upskill.cli.library import (
    PlansOptions,
    check_report,
    rounds_option,
    tolerance_option,
    write_report,
)
from upskill.cli.options import click_options
from upskill.errors import UsageError
from upskill.experiments.distill import Distilled, DistillSettings
from upskill.options import option
from upskill.plain import dict_or_empty
from upskill.reports.experiments import report_distilled
from upskill.reports.svg import front
from upskill.runs.planning.options import choose_students, model_option
from upskill.sandboxes import printable
from upskill.skills import Skill
from upskill.suites import Suite

SHORTER = "Say the same in fewer words. Keep every fact, name and value; change nothing else."


@dataclass(kw_only=True)
class DistillOptions(PlansOptions):
    skill: str = ""
    tests: str | None = option(
        "-t", "--tests", default=None, help="A suite (default: the skill's own).", metavar="FILE"
    )
    all_cases: bool = option(
        "--all-cases",
        default=False,
        help="Use the held-out cases in the search, too: nothing that any case needs is dropped.",
    )
    repeats: int | None = rounds_option(
        "How many rounds the final comparison may take (default: up to 2,400 pairs)."
    )
    tolerance: float = tolerance_option(5.0, "pass rate the shorter skill may lose")
    budget: int | None = option(
        "--budget",
        default=None,
        help="At most this many tokens: also drop what is worth least per token, and say what that costs.",
        metavar="TOKENS",
        minimum=1,
    )
    rewrite: str | None = model_option(
        "--rewrite", help="A teacher that then rephrases what is left in fewer words."
    )
    write: bool = option(
        "--write", default=False, help="Replace the skill; the old version is kept in .previous."
    )
    output: str | None = option(
        "-o", "--output", default=None, help="Save the shorter skill in this folder.", metavar="DIR"
    )
    report: str | None = option(
        "--report",
        default=None,
        help="Write what each block is worth as a page (.html), or tokens against pass rate as a picture (.svg).",
        metavar="FILE",
    )


@click.command("distill", cls=Command)
@click.argument("skill")
@click_options(DistillOptions)
def command(**values: Any) -> None:
    """Find the shortest version of SKILL that is not worse, and what each of its lines is worth.

    \b
    upskill distill my-skill -m haiku --max-cost 5
    upskill distill my-skill -m local --repeats 1     greedy, one answer per case
    upskill distill my-skill -m haiku --budget 520    best within 520 tokens
    upskill show my-skill --worth                     line by line, afterwards

    upskill takes out paragraphs, list items, table rows and code blocks in groups, and splits a group only if a train
    case notices its absence. Then it compares what is left with the whole skill on new draws, until it is shown to
    lose at most --tolerance points on exactly these cases. With several students, that must hold for each. Held-out
    cases are run once, at the end.

    If interrupted, run the same command again to continue.
    """
    options = DistillOptions(**values)
    skill = Skill.load(options.skill)
    if options.write and options.output:
        raise UsageError("--write and --output cannot be used together", "Drop one of them.")
    if options.output:
        check_output(Path(options.output), may_replace=False)
    check_report(options.report)
    suite = Suite.load(options.tests) if options.tests else Suite.required(skill)
    if options.all_cases:
        suite = replace(suite, cases=tuple(replace(case, held_out=False) for case in suite.cases))
    distilled = options.run(_distill(options, skill, suite))
    difference = changes(skill, distilled.skill)
    report = report_distilled(distilled, difference)
    options.show(report)
    if difference and not (options.as_json or options.quiet):
        show_document(f"{printable(difference)}\n")
    _save(options, distilled)
    write_report(options.report, report, lambda: front(dict_or_empty(report.data)))


async def _distill(options: DistillOptions, skill: Skill, suite: Suite) -> Distilled:
    students = choose_students(options.students, options.settings, options.tell)
    plan = replace(options.plan(skill, suite, students), arms=("skill",))
    async with options.open_engine() as engine:
        rewriter = None
        if options.rewrite:
            teacher = await engine.open_model(options.rewrite, "teacher")
            material = Material(SHORTER, skill=skill)
            rewriter = RevisionRequest(
                model=teacher, skill=skill, material=material, tokens=skill.tokens
            )
        settings = DistillSettings(
            tolerance=options.tolerance / 100,
            budget=options.budget,
            repeats=options.repeats,
            rewriter=rewriter,
        )
        distilled = Distilled(plan, engine, settings)
        train = replace(plan.suite, cases=plan.suite.train)
        rounds = replace(plan, suite=train, runs=distilled.ablation.expected_rounds)
        options.confirm_trials(
            engine, rounds, "about {}; up to about ten times that if the data don't decide sooner"
        )
        return await distilled.run()


def _save(options: DistillOptions, distilled: Distilled) -> None:
    whole, shorter = distilled.whole, distilled.skill
    is_asked = options.write or options.output
    is_within = bool(options.budget) and distilled.decision in (
        "over the tolerance",
        "worse on held-out cases",
    )
    why_not = "" if is_asked else "--write saves it in the skill, -o DIR in a copy"
    if not shorter.body.strip():
        why_not = "no line would be left"
    elif shorter is whole:
        why_not = "there is no shorter version"
    elif distilled.decision != "distilled" and not is_within:
        why_not = "upskill saves a shorter version only if it is shown to be as good"
    elif options.write and Skill.load(whole.folder or "").visible_hash != whole.visible_hash:
        why_not = "the skill was edited in the meantime. Run the same command again"
    if why_not:
        (note if is_asked else options.tell)(f"Nothing was written: {why_not}.")
        return
    target = Path(options.output) if options.output else whole.folder
    assert target is not None
    events = AuthoringEvents(message=options.tell)
    destination = Destination(None, target.parent, whole, ("", ""), force=True, events=events)
    _, previous = destination.save(
        shorter.with_name(target.name) if options.output else shorter, target
    )
    note(f"Wrote {target}." + (f" The old version is in {previous}." if previous else ""))
