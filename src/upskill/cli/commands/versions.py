from __future__ import annotations

import difflib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from upskill.cli.console import show, show_json
from upskill.cli.help import Command
from upskill.cli.options import find_project_store, json_option, say_nothing_yet, store_option
from upskill.errors import UsageError, did_you_mean
from upskill.plain import counted
from upskill.reports.terminal import percent
from upskill.runs.stores import Candidate
from upskill.runs.stores.rows import files_from_json
from upskill.sandboxes import printable
from upskill.skills import HIDDEN_FROM_STUDENTS, Skill
from upskill.verdicts.verdict import LOOK_UP, UNTESTED

MADE_BY = "`upskill generate` makes them while it looks for a better skill."
DECISIONS = {True: "kept", False: "rejected", None: "not decided"}  # of versions that were stored without a reason


@click.command("versions", cls=Command)
@click.argument("skill", required=False)
@click.argument("before", metavar="[A]", required=False)
@click.argument("after", metavar="[B]", required=False)
@click.option("--diff", "shows_diff", is_flag=True, help="Show what the last version changed in the one before it.")
@store_option
@json_option
def command(
    skill: str | None, before: str | None, after: str | None, shows_diff: bool, store: str | None, as_json: bool
) -> None:
    """List the versions of SKILL (a folder or a name) that were tried: their parents, scores, and which were kept.

    With A and B, show how version B differs from version A; with A alone, what A changed in the one it was made from.
    Without SKILL, list the skills that have versions.

    These are the versions that `generate` and `trigger --improve` made. A report that says "version 3 of this skill on
    these cases" counts others: each text of the skill that was evaluated on them, whoever wrote it.

    \b
    upskill versions my-skill           c1, c2, … with their scores
    upskill versions my-skill c1 c4     the difference between two
    upskill versions my-skill --diff    what the last one changed
    """
    with find_project_store(store) or nullcontext() as opened:
        counts = opened.skills_with_candidates() if opened else {}
        name = Skill.load(skill).name if skill and Path(skill).is_dir() else Path(skill or "").name
        versions = list(opened.candidates(name)) if opened and skill else []
    if skill is None and as_json:
        show_json([{"skill": name, "versions": count} for name, count in counts.items()])
        return
    if skill is None:
        for name, count in counts.items():
            click.echo(f"{printable(name)}  {counted(count, 'version')}")
        if not counts:
            say_nothing_yet("no version that `upskill generate` made is stored here", MADE_BY)
        return
    if not versions and counts:
        hint = did_you_mean(name, counts, otherwise=f"There are some of: {', '.join(counts)}.")
        raise UsageError(f"no version of a skill called {name!r} is stored", hint)
    if not versions:
        say_nothing_yet(f"no version of {name!r} that `upskill generate` made is stored", MADE_BY)
        if not as_json:
            return
    if versions and (before or shows_diff):
        _show_difference(versions, skill, before, after)
        return
    rows = [_row(versions, number) for number in range(1, len(versions) + 1)]
    if as_json:
        show_json(rows)
    else:
        show(_table(rows))


def _parent_number(versions: list[Candidate], version: Candidate) -> int | None:
    return next((number for number, each in enumerate(versions, start=1) if each.number == version.parent), None)


def _row(versions: list[Candidate], number: int) -> dict[str, Any]:
    version = versions[number - 1]
    verdict, parent = version.verdict, _parent_number(versions, version)
    rates = [verdict.get(arm, {}).get("pass_rate") for arm in ("baseline", "skill")]
    # Version 0.1 stored all digits.
    baseline, pass_rate = (None if rate is None else round(rate, 6) for rate in rates)
    return {
        "id": f"c{number}",
        "parent": f"c{parent}" if parent else None,
        "created": version.created,
        "fingerprint": version.fingerprint,
        "accepted": version.accepted,
        "decision": verdict.get("search_decision") or DECISIONS[version.accepted],
        "note": version.note + (f" ({reason})" if (reason := verdict.get("reason")) in (LOOK_UP, UNTESTED) else ""),
        "baseline": baseline,
        "pass_rate": pass_rate,
        "run": verdict.get("run"),
        "edits": verdict.get("proposal", {}).get("edits", []),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Id", "Parent", "When", "Fit", "", "Why"):
        table.add_column(column, overflow="fold", no_wrap=column != "Why")
    for row in rows:
        rate = f"{percent(row['baseline'])} → {percent(row['pass_rate'])}" if row["pass_rate"] is not None else "–"
        when = row["created"][:16].replace("T", " ")
        table.add_row(row["id"], row["parent"] or "–", when, rate, row["decision"], escape(row["note"]))
    return table


def _show_difference(versions: list[Candidate], skill: str, before: str | None, after: str | None) -> None:
    if after is None:  # one name, or none: a version and the one it was made from
        before, after = None, before or f"c{len(versions)}"
    newer = _find(versions, after)
    if before is None:
        if not (parent := _parent_number(versions, newer)):
            hint = f"Name two: upskill versions {skill} c1 c2. `upskill versions {skill}` lists them."
            raise UsageError(f"{after} is a first draft, made from no other version", hint)
        before = f"c{parent}"
    old_texts, new_texts = _texts(_find(versions, before)), _texts(newer)
    for path in sorted(old_texts.keys() | new_texts.keys()):
        old, new = old_texts.get(path, []), new_texts.get(path, [])
        for line in difflib.unified_diff(old, new, f"{before}/{path}", f"{after}/{path}", lineterm=""):
            click.echo(line)


def _find(versions: list[Candidate], name: str) -> Candidate:
    number = name.removeprefix("c")
    if not number.isdigit() or not 1 <= int(number) <= len(versions):
        raise UsageError(f"no version is called {name!r}", f"There are c1 to c{len(versions)}.")
    return versions[int(number) - 1]


def _texts(version: Candidate) -> dict[str, list[str]]:
    return {
        file.path: (f"-> {file.link}" if file.link else file.data.decode("utf-8", "replace")).splitlines()
        for file in files_from_json(version.files)
        if not file.path.startswith(HIDDEN_FROM_STUDENTS)
    }
