"""`upskill history`: list the candidates that were tried for a skill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from upskill.cli.console import show, show_json
from upskill.cli.help import Command
from upskill.cli.options import json_option, open_existing_store, runs_dir_option
from upskill.errors import UsageError
from upskill.reports.terminal import percent
from upskill.runs.stores import Candidate, CandidateStore
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.verdicts.advice import LOOK_UP

DECISIONS = {True: "kept", False: "rejected", None: "not decided"}  # of candidates that were stored without words


@click.command("history", cls=Command)
@click.argument("skill")
@runs_dir_option
@json_option
def command(skill: str, runs_dir: str | None, as_json: bool) -> None:
    """List every candidate that was tried for SKILL (a folder or a name): its parent, its fit, and if it was kept."""
    with open_existing_store(runs_dir or Settings.load().runs_dir) as store:
        found = find_candidates(store, skill)
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


def find_candidates(store: CandidateStore, skill: str) -> list[Candidate]:
    """The candidates for a skill, given its folder or its name."""
    name = Skill.load(skill).name if Path(skill).is_dir() else Path(skill).name
    found = list(store.candidates(name))
    if not found:
        raise UsageError(f"no candidate for a skill called {name!r} is stored", "`upskill generate` makes them.")
    return found


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
