from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import click

from upskill.cli.console import note, show_document, show_json, write_file
from upskill.cli.help import Command
from upskill.cli.library import LibraryOptions, write_pages
from upskill.cli.options import click_options, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.models.keys import find_keys
from upskill.options import option
from upskill.plain import counted
from upskill.reports.gate import headline, render_junit, render_markdown
from upskill.runs.planning.estimate import estimate
from upskill.runs.planning.options import choose_students
from upskill.runs.planning.plan import Plan, Trial
from upskill.runs.running.gate import ROUNDS, Checked, Gate
from upskill.runs.stores import Run, Store, is_url
from upskill.settings import FILE, Settings
from upskill.skills import Skill
from upskill.skills.changes import SkillChange, changed_since, changed_skills, is_tracked
from upskill.suites import Suite


@dataclass(kw_only=True)
class CiOptions(LibraryOptions):
    default_repeats: ClassVar[int] = ROUNDS

    base_ref: str | None = option(
        "--base-ref",
        default=None,
        help="The branch or commit to compare with (default: the one the CI system names, else the main branch).",
        metavar="REF",
    )
    tolerance: float = option(
        "--tolerance",
        default=20.0,
        help="The largest loss to accept, in points (default 20). upskill keeps running rounds until the "
        "loss is shown to be smaller.",
        metavar="POINTS",
        minimum=1,
        maximum=100,
    )
    strict: bool = option(
        "--strict", default=False, help="Also block a skill that stays undecided."
    )


@click.command("ci", cls=Command)
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path())
@click_options(CiOptions)
def command(**values: Any) -> None:
    """Check the skills in DIR (default: this folder) that a branch changed. Exit code 1 when one of them is blocked.

    \b
    upskill ci                          against the main branch
    upskill ci skills --base-ref HEAD~3 -m haiku --max-cost 2
    upskill ci -o ci-report             also JUnit and HTML

    The student runs with each changed skill as it is now, as it was before, and without it. This shows whether the
    edit broke the skill and whether the skill still helps. upskill stops when both are clear, or after 12 rounds
    (--repeats). An unchanged skill costs nothing. Uncommitted changes count too, except ignored files.

    If the student's API key is missing, upskill grades recorded answers, provided that the skill had a receipt
    (`upskill eval --receipt`) before this branch and only its suite changed. If git tracks upskill.config.yaml, the
    base commit's version is used.

    A skill is blocked if the edit makes it worse, if the model does as well or better without it, or if it could not
    be run. In GitHub Actions the summary also appears on the run's page.
    """
    with changed_skills(values["folders"] or (".",), values["base_ref"]) as (commit, changes):
        settings, notes = _settings_before(commit)
        options = CiOptions(**values, settings=settings)
        env_file = Path(".env")
        if find_keys({}, env_file) and changed_since(env_file, commit)[0]:
            hint = "Remove it from git, and set keys and base URLs in the environment."
            raise UsageError(
                f"{env_file}: this branch changes it, so the branch could redirect the model calls",
                hint,
            )
        store_folder = Path(options.store_location)
        if not is_url(options.store_location) and is_tracked(store_folder):
            hint = f"Use another --store, or remove it from git: git rm -r --cached {store_folder}"
            raise UsageError(
                f"{store_folder}: this store is in git, so a branch can add its own answers", hint
            )
        options.tell(f"Comparing {counted(len(changes), 'skill')} with {commit[:10]}.")
        with options.open_store() as store:
            checked, gate = options.run(_check(options, store, changes))
            _write_reports(options, store, gate, checked, commit, notes)
    if any(map(gate.blocks, checked)):
        raise click.exceptions.Exit(1)


def _settings_before(commit: str) -> tuple[Settings, list[str]]:
    """A branch may not choose its student: settings that are in git are those of the commit that it began at."""
    file = Path(os.environ.get("UPSKILL_CONFIG") or FILE).absolute()
    is_changed, before = changed_since(file, commit)
    if not is_changed:
        return Settings.load(), []
    environment = {name: value for name, value in os.environ.items() if name != "UPSKILL_CONFIG"}
    with tempfile.TemporaryDirectory(prefix="upskill-base-") as folder:
        if before is not None:
            (Path(folder) / FILE).write_bytes(before)
        settings = Settings.load(environment, folder)
    return settings, [
        f"This branch changes `{file.name}`; upskill used the settings from `{commit[:10]}`."
    ]


async def _check(
    options: CiOptions, store: Store, changes: Sequence[SkillChange]
) -> tuple[list[Checked], Gate]:
    progress = RunProgress(quiet=options.silent)
    models = options.open_models(store, progress)
    students = cache(lambda: choose_students(options.students, options.settings, options.tell))

    def plan(skill: Skill, suite: Suite, base: Skill | None) -> Plan:
        return options.plan(skill, suite, students(), base)

    def started(plan: Plan, run: Run, missing: Collection[Trial]) -> None:
        other = "as it was" if plan.reference_skill else "without it"
        options.tell(f"Running {plan.skill.name} as it is and {other}.")
        expected = estimate(plan, missing, models.context.prices)
        confirm_cost(
            options, expected, f"at most {expected.words}; less if fewer rounds are enough"
        )
        progress.started(plan, run, missing)

    measure = options.measurer(store, models, progress, started)
    gate = Gate(plan, measure, options.tolerance / 100, options.strict)
    async with models:
        return [each for change in changes for each in await gate.check(change)], gate


def _write_reports(
    options: CiOptions,
    store: Store,
    gate: Gate,
    checked: Sequence[Checked],
    commit: str,
    notes: list[str],
) -> None:
    summary = render_markdown(gate, checked, commit, notes)
    if options.as_json:
        show_json(
            {
                "base": commit,
                "notes": notes,
                "blocked": any(map(gate.blocks, checked)),
                "skills": [_to_dict(gate, each) for each in checked],
            }
        )
    else:
        show_document(summary)
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(page).open("a", encoding="utf-8") as stream:
            stream.write(summary)
    if options.output:
        folder = Path(options.output)
        write_file(str(folder / "summary.md"), summary)
        write_file(str(folder / "junit.xml"), render_junit(gate, checked))
        write_pages(folder, store, gate.evaluations)
        note(f"Wrote {folder}/ ({headline(gate, checked)}).")


def _to_dict(gate: Gate, checked: Checked) -> dict[str, Any]:
    change = checked.change
    return {
        "skill": change.name,
        "folder": change.path,
        "was": change.base_path or None,
        "change": change.kind,
        "model": checked.model or None,
        "status": checked.status,
        "blocked": gate.blocks(checked),
        "reason": checked.reason,
        "against_base": checked.against_base and checked.against_base.to_dict(),
        "against_none": checked.against_none and checked.against_none.to_dict(),
    }
