"""The versions of a skill, and which of them a search kept (`upskill versions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from upskill.reports.json import pick
from upskill.reports.report import Cell, Change, NextCommand, Report, Table
from upskill.runs.stores import Candidate

# For versions stored without a reason.
DECISIONS = {True: "kept", False: "rejected", None: "not decided"}


def report_versions(skill: str, versions: Sequence[Candidate]) -> Report:
    rows = [_to_json(versions, number) for number in range(1, len(versions) + 1)]
    command = NextCommand(f"upskill versions {skill} --diff", "See what the last one changed")
    return Report(
        title=f"Versions of {skill}",
        name=skill,
        data=rows,
        tables=[Table.of(map(_cells, rows))],
        next=[command] if len(rows) > 1 else (),
    )


def parent_number(versions: Sequence[Candidate], version: Candidate) -> int | None:
    numbers = [each.number for each in versions]
    return numbers.index(version.parent) + 1 if version.parent in numbers else None


def _cells(row: Mapping[str, Any]) -> Mapping[str, Cell]:
    return {
        "Id": row["id"],
        "Hash": row["fingerprint"][:8],
        "Parent": row["parent"],
        "When": row["created"][:16].replace("T", " "),
        "Passes": Change(row["baseline"], row["pass_rate"]),
        "Decision": row["decision"],
        "Why": "" if row["note"] == f"the {row['decision']}" else row["note"],
    }


def _to_json(versions: Sequence[Candidate], number: int) -> dict[str, Any]:
    version = versions[number - 1]
    verdict, parent = version.verdict, parent_number(versions, version)
    return {
        "id": f"v{number}",
        "parent": f"v{parent}" if parent else None,
        **pick(version, "created", "fingerprint", "accepted"),
        "decision": verdict.get("search_decision") or DECISIONS[version.accepted],
        "note": version.note,
        "baseline": verdict.get("baseline", {}).get("pass_rate"),
        "pass_rate": verdict.get("skill", {}).get("pass_rate"),
        "run": verdict.get("run"),
        "edits": verdict.get("proposal", {}).get("edits", []),
    }
