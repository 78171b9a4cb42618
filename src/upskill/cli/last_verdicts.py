"""The last reported verdicts of a skill, for `list`, `install` and `plan`: read from the store, not computed."""

from __future__ import annotations

from typing import Any

from upskill.plain import dict_or_empty
from upskill.reports.live.pages import skill_verdicts
from upskill.reports.numbers import points
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.verdicts.advice import decision_in_words

CHANGED = "before it was changed"


def last_verdicts(store: Store | None, skill: Skill) -> list[dict[str, Any]]:
    """The latest for each model; `of` says what it covers, unless that is this skill on a whole suite."""
    rows = skill_verdicts(store, skill.name) if store else []
    for row in rows:
        if store and store.run(row["run"]).plan.skill.visible_hash != skill.visible_hash:
            row["of"] = CHANGED
    return rows


def is_proven(row: dict[str, Any]) -> bool:
    return row["decision"] in ("helps", "saves") and not row["of"]


def in_words(row: dict[str, Any]) -> str:
    these = str(dict_or_empty(row["these_cases"]).get("decision", ""))
    decision = decision_in_words(row["decision"], row["reason"] or "", row["replayed"], these)
    lift = f", {points(row['lift'])}" if row["lift"] is not None else ""
    of = f" ({row['of']})" if row["of"] and row["of"] != row["replayed"] else ""
    return f"{row['model']}: {decision}{lift}{of}"
