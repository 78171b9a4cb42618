"""The last reported verdicts of a skill, for `list`, `install`, `plan` and `recheck`: stored, not computed anew."""

from __future__ import annotations

from typing import Any

from upskill.errors import UsageError
from upskill.plain import dict_or_empty
from upskill.reports.live.pages import skill_verdicts, verdict_row
from upskill.runs.replay.receipt import read_receipt
from upskill.runs.stores import Store
from upskill.skills import Skill

CHANGED = "before it was changed"


def last_verdicts(store: Store | None, skill: Skill) -> list[dict[str, Any]]:
    """The latest for each model; `of` says what it covers, unless that is this skill on a whole suite."""
    rows = skill_verdicts(store, skill.name) if store else []
    for row in rows:
        if store and store.run(row["run"]).plan.skill.visible_hash != skill.visible_hash:
            row["of"] = CHANGED
    return rows


def verdicts_on_record(store: Store, skill: Skill) -> list[dict[str, Any]]:
    """The last verdicts, or those in the skill's receipt where the store has none."""
    if rows := last_verdicts(store, skill):
        return rows
    try:
        receipt = read_receipt(skill)
    except UsageError:
        return []
    of = "" if dict_or_empty(receipt.get("skill")).get("visible_hash") == skill.visible_hash else CHANGED
    more = {"run": receipt.get("run"), "of": of, "replayed": ""}
    return [verdict_row(verdict) | more for verdict in receipt.get("verdicts", ())]


def is_proven(row: dict[str, Any]) -> bool:
    return row["decision"] in ("helps", "saves") and not row["of"]
