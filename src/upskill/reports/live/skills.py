"""A skill over its versions and models, and what two versions say differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

from upskill.reports.live.overview import verdict_row
from upskill.reports.pictures import PictureOptions, lift_forest
from upskill.runs.results.looks import limits_of
from upskill.runs.stores import Run, Store

MOST_RUNS = 50  # of a skill, the latest
MOST_LOOKS = 200  # at it, the latest
MOST_LINES = 1_500  # of a text that is compared line by line
MOST_IN_PICTURE = 40  # verdicts
WIDTHS = (300, 1100)  # of a picture, in px
AROUND = 3  # unchanged lines that are shown beside a change


def skill_page(store: Store, name: str, width: int = WIDTHS[1]) -> dict[str, Any] | None:
    """The versions of the latest runs, oldest first, with what was last reported of each model; None: no such skill."""
    versions: dict[str, dict[str, Any]] = {}
    reported: dict[tuple[str, str], Mapping[str, Any]] = {}
    known: dict[str, tuple[dict[str, Any], Run]] = {}
    latest = list(islice(store.runs(name, newest_first=True), MOST_RUNS))
    for run in reversed(latest):
        skill = run.plan.skill
        version = versions.setdefault(
            skill.visible_hash,
            {"hash": skill.visible_hash[:8], "tokens": skill.tokens, "runs": [], "verdicts": {}},
        )
        version["runs"].append(run.id)
        version |= {"latest": run.id, "created": run.created}
        known[run.id] = (version, run)
    if not versions:
        return None
    for look in reversed(store.latest_looks(name, MOST_LOOKS)):
        if look.run not in known or not look.verdict:
            continue
        version, run = known[look.run]
        limits, before = limits_of(run, look.decision), version["verdicts"].get(look.model)
        if before and limits and not before["of"]:
            continue  # what was said of all of a suite stands
        told = {"cases": len(look.cases), "run": look.run, "asked": look.asked, "of": limits}
        version["verdicts"][look.model] = verdict_row(look.verdict) | told
        reported[version["hash"], look.model] = look.verdict
    numbers = {version["hash"]: number for number, version in enumerate(versions.values(), start=1)}
    by_hash = {version["hash"]: version for version in versions.values()}
    # By model, and then by version: what became of it is read downwards.
    rows = sorted(reported.items(), key=lambda row: (row[0][1], numbers[row[0][0]]))
    lifts = [
        dict(verdict) | {"model": f"v{numbers[version]} {model}"}
        for (version, model), verdict in rows
        if not by_hash[version]["verdicts"][model]["of"]  # a lift over an older skill, or on a part, is another thing
    ]
    return {
        "name": name,
        "versions": list(versions.values()),
        "runs": store.skills()[name][0],
        "shown": len(latest),
        "searches": store.skills_with_candidates().get(name, 0),
        "picture": _picture(name, lifts[-MOST_IN_PICTURE:], width) if lifts else "",
    }


def _picture(name: str, lifts: list[dict[str, Any]], width: int) -> str:
    document = {"skill": {"name": name}, "models": lifts}
    narrowest, widest = WIDTHS
    options = PictureOptions(style=False, heading=False, width=max(narrowest, min(width, widest)))
    return lift_forest(document, options)


def skill_text(run: Run) -> str:
    skill = run.plan.skill
    return f"{skill.description}\n\n{skill.body}"


def line_diff(before: str, after: str) -> list[list[Any]]:
    """Lines as ["=" | "-" | "+" | "…", text]: what was removed and added, and what stands beside it."""
    old, new = (text.splitlines()[:MOST_LINES] for text in (before, after))
    return list(_diff(old, new))


def _diff(old: list[str], new: list[str]) -> Iterator[list[Any]]:
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(AROUND):
        yield ["…", f"line {group[0][1] + 1}"]
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                yield from (["=", line] for line in old[old_start:old_end])
            else:
                yield from (["-", line] for line in old[old_start:old_end])
                yield from (["+", line] for line in new[new_start:new_end])
