from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from upskill.authoring.material.material import Material, gather
from upskill.authoring.saving.provenance import EVALS, SUITE, Provenance, add_suite, has_written_suite
from upskill.authoring.search.improve import add_stored_evidence
from upskill.authoring.writing.suite_writer import write_suite
from upskill.authoring.writing.summarize import material_budget
from upskill.authoring.writing.teachers import HANDOFF_MODEL, NoTeacher
from upskill.cli.console import note, show_json
from upskill.cli.help import Command
from upskill.cli.options import CommandOptions, click_options, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.options import option
from upskill.runs.planning.estimate import estimate_writing
from upskill.runs.planning.options import model_option
from upskill.skills import Skill
from upskill.suites import Case, Suite, count_authors, describe_authors
from upskill.suites.quality import probe_suite, summarize_weak

OWN_SUITES = ("evals/suite.yaml", "evals/suite.yml", "evals/suite.json")


@dataclass(kw_only=True)
class _Options(CommandOptions):
    skill: str
    test_writer: str | None = model_option("-m", "--test-writer", help="Writes the cases (default: settings).")
    cases: int = option("--cases", default=20, help="How many.", metavar="N", minimum=3, maximum=60, show_default=True)
    add: int | None = option(
        "--add", default=None, help="Keep the existing cases and add N.", metavar="N", minimum=1, maximum=60
    )
    edit: bool = option("--edit", default=False, help="Open them in $EDITOR; unusable cases are refused.")
    sources: tuple[str, ...] = option(
        "-f", "--from", default=(), help="A trace or document to write them from; repeatable.", metavar="PATH"
    )
    executor: str = field(default="local", init=False)  # no trials are run


@click.command("tests", cls=Command)
@click.argument("skill", type=click.Path())
@click_options(_Options)
def command(**values: Any) -> None:
    """Rewrite the test cases of SKILL, add to them, or edit them.

    Each generated case is tried with uninformed answers, and with right and wrong answers from a writer who has not
    seen its checks. The cases are saved as evals/evals.json. A suite that you wrote (evals/suite.yaml) is never
    replaced.
    """
    options = _Options(**values)
    skill = Skill.load(options.skill)
    assert skill.folder is not None
    written = SUITE if has_written_suite(skill) else ""
    if own := next((name for name in OWN_SUITES if skill.file(name) and name != written), ""):
        hint = "Edit that file itself." if options.edit else "Add to it by hand."
        raise UsageError(f"{skill.folder / own}: is your own suite, which upskill never replaces", hint)
    suite = _edit(skill) if options.edit else _generate(skill, options)
    add_suite(skill, suite).save(skill.folder, overwrite=True)
    written_by = [case.metadata for case in suite.cases]
    if options.as_json:
        sizes = {"cases": len(suite.cases), "held_out": len(suite.held_out)}
        show_json({"skill": skill.name, **sizes, "authors": count_authors(written_by)})
    else:
        click.echo(f"{skill.name}: {len(suite.cases)} cases, {len(suite.held_out)} held out")
        if authors := describe_authors(written_by):
            click.echo(authors)


def _generate(skill: Skill, options: _Options) -> Suite:
    settings = options.settings
    name = options.test_writer or settings.test_writer or settings.teacher
    if not name:
        raise NoTeacher(find_keys(), [HANDOFF_MODEL], role="test writer")
    existing = Suite.of(skill) if options.add else None
    # The suite's limit was meant for its old cases.
    limit = existing.max_output_tokens if existing else None
    cases = tuple(
        replace(case, max_output_tokens=case.max_output_tokens or limit)
        for case in (existing.cases if existing else ())
    )
    material = gather(
        str(Provenance.of(skill).metadata.get("source_task") or skill.description), sources=options.sources
    )
    for line in material.sources:
        options.tell(f"Read {line}.")
    if material.skill is not None:
        raise UsageError(f"{material.skill.folder}: is a skill; --from needs a trace or a document here")
    # Read the skill's sources again, if they still exist.
    material = add_stored_evidence(
        replace(material, skill=skill), material_budget(resolve(name, keys=find_keys())) // 2
    )
    for left_out in material.left_out:
        options.tell(f"Left out: {left_out}.")
    with options.open_store() as store:
        # Write new cases instead of returning the stored reply.
        models = Models(options.model_context(), replies=store, cache="refresh", ledger=Ledger(options.ceilings))
        with RunProgress(quiet=options.silent):
            written = asyncio.run(_write(material, cases, models, options, name))
    return Suite((*cases, *written.cases), "generated")


async def _write(material: Material, existing: tuple[Case, ...], models: Models, options: _Options, name: str) -> Suite:
    count = options.add or options.cases
    async with models:
        address = resolve(name, keys=models.context.keys)
        writer = await models.get(address, "test writer")
        budget = material_budget(address)
        skill = material.skill if not material.pieces else None  # it is read only if there is nothing else
        tokens = (skill.tokens if skill else 0) + min(material.tokens, budget)
        confirm_cost(options, estimate_writing(address, models.context.prices, material=tokens, items=count))
        options.tell(f"Generating test cases with {name}...")
        return await write_suite(
            material,
            writer,
            count=count,
            author=address.name,
            budget=budget,
            existing=existing,
            tell=options.tell,
        )


def _edit(skill: Skill) -> Suite:
    """Edit a copy. It replaces the cases only if it is readable and an empty answer passes no case."""
    data = skill.read(SUITE if has_written_suite(skill) else EVALS)
    if data is None:
        raise UsageError(f"{skill.folder}: no evals/evals.json to edit", "`upskill tests SKILL` writes one.")
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
