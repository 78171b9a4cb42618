"""`upskill tests`: have the test cases of a skill written, add some, or edit them."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click

from upskill.authoring.material import Material, gather
from upskill.authoring.provenance import Provenance, add_suite
from upskill.authoring.suite_writer import write_suite
from upskill.authoring.summarize import material_budget
from upskill.cli.console import note, show_json
from upskill.cli.options import (
    CommonOptions,
    confirm_cost,
    json_option,
    max_cost_option,
    model_context,
    offline_option,
    quiet_option,
    yes_option,
)
from upskill.errors import UsageError
from upskill.models import Models
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.ledger import Ceilings, Ledger
from upskill.runs.estimate import estimate_writing
from upskill.runs.stores import ReplyStore, open_store
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.suites.quality import probe_suite, summarise

BY_HAND = ("evals/suite.yaml", "evals/suite.yml", "evals/suite.json")


@click.command("tests")
@click.argument("skill", type=click.Path())
@click.option("-m", "--model", metavar="MODEL", help="Writes the cases (default: settings, or local).")
@click.option("--cases", type=click.IntRange(3, 60), default=20, show_default=True, metavar="N", help="How many.")
@click.option("--add", type=click.IntRange(1, 60), metavar="N", help="Keep the cases there are and add N.")
@click.option("--edit", is_flag=True, help="Open them in $EDITOR; what cannot be used is said and not kept.")
@click.option("-f", "--from", "sources", multiple=True, metavar="PATH", help="A trace or a document to make them from.")
@max_cost_option
@yes_option
@offline_option
@click.option("--runs-dir", metavar="DIR", help="Where replies are kept (default ./runs).")
@json_option
@quiet_option
def command(
    skill: str,
    model: str | None,
    cases: int,
    add: int | None,
    edit: bool,
    sources: tuple[str, ...],
    max_cost: float | None,
    yes: bool,
    offline: bool,
    runs_dir: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the test cases of SKILL anew, add to them, or edit them.

    Each generated case is tried with answers that know nothing before it is kept. They are saved as evals/evals.json
    and in skill_meta.json. A suite that you wrote yourself (evals/suite.yaml) is never replaced.
    """
    found = Skill.load(skill)
    assert found.folder is not None
    if edit:
        suite = _edit(found)
    else:
        by_hand = next((name for name in BY_HAND if found.file(name)), "")
        if by_hand:
            raise UsageError(
                f"{found.folder / by_hand}: is a suite of your own, which stays as it is", "Add to it by hand."
            )
        settings = Settings.load()
        name = model or settings.test_gen_model or settings.skill_generation_model or "local"
        before = Suite.of(found) if add else None
        material = _material(found, sources)
        common = CommonOptions(max_cost=max_cost, yes=yes, as_json=as_json, quiet=quiet, settings=settings)
        context = model_context(settings, quiet=common.silent, offline=offline)

        async def write(replies: ReplyStore) -> Suite:
            address = resolve(name, keys=find_keys())
            # A fresh set is wanted, not the stored one again.
            async with Models(context, replies=replies, cache="refresh", ledger=Ledger(Ceilings(max_cost))) as models:
                writer = await models.get(address, "test writer")
                taken = found.tokens + min(material.tokens, material_budget(address))
                confirm_cost(common, estimate_writing(address, context.prices, material=taken, items=add or cases))
                common.tell(f"Generating test cases with {name}...")
                return await write_suite(
                    found,
                    writer,
                    count=add or cases,
                    material=material,
                    budget=material_budget(address),
                    existing=before.cases if before else (),
                    tell=context.tell,
                )

        with open_store(runs_dir or settings.runs_dir) as store:
            written = asyncio.run(write(store))
        limit = before.max_output_tokens if before else None
        suite = Suite((*(before.cases if before else ()), *written.cases), "generated", limit)
    add_suite(found, suite).save(found.folder, overwrite=True)
    if as_json:
        show_json({"skill": found.name, "cases": len(suite.cases), "held_out": len(suite.held_out)})
    else:
        click.echo(f"{found.name}: {len(suite.cases)} cases, {len(suite.held_out)} held out")


def _material(skill: Skill, sources: tuple[str, ...]) -> Material:
    task = str(Provenance.of(skill).metadata.get("source_task") or skill.description)
    material = gather(task, sources=sources)
    if material.skill is not None:
        raise UsageError(f"{material.skill.folder}: is a skill, and --from takes a trace or a document here")
    return material


def _edit(skill: Skill) -> Suite:
    """Edit a copy; it takes the place of the cases only when it can be read and an empty answer passes none of it."""
    if by_hand := next((name for name in BY_HAND if skill.file(name)), ""):
        raise UsageError(f"{skill.folder}/{by_hand}: is a suite of your own", "Edit that file itself.")
    data = skill.read("evals/evals.json")
    if data is None:
        raise UsageError(f"{skill.folder}: has no evals/evals.json to edit", "`upskill tests SKILL` writes one.")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "evals.json"
        copy.write_bytes(data)
        click.edit(filename=str(copy))
        suite = Suite.load(copy)
    leaks = asyncio.run(probe_suite(suite, skill))
    for line in summarise(leaks):
        note(f"Note: {line}")
    if any(leak.probe == "empty" for leak in leaks):
        raise UsageError("a case is passed by an empty answer", "Nothing was changed; edit it again.")
    return suite
