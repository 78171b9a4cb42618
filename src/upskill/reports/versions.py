"""The versions of a skill, and which of them a search kept (`upskill versions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from upskill.reports.report import Cell, Change, Column, NextCommand, Report, Table
from upskill.runs.stores import Candidate

DECISIONS = {
    True: "kept",
    False: "rejected",
    None: "not decided",
}  # for versions stored without a reason
COLUMNS = (
    Column("Id", "code"),
    Column("Hash", "code", spare=True),
    Column("Parent", "code", spare=True),
    Column("When", spare=True),
    Column("Passes", "share"),
    Column("Decision"),
    Column("Why"),
)


def report_versions(skill: str, versions: Sequence[Candidate]) -> Report:
    rows = [_to_json(versions, number) for number in range(1, len(versions) + 1)]
    command = NextCommand(f"upskill versions {skill} --diff", "See what the last one changed")
    return Report(
        title=f"Versions of {skill}",
        name=skill,
        data=rows,
        tables=(Table(columns=COLUMNS, rows=tuple(map(_cells, rows))),),
        next=(command,) if len(rows) > 1 else (),
    )


def parent_number(versions: Sequence[Candidate], version: Candidate) -> int | None:
    for number, each in enumerate(versions, start=1):
        if each.number == version.parent:
            return number
    return None


def _cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    rate = None
    if row["pass_rate"] is not None:
        rate = Change(row["baseline"], row["pass_rate"])
    why = "" if row["note"] == f"the {row['decision']}" else row["note"]
    when = row["created"][:16].replace("T", " ")
    return row["id"], row["fingerprint"][:8], row["parent"], when, rate, row["decision"], why


def _to_json(versions: Sequence[Candidate], number: int) -> dict[str, Any]:
    version = versions[number - 1]
    verdict, parent = version.verdict, parent_number(versions, version)
    return {
        "id": f"v{number}",
        "parent": f"v{parent}" if parent else None,
        "created": version.created,
        "fingerprint": version.fingerprint,
        "accepted": version.accepted,
        "decision": verdict.get("search_decision") or DECISIONS[version.accepted],
        "note": version.note,
        "baseline": verdict.get("baseline", {}).get("pass_rate"),
        "pass_rate": verdict.get("skill", {}).get("pass_rate"),
        "run": verdict.get("run"),
        "edits": verdict.get("proposal", {}).get("edits", []),
    }
