from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import click

from upskill.cli.console import note, show_json, write_file
from upskill.cli.help import Command
from upskill.cli.options import json_option
from upskill.errors import UsageError
from upskill.reports.proof import badge, card, claims_in_words
from upskill.runs.replay.receipt import Verified, suite_of, terms_of, verify
from upskill.skills import BADGE, CARD, RECEIPT, Skill, find_skills
from upskill.suites.suite import suite_fingerprint
from upskill.verdicts.line import describe_verdict

MAX_SHOWN = 10  # changes of one skill


@click.command("verify", cls=Command)
@click.argument("skills", nargs=-1, required=True, type=click.Path())
@click.option(
    "--badge", "with_badge", is_flag=True, help="If the receipt holds, also write evals/badge.svg."
)
@click.option(
    "--card", "with_card", is_flag=True, help="If the receipt holds, also write skill-card.md."
)
@json_option
def command(skills: tuple[str, ...], with_badge: bool, with_card: bool, as_json: bool) -> None:
    """Check the receipts of SKILLS (skills, or folders of skills) without a key or a model.

    \b
    upskill eval ./skills/my-skill --receipt   run it, and keep the proof
    upskill verify ./skills/my-skill           recompute the proof anywhere

    A receipt (evals/receipt.json) records the result of a run; the answers are next to it. `verify` compares every file
    of the skill and its suite, grades the answers again and recomputes the verdict. Exit code 1 if anything differs. In
    a folder of skills, skills without test cases are skipped, and those without a receipt fail.

    --badge and --card write files for a README or a catalog: a badge with the lift, and NVIDIA's skill card, where the
    owner has to fill in use, risks and terms.

    This proves that the numbers follow from these answers. It cannot prove that a model gave them, when, at what cost,
    and which cases an earlier text had shown: that is claimed by whoever wrote the receipt.
    """
    checked: list[tuple[Skill, Verified]] = []
    untested: list[str] = []
    for path in skills:
        folders = list(find_skills(path))
        if not folders:
            raise UsageError(f"{path}: contains no skill", "A skill is a folder with a SKILL.md.")
        for folder in folders:
            skill = Skill.load(folder)
            try:
                result = asyncio.run(verify(skill))
            except UsageError as error:
                if folder == Path(path):
                    raise
                if skill.read(RECEIPT) is None and suite_fingerprint(skill) is None:
                    untested.append(str(folder))
                    continue
                result = Verified(
                    {}, [error.message.removeprefix(f"{skill.name}: ")]
                )  # the others are checked too
            checked.append((skill, result))
            if result.holds:
                _write(skill, result, folder, with_badge=with_badge, with_card=with_card)
            if not as_json:
                _show(Skill.load(folder), result)
    if untested:
        note(
            f"Skipped, because {'it has' if len(untested) == 1 else 'they have'} no test cases: {', '.join(untested)}"
        )
    if as_json:
        show_json(
            [
                {
                    "skill": skill.name,
                    "folder": str(skill.folder),
                    "holds": result.holds,
                    "changes": result.changes,
                }
                | {"claimed": asdict(result.claims) if result.holds else None}
                | {"suite": suite_of(skill, result.receipt), "terms": terms_of(result.receipt)}
                | {"differ": _differing(Skill.load(skill.folder), result) if skill.folder else []}
                for skill, result in checked
            ]
        )
    if not all(result.holds for _, result in checked):
        raise click.exceptions.Exit(1)


def _write(
    skill: Skill, result: Verified, folder: Path, *, with_badge: bool, with_card: bool
) -> None:
    if with_badge:
        write_file(str(folder / BADGE), badge(result.verdicts), private=False)
        note(f"Wrote {folder / BADGE}. For the README: ![upskill]({BADGE})")
    if with_card:
        old = (skill.read(CARD) or b"").decode("utf-8", "replace")
        write_file(
            str(folder / CARD), card(skill, result.receipt, result.verdicts, old), private=False
        )
        note(f"Wrote {folder / CARD}. Fill in the parts that only the skill's owner can answer.")


def _show(skill: Skill, result: Verified) -> None:
    if result.holds:
        suite, terms = suite_of(skill, result.receipt), terms_of(result.receipt)
        where = ", ".join(filter(None, [suite, terms]))
        for verdict in result.verdicts:
            click.echo(
                f"{skill.name}: holds. {describe_verdict(verdict)} ({verdict.model}, {where})"
            )
        click.echo(f"  Claimed by the author: {claims_in_words(result.claims)}")
        for path in _differing(skill, result):
            flag = "--badge" if path == BADGE else "--card"
            click.echo(f"  {path} does not match this receipt. To write it again, use {flag}.")
        return
    click.echo(f"{skill.name}: {'does not hold. ' if result.receipt else ''}{result.changes[0]}")
    if not result.receipt:
        return
    for change in result.changes[1:MAX_SHOWN]:
        click.echo(f"  {change}")
    if len(result.changes) > MAX_SHOWN:
        click.echo(f"  … and {len(result.changes) - MAX_SHOWN} more")
    click.echo(f"  To prove it again: upskill eval {skill.folder} --receipt")


def _differing(skill: Skill, result: Verified) -> list[str]:
    """Which of badge and card are not what the receipt would give."""
    texts = {
        path: data.decode("utf-8", "replace")
        for path in (BADGE, CARD)
        if (data := skill.read(path)) is not None
    }
    if not result.holds:
        return list(texts)
    made = {
        BADGE: badge(result.verdicts),
        CARD: card(skill, result.receipt, result.verdicts, texts.get(CARD, "")),
    }
    return [path for path, text in texts.items() if text != made[path]]
