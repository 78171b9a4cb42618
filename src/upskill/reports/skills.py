"""Skills with their last verdicts, as they were reported (`upskill list`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import shorten
from typing import Any

from upskill.plain import dict_or_empty, listed
from upskill.reports.numbers import points
from upskill.reports.report import Cell, Column, Headline, Report, Table
from upskill.runs.results.shown import limits_of, rank_of
from upskill.runs.stores import Run, Store
from upskill.skills import Skill
from upskill.verdicts.line import decision_in_words

MAX_RUNS = 50  # of a skill, the latest
MAX_DESCRIPTION = 60  # characters
COLUMNS = (
    Column("Skill"),
    Column("Tokens", "count", spare=True),
    Column("Model"),
    Column("Last verdict"),
    Column("Lift", "points"),
    Column("Description", spare=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSkill:
    skill: Skill
    state: str  # as it was written: draft, unproven
    verdicts: Sequence[Mapping[str, Any]]  # rows of `skill_verdicts`, and what has changed since


def report_skills(skills: Sequence[ListedSkill]) -> Report:
    names = Counter(each.skill.name for each in skills)
    rows: list[tuple[Cell, ...]] = []
    files: list[tuple[Cell, ...]] = []
    for each in skills:
        skill = each.skill
        name = skill.name if names[skill.name] == 1 else f"{skill.name} ({skill.folder})"
        rows += _rows(each, name)
        files += ((name, file.path) for file in skill.files)
    file_columns = (Column("Skill"), Column("File", "code"))
    return Report(
        title="Skills",
        name="list",
        data=[_to_json(each) for each in skills],
        tables=(
            Table(columns=COLUMNS, rows=tuple(rows)),
            Table(columns=file_columns, rows=tuple(files), is_detail=True),
        ),
    )


def _rows(listed_skill: ListedSkill, name: str) -> list[tuple[Cell, ...]]:
    skill = listed_skill.skill
    description = shorten(skill.description, MAX_DESCRIPTION, placeholder="…")
    if not listed_skill.verdicts:
        state = "; ".join(filter(None, ["not evaluated yet", listed_skill.state]))
        return [(name, skill.tokens, "", state, "", description)]
    rows: list[tuple[Cell, ...]] = []
    head: tuple[Cell, ...] = (name, skill.tokens)
    for row in listed_skill.verdicts:
        of = [limits_in_words(row)]
        since = [f"its {part}" for part in row["changed"] if part != "skill"]
        if since:
            of.append(f"{listed(since)} changed since")
        if listed_skill.state:
            of.append(listed_skill.state)
        verdict = Headline.of_decision(row, ", ".join(filter(None, of)))
        rows.append((*head, row["model"], verdict, row["lift"], description))
        head, description = ("", ""), ""  # the next row is about the same skill
    return rows


def row_in_words(row: Mapping[str, Any]) -> str:
    """A row of `skill_verdicts`: what was last reported of a model."""
    lift = f", {points(row['lift'])}" if row["lift"] is not None else ""
    limits = limits_in_words(row)
    of = f" ({limits})" if limits else ""
    return f"{row['model']}: {decision_in_words(row)}{lift}{of}"


def limits_in_words(row: Mapping[str, Any]) -> str:
    """What the verdict covers, where that is not the skill's whole suite as it is now."""
    suite = f"on {row['other_suite']}" if row["other_suite"] else ""
    return ", ".join(filter(None, [suite, row["of"]]))


def _to_json(listed_skill: ListedSkill) -> dict[str, Any]:
    skill = listed_skill.skill
    return {
        "name": skill.name,
        "description": skill.description,
        "folder": str(skill.folder),
        "tokens": skill.tokens,
        "state": listed_skill.state,
        "verdicts": list(listed_skill.verdicts),
        "fingerprint": skill.fingerprint,
        "files": [file.path for file in skill.files],
    }


# The last verdicts.
# ------------------------------------------------------------------------------------------------


def skill_verdicts(store: Store, name: str, visible_hash: str = "") -> list[dict[str, Any]]:
    """For each model the latest verdict on the whole of the skill's own suite, else the latest verdict and its scope.

    `visible_hash`: of the version whose verdicts come before those of others on the same suite.
    """
    latest: dict[str, tuple[Run, Mapping[str, Any]]] = {}
    ranks: dict[str, tuple[bool, bool, bool]] = {}
    for run in islice(store.runs(name, newest_first=True, listed=True), MAX_RUNS):
        for verdict in run.plan.analysis.kept.verdicts:
            model = str(verdict["model"])
            is_own, is_whole = rank_of(run, str(verdict["decision"]))
            rank = is_own, run.plan.skill.visible_hash == visible_hash, is_whole
            if model not in latest or rank > ranks[model]:
                latest.pop(model, None)  # so that models of one run stay in its order
                latest[model], ranks[model] = (run, verdict), rank
    shown = sorted(latest.values(), key=lambda pair: -pair[0].number)
    limits = [limits_of(run, str(verdict["decision"])) for run, verdict in shown]
    newest = next((run for (run, _), of in zip(shown, limits, strict=True) if not of), None)
    rows: list[dict[str, Any]] = []
    for (run, verdict), of in zip(shown, limits, strict=True):
        text = run.plan.skill.visible_hash
        is_older = newest is not None and text not in (visible_hash, newest.plan.skill.visible_hash)
        source = {
            "run": run.id,
            "of": "an older version of the skill" if is_older and not of else of,
            "other_suite": run.plan.other_suite,
        }
        rows.append(verdict_row(verdict) | source)
    return rows


def verdict_row(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict in one line, with the keys of `--json`."""
    names = ("model", "decision", "about", "reason", "lift", "interval", "level", "pairs")
    row = {name: verdict.get(name) for name in (*names, "other", "caveats")}
    for arm in ("baseline", "skill"):
        row[arm] = dict_or_empty(verdict.get(arm)).get("pass_rate")
    return row
