from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import click

from upskill.cli.console import note, write_file
from upskill.cli.help import Command
from upskill.cli.library import LibraryOptions, write_pages
from upskill.cli.options import click_options, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.errors import UsageError
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.options import option
from upskill.plain import counted
from upskill.reports import junit, markdown
from upskill.reports.gate import GateResult, report_gate
from upskill.runs.planning.estimate import estimate
from upskill.runs.planning.options import choose_students
from upskill.runs.planning.plan import Plan, Trial
from upskill.runs.running.gate import Checked, Gate
from upskill.runs.stores import Run, Store, is_url
from upskill.settings import FILE, Settings
from upskill.skills import Skill, find_skills
from upskill.skills.changes import SkillChange, changed_since, changed_skills, is_tracked
from upskill.suites import Suite
from upskill.verdicts import MAX_ROUNDS


@dataclass(kw_only=True)
class CiOptions(LibraryOptions):
    default_repeats: ClassVar[int] = MAX_ROUNDS

    base_ref: str | None = option(
        "--base-ref",
        default=None,
        help="The branch or commit to compare with (default: the one the CI system names, else the main branch).",
        metavar="REF",
    )
    every_skill: bool = option(
        "--all",
        default=False,
        help="Compare every skill with no skill, changed or not: which ones does a model still need?",
    )
    tolerance: float | None = option(
        "--tolerance",
        default=None,
        help="The largest loss to accept, in points (default 20).",
        metavar="POINTS",
        minimum=1,
        maximum=100,
    )
    strict: bool = option("--strict", default=False, help="Also fail on ⚠ and ❔.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every_skill and self.base_ref:
            raise UsageError(
                "--all compares each skill with no skill, so there is no base",
                "Drop --base-ref or --all.",
            )
        if self.repeat_count > MAX_ROUNDS:
            raise UsageError(
                f"--repeats {self.repeats}: the marks hold for at most {MAX_ROUNDS} rounds",
                "To see more, add cases to the suite.",
            )


@click.command("ci", cls=Command)
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path())
@click_options(CiOptions)
def command(**values: Any) -> None:
    """Check the skills in DIR (default: this folder) that a branch changed. Exit code 1 when one of them fails.

    \b
    upskill ci                          against the main branch
    upskill ci skills --base-ref HEAD~3 -m haiku --max-cost 2
    upskill ci -o ci-report             also JUnit and HTML
    upskill ci --all -m haiku           which skills haiku still needs

    Did the edit make these cases worse? The skill and its base answer the base's cases together, in up to 12 rounds.
    Does the skill help at all? It is compared with no skill. Each question ends as soon as it is settled. An unchanged
    skill costs nothing. Uncommitted changes count too, except ignored files.

    ✖ the edit is worse, the skill hurts, or it could not be run. ⚠ a case that always passed never passes now, or the
    skill has no effect. ✅ the edit loses no more than the tolerance, and the skill helps. ❔ neither is known.

    If the student's API key is missing, upskill grades recorded answers, provided that the skill had a receipt
    (`upskill eval --receipt`) before this branch and only its suite changed. If git tracks upskill.config.yaml, the
    base commit's version is used. In GitHub Actions the summary also appears on the run's page.
    """
    if values["every_skill"]:
        result = _check_library(CiOptions(**values))
    else:
        result = _check_branch(values)
    if result.is_blocked:
        raise click.exceptions.Exit(1)


def _check_library(options: CiOptions) -> GateResult:
    """Every skill against none, as if all were new."""
    changes: list[SkillChange] = []
    untested: list[str] = []
    folders = (folder for root in options.folders or (".",) for folder in find_skills(root))
    for folder in dict.fromkeys(folders):
        try:
            skill = Skill.load(folder)
        except UsageError as error:
            note(f"Skipped: {error.message}")
            continue
        if _has_no_cases(skill):
            untested.append(skill.name)
        else:
            changes.append(SkillChange(str(folder), skill))
    if not changes and not untested:
        raise UsageError("there is no skill here", "Pass the folder that holds your skills.")
    return _run(options, changes, untested=untested)


def _has_no_cases(skill: Skill) -> bool:
    try:
        return Suite.of(skill) is None
    except UsageError:  # the row will say what is wrong with it
        return False


def _check_branch(values: dict[str, Any]) -> GateResult:
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
        return _run(options, changes, commit=commit, notes=notes)


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


def _run(
    options: CiOptions,
    changes: Sequence[SkillChange],
    *,
    commit: str = "",
    notes: Sequence[str] = (),
    untested: Sequence[str] = (),
) -> GateResult:
    """Check these skills, and show the result."""
    with options.open_store() as store:
        gate, checked, ledger = options.run(_check(options, store, changes))
        result = GateResult(
            checked=checked,
            commit=commit,
            strict=options.strict,
            untested=untested,
            notes=notes,
            calls=ledger.calls,
            usage=ledger.total,
            command=lambda each: _command_of(options, each, commit),
        )
        _write(options, store, gate, result)
    return result


async def _check(
    options: CiOptions, store: Store, changes: Sequence[SkillChange]
) -> tuple[Gate, list[Checked], Ledger]:
    progress = RunProgress(quiet=options.silent)
    ledger = Ledger(options.ceilings)
    models = options.open_models(store, progress, ledger)
    students = cache(lambda: choose_students(options.students, options.settings, options.tell))

    def make_plan(skill: Skill, suite: Suite, base: Skill | None) -> Plan:
        return options.plan(skill, suite, students(), base)

    def started(plan: Plan, run: Run, missing: Collection[Trial]) -> None:
        other = "its base" if plan.reference_skill else "no skill"
        options.tell(f"Comparing {plan.skill.name} with {other}.")
        expected = estimate(plan, missing, models.context.prices)
        confirm_cost(
            options, expected, f"at most {expected.words}; less if fewer rounds are enough"
        )
        progress.started(plan, run, missing)

    measure = options.measurer(store, models, progress, started)
    gate = Gate(make_plan, measure, options.repeat_count)
    async with models:
        checked = [each for change in changes for each in await gate.check(change)]
    return gate, checked, ledger


def _write(options: CiOptions, store: Store, gate: Gate, result: GateResult) -> None:
    report = report_gate(result)
    options.show(report)
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(page).open("a", encoding="utf-8") as stream:
            stream.write(markdown.render(report))
    if options.output:
        folder = Path(options.output)
        write_file(str(folder / "summary.md"), markdown.render(report))
        write_file(str(folder / "junit.xml"), junit.render(report))
        write_pages(folder, store, gate.evaluations)
        note(f"Wrote {folder}/ ({result.summary}).")


def _command_of(options: CiOptions, checked: Checked, commit: str) -> str:
    """Checks this skill again, with this model."""
    head = checked.change.head
    folder = os.path.relpath(head.folder) if head and head.folder else checked.change.path
    words = ["upskill", "ci", folder]
    words += ["--base-ref", commit[:10]] if commit else ["--all"]
    words += ["-m", checked.model] if checked.model else []
    words += _more_options(options)
    return shlex.join(words)


def _more_options(options: CiOptions) -> Iterator[str]:
    """What decides a result beside the skill and the model, where it is not the default."""
    given = {
        "--base-url": options.base_url,
        "--agent": "" if options.agent == "chat" else options.agent,
        "--sandbox": options.sandbox,
        "--judge": options.judge,
        "--repeats": options.repeats,
        "--seed": options.seed,
        "--tolerance": options.tolerance and f"{options.tolerance:g}",
    }
    for flag, value in given.items():
        if value:
            yield from (flag, str(value))
    for folder in options.with_skills:
        yield from ("--with-skills", folder)
    for setting in options.set_values:
        yield from ("--set", setting)
