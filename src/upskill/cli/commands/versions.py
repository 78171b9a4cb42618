from __future__ import annotations

import difflib
import re
from contextlib import nullcontext
from pathlib import Path

import click

from upskill.cli.console import note, show_json, show_report
from upskill.cli.help import Command
from upskill.cli.options import find_project_store, json_option, say_nothing_yet, store_option
from upskill.errors import UsageError, did_you_mean
from upskill.plain import counted
from upskill.reports.runs import parent_number, report_versions
from upskill.runs.results.versions import list_versions
from upskill.runs.stores import Candidate, Store
from upskill.runs.stores.rows import files_from_json
from upskill.sandboxes import printable
from upskill.skills import HIDDEN_FROM_STUDENTS, Skill

MADE_BY = (
    "`upskill eval` stores each version that it measures, `upskill generate` each that it tries."
)


@click.command("versions", cls=Command)
@click.argument("skill", required=False)
@click.argument("before", metavar="[A]", required=False)
@click.argument("after", metavar="[B]", required=False)
@click.option("--diff", "shows_diff", is_flag=True, help="Show what the last version changed.")
@store_option
@json_option
def command(
    skill: str | None,
    before: str | None,
    after: str | None,
    shows_diff: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """List the versions of SKILL (a folder or a name), with their scores and which ones a search kept.

    With A and B (v1, v2, or the start of a hash), show how version B differs from version A. With A alone, show
    what A changed in its parent. Without SKILL, list the skills that have versions. The hash covers what a student can
    see, so editing the suite leaves it unchanged.

    A version is a text of the skill that was evaluated, or that `generate` or `trigger --improve` tried. The parent of
    a text that you wrote is the version before it.

    \b
    upskill versions my-skill           v1, v2, … with their scores
    upskill versions my-skill v1 v4     the difference between two
    upskill versions my-skill --diff    what the last one changed
    """
    with find_project_store(store) or nullcontext() as opened:
        name = Skill.load(skill).name if skill and Path(skill).is_dir() else Path(skill or "").name
        versions = list_versions(opened, name) if opened and skill else []
        of_draft = re.sub(
            r"-\d+$", "", name
        )  # a draft beside an older skill has a number after its name
        if (
            opened
            and skill
            and not versions
            and of_draft != name
            and (versions := list_versions(opened, of_draft))
        ):
            note(f"No version of {name!r} is stored. These are the versions of {of_draft!r}.")
        counts = _count(opened) if opened and not versions else {}
    if skill is None and as_json:
        show_json([{"skill": name, "versions": count} for name, count in counts.items()])
        return
    if skill is None:
        for name, count in counts.items():
            click.echo(f"{printable(name)}  {counted(count, 'version')}")
        if not counts:
            say_nothing_yet("no versions are stored here", MADE_BY)
        return
    if not versions and counts:
        hint = did_you_mean(name, counts, otherwise=f"Skills with versions: {', '.join(counts)}.")
        raise UsageError(f"no version of a skill named {name!r} is stored", hint)
    if not versions:
        say_nothing_yet(f"no version of {name!r} is stored", MADE_BY)
        if not as_json:
            return
    if versions and (before or shows_diff):
        _show_difference(versions, skill, before, after)
        return
    show_report(report_versions(name, versions), as_json=as_json)


def _count(store: Store) -> dict[str, int]:
    names = dict.fromkeys([*store.skills(), *store.skills_with_candidates()])
    return {name: count for name in sorted(names) if (count := len(list_versions(store, name)))}


def _show_difference(
    versions: list[Candidate], skill: str, before: str | None, after: str | None
) -> None:
    if after is None:  # one name, or none: a version and the one it was made from
        before, after = None, before or f"v{len(versions)}"
    newer = _find(versions, after)
    if before is None:
        if not (parent := parent_number(versions, newer)):
            hint = (
                f"Name two: upskill versions {skill} v1 v2. `upskill versions {skill}` lists them."
            )
            raise UsageError(f"{after} has no parent version", hint)
        before = f"v{parent}"
    old_texts, new_texts = _texts(_find(versions, before)), _texts(newer)
    for path in sorted(old_texts.keys() | new_texts.keys()):
        old, new = old_texts.get(path, []), new_texts.get(path, [])
        for line in difflib.unified_diff(
            old, new, f"{before}/{path}", f"{after}/{path}", lineterm=""
        ):
            click.echo(line)


def _find(versions: list[Candidate], name: str) -> Candidate:
    if len(name) >= 6 and (
        known := next((each for each in versions if each.fingerprint.startswith(name)), None)
    ):
        return known
    number = name.removeprefix("v")
    if not number.isdigit() or not 1 <= int(number) <= len(versions):
        raise UsageError(f"no version named {name!r}", f"Versions are v1 to v{len(versions)}.")
    return versions[int(number) - 1]


def _texts(version: Candidate) -> dict[str, list[str]]:
    return {
        file.path: (
            f"-> {file.link}" if file.link else file.data.decode("utf-8", "replace")
        ).splitlines()
        for file in files_from_json(version.files)
        if not file.path.startswith(HIDDEN_FROM_STUDENTS)
    }
