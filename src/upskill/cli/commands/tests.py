from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from upskill.authoring.material.material import Material, read_material, with_stored
from upskill.authoring.saving.provenance import (
    EVALS,
    SUITE,
    Provenance,
    add_suite,
    has_written_suite,
    own_suite,
)
from upskill.authoring.writing.suite_writer import MAX_WRITTEN, write_hard_cases, write_suite
from upskill.authoring.writing.summarize import material_budget
from upskill.authoring.writing.teachers import HANDOFF_MODEL, NoTeacher, find_test_writer
from upskill.cli.console import note, show_json
from upskill.cli.help import Command
from upskill.cli.library import PlansOptions, confirm_writing, rounds_option
from upskill.cli.options import click_options
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.experiments.mutation import MAX_COVERED, MAX_ROUNDS, Score, Scoring, rules_of
from upskill.models import CacheMode
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.options import count_option, option
from upskill.outputs import whole_file
from upskill.plain import counted
from upskill.reports.experiments import report_score
from upskill.runs.planning.options import model_option
from upskill.runs.planning.plan import DEFAULT_OUTPUT_TOKENS
from upskill.skills import Skill
from upskill.suites import Case, Suite, count_authors, describe_authors
from upskill.suites.appending import append_cases
from upskill.suites.quality import probe_suite, summarize_weak
from upskill.suites.suite import PATHS_IN_SKILL


@dataclass(kw_only=True)
class _Options(PlansOptions):
    skill: str = ""
    students: tuple[str, ...] = model_option(
        "-m",
        "--student",
        help="With --score: the model to test; repeatable. Otherwise: the same as --test-writer.",
        many=True,
    )
    score: bool = option(
        "--score",
        default=False,
        help="List the rules that the cases don't cover. Without -m: rules that no case mentions. With -m: rules that"
        " can be removed or reversed without any case failing.",
    )
    fix: str | None = model_option(
        "--fix", help="With --score: a test writer that adds cases for these rules."
    )
    test_writer: str | None = model_option(
        "--test-writer", help="Writes the cases (default: settings)."
    )
    cases: int = count_option(
        "--cases", default=20, help="How many cases to write.", minimum=3, maximum=60
    )
    add: int | None = option(
        "--add",
        default=None,
        help="Keep the existing cases and add N.",
        metavar="N",
        minimum=1,
        maximum=60,
    )
    hard: str | None = model_option(
        "--hard",
        help="With --add: keep mostly cases that this student fails without the skill. Up to four times as many are"
        " written and asked once; a quarter of those kept are not asked.",
    )
    edit: bool = option(
        "--edit", default=False, help="Open the cases in $EDITOR; invalid ones are rejected."
    )
    sources: tuple[str, ...] = option(
        "-f",
        "--from",
        default=(),
        help="A trace or document to write the cases from; repeatable.",
        metavar="PATH",
    )
    repeats: int | None = rounds_option(
        "With --score: how many rounds a rule may take (default 40)."
    )

    @property
    def cache_mode(self) -> CacheMode:
        """The stored reply would add the same cases again."""
        return "refresh" if self.add and super().cache_mode == "use" else super().cache_mode


@click.command("tests", cls=Command)
@click.argument("skill", type=click.Path())
@click_options(_Options)
def command(**values: Any) -> None:
    """Rewrite the test cases of SKILL, add to them, edit them, or score them.

    \b
    upskill tests my-skill -m sonnet --add 10
    upskill tests my-skill --add 12 --hard haiku      cases that haiku fails
    upskill tests my-skill --score                    which rules no case mentions
    upskill tests my-skill --score -m haiku           which rules no case needs
    upskill tests my-skill --score --fix sonnet       writes cases for them

    Each generated case is tried with uninformed answers, and with right and wrong answers from a writer who has not
    seen its checks. The cases are saved as evals/evals.json. A suite that you wrote (evals/suite.yaml) is never
    replaced: --add appends to it and leaves its text alone.

    --score asks whether the cases would notice if a rule in the skill broke. A rule is a block with a number, a flag or
    a name in code. upskill removes all rules, then each one, then reverses those whose removal went unnoticed. It also
    lists cases that pass without the skill. If interrupted, run the same command again to continue.
    """
    options = _Options(**values)
    skill = Skill.load(options.skill)
    if options.score and (options.add or options.edit or options.sources):
        raise UsageError("--score cannot be used with --add, --edit or --from", "Drop them.")
    if options.fix and not options.score:
        raise UsageError("--fix needs --score", "It writes cases for the rules that --score finds.")
    if options.hard and not options.add:
        raise UsageError("--hard needs --add", "It chooses among the cases that --add writes.")
    assert skill.folder is not None
    if (own := own_suite(skill)) and not (options.score or options.add):
        hint = "Edit that file directly." if options.edit else "Use --add N to add cases to it."
        raise UsageError(
            f"{skill.folder / own}: this is your own suite, which upskill never replaces", hint
        )
    scored: dict[str, Any] = {}
    if options.score:
        if options.fix:
            resolve(options.fix, keys=find_keys())  # a usage error, before anything is paid for
        score = options.run(_score(skill, options))
        report = report_score(score)
        if not options.fix or not score.uncovered:
            options.show(report)
            return
        if not options.as_json:
            options.show(replace(report, next=()))
        scored = {"score": report.data}
        suite = _append(skill, score.suite, options.run(_fix(score, options)), options)
        _count_uncovered(skill, suite, options)
    elif options.add and (before := Suite.of(skill)):
        written = asyncio.run(_generate(skill, options, before.cases))
        suite = _append(skill, before, written, options)
    else:
        suite = _edit(skill) if options.edit else asyncio.run(_generate(skill, options))
        add_suite(skill, suite).save(skill.folder, overwrite=True)
    written_by = [case.metadata for case in suite.cases]
    if options.as_json:
        sizes = {"cases": len(suite.cases), "held_out": len(suite.held_out)}
        show_json({"skill": skill.name, **sizes, "authors": count_authors(written_by), **scored})
    else:
        click.echo(
            f"{skill.name}: {counted(len(suite.cases), 'case')}, {len(suite.held_out)} held out"
        )
        if authors := describe_authors(written_by):
            click.echo(authors)


def cases_with_limits(suite: Suite) -> tuple[Case, ...]:
    """With the suite's limit on answers, which was meant for these and not for cases that are added."""
    limit = suite.max_output_tokens
    return tuple(
        replace(case, max_output_tokens=case.max_output_tokens or limit) for case in suite.cases
    )


def _append(skill: Skill, before: Suite, written: Suite, options: _Options) -> Suite:
    """Add the cases to the file that the suite is in, but for those that fit none of what it says of all its cases."""
    assert skill.folder is not None
    cases = written.cases
    if before.max_output_tokens:  # that limit was meant for the others
        cases = tuple(
            replace(case, max_output_tokens=case.max_output_tokens or DEFAULT_OUTPUT_TOKENS)
            for case in cases
        )
    path = next(path for path in PATHS_IN_SKILL if skill.file(path))
    try:
        data, suite = append_cases(skill, path, cases)
        weak = {each.case for each in asyncio.run(probe_suite(_added(suite, before), skill))}
        if weak:
            options.tell(f"Left out {counted(len(weak), 'case')} that the suite's checks misjudge.")
            cases = tuple(case for case in cases if case.id not in weak)
            data, suite = append_cases(skill, path, cases)
    except UsageError:
        if own_suite(skill):
            raise
        suite = Suite((*cases_with_limits(before), *written.cases), "generated")
        add_suite(skill, suite).save(skill.folder, overwrite=True)
        return suite
    with whole_file((skill.folder / path).resolve()) as stream:
        stream.write(data)
    return suite


def _added(suite: Suite, before: Suite) -> Suite:
    return replace(suite, cases=suite.cases[len(before.cases) :])


async def _generate(skill: Skill, options: _Options, existing: tuple[Case, ...] = ()) -> Suite:
    keys = find_keys()
    name = (
        options.test_writer
        or next(iter(options.students), None)
        or find_test_writer(options.settings, keys)
    )
    if not name:
        raise NoTeacher(keys, [HANDOFF_MODEL], role="test writer")
    material = read_material(
        str(Provenance.of(skill).metadata.get("source_task") or skill.description),
        sources=options.sources,
    )
    for line in material.sources:
        options.tell(f"Read {line}.")
    if material.skill is not None:
        raise UsageError(
            f"{material.skill.folder}: this is a skill; --from needs a trace or a document here"
        )
    material = with_stored(replace(material, skill=skill))
    for left_out in material.left_out:
        options.tell(f"Left out: {left_out}.")
    return await _write(options, name, material, existing, options.add or options.cases)


async def _write(
    options: _Options,
    name: str,
    material: Material,
    cases: tuple[Case, ...],
    count: int,
    *,
    acts: bool = False,
) -> Suite:
    """So many new cases from this material, beside these."""
    async with options.open_engine() as engine:
        read = (
            material.skill.tokens if material.skill and not material.pieces else 0
        )  # only if there is nothing else
        budget = material_budget(resolve(name, keys=find_keys()))
        tokens = read + min(material.tokens, budget)
        items = MAX_WRITTEN * count if options.hard else count
        address = confirm_writing(options, engine, name, items=items, material=tokens)
        writer = await engine.open_model(name, "test writer")

        async def write(count: int, written: tuple[Case, ...]) -> tuple[Case, ...]:
            options.tell(f"Generating test cases with {name}...")
            with RunProgress(quiet=options.silent):
                suite = await write_suite(
                    material,
                    writer,
                    count=count,
                    author=address.name,
                    budget=budget,
                    existing=(*cases, *written),
                    acts=acts,
                    tell=options.tell,
                )
            return suite.cases

        async def ask(asked: tuple[Case, ...]) -> set[str]:
            """Once each, without the skill. These draws are in no verdict."""
            assert material.skill is not None
            plan = options.plan(material.skill, Suite(asked, "generated"), [options.hard or ""])
            plan = replace(plan, arms=("baseline",), runs=1)
            options.confirm_trials(engine, plan, "{}")
            evaluation = await engine.run_part(plan, [case.id for case in asked], range(1))
            return {outcome.case for outcome in evaluation.outcomes if outcome.passed is False}

        if not options.hard:
            return Suite(await write(count, ()), "generated")
        kept, chosen = await write_hard_cases(write, ask, count, options.hard)
        options.tell(f"{options.hard}: {chosen}.")
        return Suite(kept, "generated")


async def _score(skill: Skill, options: _Options) -> Score:
    suite = Suite.required(skill)
    if not options.students:
        return Score(skill, suite, rules_of(skill, suite))
    plan = replace(options.plan(skill, suite, options.students), arms=("skill",))
    async with options.open_engine() as engine:
        scoring = Scoring(plan, engine, options.repeats or MAX_ROUNDS)
        rounds = replace(plan, runs=scoring.expected_rounds)
        options.confirm_trials(engine, rounds, "about {}; less if fewer rounds are enough")
        return await scoring.run()


async def _fix(found: Score, options: _Options) -> Suite:
    """New cases for what the suite does not notice."""
    count = min(len(found.uncovered), MAX_COVERED)
    material, acts = found.uncovered_material, options.agent != "chat"
    cases = found.suite.cases
    return await _write(options, options.fix or "", material, cases, count, acts=acts)


def _count_uncovered(skill: Skill, suite: Suite, options: _Options) -> None:
    if left := sum(rule.is_untestable for rule in rules_of(skill, suite)):
        options.tell(
            f"No case mentions {counted(left, 'rule')} yet. Run the same command again for more cases."
        )


def _edit(skill: Skill) -> Suite:
    """Edit a copy. It replaces the cases only if it is readable and an empty answer passes no case."""
    data = skill.read(SUITE if has_written_suite(skill) else EVALS)
    if data is None:
        raise UsageError(
            f"{skill.folder}: no evals/evals.json to edit", "`upskill tests SKILL` writes one."
        )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "evals.json"
        copy.write_bytes(data)
        click.edit(filename=str(copy))
        suite = Suite.load(copy)
    weak = asyncio.run(probe_suite(suite, skill))
    for line in summarize_weak(weak):
        note(f"Note: {line}")
    if any(case.probe == "empty" for case in weak):
        raise UsageError("an empty answer passes a case", "Nothing was changed; edit it again.")
    return suite
