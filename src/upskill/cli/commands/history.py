"""`upskill history`: list the candidates that were tried for a skill."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from upskill.cli.console import show, show_json
from upskill.cli.help import Command
from upskill.cli.options import find_project_store, json_option, runs_dir_option, say_nothing_yet
from upskill.errors import UsageError, did_you_mean
from upskill.plain import counted
from upskill.reports.terminal import percent
from upskill.runs.stores import Candidate, Store
from upskill.sandboxes import printable
from upskill.skills import Skill
from upskill.verdicts.verdict import LOOK_UP

MAKES_CANDIDATES = "`upskill generate` makes them while it looks for a better skill."
DECISIONS = {True: "kept", False: "rejected", None: "not decided"}  # of candidates that were stored without words


@click.command("history", cls=Command)
@click.argument("skill", required=False)
@runs_dir_option
@json_option
def command(skill: str | None, runs_dir: str | None, as_json: bool) -> None:
    """List every candidate that was tried for SKILL (a folder or a name): its parent, its score, if it was kept.

    Without SKILL it lists the skills that there are candidates for.
    """
    with find_project_store(runs_dir) or nullcontext() as store:
        if skill is None:
            list_skills(store, as_json=as_json)
            return
        found = find_candidates(store, skill)
    if not found and not as_json:
        return
    numbers = {one.number: place for place, one in enumerate(found, start=1)}
    rows = [_row(one, place, numbers.get(one.parent or 0)) for place, one in enumerate(found, start=1)]
    if as_json:
        show_json(rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Id", "Parent", "When", "Fit", "", "Why"):
        table.add_column(column, overflow="fold", no_wrap=column != "Why")
    for row in rows:
        rate = f"{percent(row['baseline'])} → {percent(row['pass_rate'])}" if row["pass_rate"] is not None else "–"
        when = row["created"][:16].replace("T", " ")
        table.add_row(row["id"], row["parent"] or "–", when, rate, row["decision"], escape(row["note"]))
    show(table)


def find_candidates(store: Store | None, skill: str) -> list[Candidate]:
    """The candidates for a skill, given its folder or its name; where none of any are stored, a line says so."""
    name = Skill.load(skill).name if Path(skill).is_dir() else Path(skill).name
    found = list(store.candidates(name)) if store else []
    if not found and (known := _skills_of(store)):
        hint = did_you_mean(name, known, otherwise=f"There are some for: {', '.join(known)}.")
        raise UsageError(f"no candidate for a skill called {name!r} is stored", hint)
    if not found:
        say_nothing_yet(f"no candidate for {name!r} is stored", MAKES_CANDIDATES)
    return found


def _skills_of(store: Store | None) -> Mapping[str, int]:
    return store.skills_with_candidates() if store else dict[str, int]()


def list_skills(store: Store | None, *, as_json: bool = False) -> None:
    """The skills that there are candidates for, or a line that says that there are none yet."""
    known = _skills_of(store)
    if as_json:
        show_json([{"skill": name, "candidates": count} for name, count in known.items()])
    elif known:
        for name, count in known.items():
            click.echo(f"{printable(name)}  {counted(count, 'candidate')}")
    else:
        say_nothing_yet("no candidate for a better skill is stored here", MAKES_CANDIDATES)


def _row(one: Candidate, place: int, parent: int | None) -> dict[str, Any]:
    verdict = one.verdict
    return {
        "id": f"c{place}",
        "parent": f"c{parent}" if parent else None,
        "created": one.created,
        "fingerprint": one.fingerprint,
        "accepted": one.accepted,
        "decision": verdict.get("search_decision") or DECISIONS[one.accepted],
        "note": one.note + (f" ({LOOK_UP})" if verdict.get("reason") == LOOK_UP else ""),
        "baseline": _pass_rate(verdict, "baseline"),
        "pass_rate": _pass_rate(verdict, "skill"),
        "run": verdict.get("run"),
        "edits": verdict.get("proposal", {}).get("edits", []),
    }


def _pass_rate(verdict: dict[str, Any], arm: str) -> float | None:
    rate = verdict.get(arm, {}).get("pass_rate")
    return None if rate is None else round(rate, 6)  # version 0.1 stored all digits
