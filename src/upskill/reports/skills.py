"""Skills with their last verdicts, as they were reported (`upskill list`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import shorten
from typing import Any

from upskill.plain import dict_or_empty, listed
from upskill.reports.json import pick
from upskill.reports.numbers import points
from upskill.reports.report import Cell, Headline, Report, Table
from upskill.reports.runs import Row, latest_rows
from upskill.runs.results.shown import limits_of
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.verdicts.line import decision_in_words

MAX_RUNS = 50  # of a skill, the latest
MAX_DESCRIPTION = 60  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSkill:
    skill: Skill
    state: str  # as it was written: draft, unproven
    verdicts: Sequence[Mapping[str, Any]]  # rows of `skill_verdicts`, and what has changed since


def report_skills(skills: Sequence[ListedSkill]) -> Report:
    names = Counter(each.skill.name for each in skills)
    rows: list[Mapping[str, Cell]] = []
    files: list[Mapping[str, Cell]] = []
    for each in skills:
        skill = each.skill
        name = skill.name if names[skill.name] == 1 else f"{skill.name} ({skill.folder})"
        rows += _rows(each, name)
        files += ({"Skill": name, "File": file.path} for file in skill.files)
    return Report(
        title="Skills",
        name="list",
        data=[_to_json(each) for each in skills],
        tables=[Table.of(rows), Table.of(files, is_detail=True)],
    )


def _rows(listed_skill: ListedSkill, name: str) -> Iterator[Mapping[str, Cell]]:
    skill, state = listed_skill.skill, listed_skill.state
    not_yet = Headline("; ".join(filter(None, ["not evaluated yet", state])))
    verdicts: dict[str, tuple[Headline, float | None]] = {}
    for row in listed_skill.verdicts:
        since = [f"its {part}" for part in row["changed"] if part != "skill"]
        changed = f"{listed(since)} changed since" if since else ""
        limits = ", ".join(filter(None, [limits_in_words(row), changed, state]))
        verdicts[row["model"]] = Headline.of_decision(row, limits), row["lift"]
    for model, (verdict, lift) in (verdicts or {"": (not_yet, None)}).items():
        yield {
            "Skill": name,
            "Tokens": skill.tokens,
            "Model": model,
            "Last verdict": verdict,
            "Lift": lift,
            "Description": shorten(skill.description, MAX_DESCRIPTION, placeholder="…"),
        }


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
        **pick(skill, "name", "description", "folder", "tokens"),
        **pick(listed_skill, "state", "verdicts"),
        "fingerprint": skill.fingerprint,
        "files": [file.path for file in skill.files],
    }


# The last verdicts.
# ------------------------------------------------------------------------------------------------


def skill_verdicts(store: Store, name: str, visible_hash: str = "") -> list[dict[str, Any]]:
    """For each model the latest verdict on the whole of the skill's own suite, else the latest verdict and its scope.

    `visible_hash`: of the version whose verdicts come before those of others on the same suite.
    """
    runs = [*islice(store.runs(name, newest_first=True, listed=True), MAX_RUNS)]
    stored: list[Row] = []
    for run in reversed(runs):
        stored += (Row(run, verdict) for verdict in run.plan.analysis.kept.verdicts)
    rows: list[dict[str, Any]] = []
    newest = ""  # the version of the latest verdict without limits
    for row in sorted(latest_rows(stored, visible_hash), key=lambda row: -row.run.number):
        plan = row.run.plan
        of = limits_of(row.run, row.verdict["decision"])
        text = plan.skill.visible_hash
        if not of and not newest:
            newest = text
        is_older = text not in (visible_hash, newest)
        rows.append(
            {
                **verdict_row(row.verdict),
                "run": row.run.id,
                "of": of or ("an older version of the skill" if is_older else ""),
                "other_suite": plan.other_suite,
            }
        )
    return rows


def verdict_row(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict in one line, with the keys of `--json`."""
    names = ("model", "decision", "about", "reason", "lift", "interval", "level", "pairs")
    row = {name: verdict.get(name) for name in (*names, "other", "caveats")}
    for arm in ("baseline", "skill"):
        row[arm] = dict_or_empty(verdict.get(arm)).get("pass_rate")
    return row
