"""The lift over the cases with one tag, or by one author: what a skill is good for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.results.evaluation import Evaluation
from upskill.suites import OWN_FACTS

MOST_GROUPS = 40  # of each kind that are shown: those with most cases
NOT_TAGGED = "(no tag)"


def author_of(case: StoredCase, source: str = "") -> str:
    """Who wrote a case of a stored plan, as far as the case tells."""
    said = case.metadata.get("author")
    if isinstance(said, str) and said.strip():
        return said.strip()
    if OWN_FACTS in case.tags:
        return "the skill's own lines"
    if case.evidence:
        return "a model, from evidence"
    return "a model" if source == "generated" else "people"


def lifts_by_group(evaluation: Evaluation) -> dict[str, list[dict[str, Any]]]:
    """By tag and by author: how many cases there are, and the lift of each model. One group that has every case says
    nothing new, and is left out."""
    suite = evaluation.run.plan.suite
    tags: dict[str, list[str]] = {}
    authors: dict[str, list[str]] = {}
    for case in suite.cases:
        for tag in case.tags or [NOT_TAGGED]:
            tags.setdefault(tag, []).append(case.id)
        authors.setdefault(author_of(case, suite.source), []).append(case.id)
    return {"tag": list(_lifts(evaluation, tags)), "author": list(_lifts(evaluation, authors))}


def _lifts(evaluation: Evaluation, groups: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
    if len(groups) < 2:
        return
    for name, ids in sorted(groups.items(), key=lambda group: -len(group[1]))[:MOST_GROUPS]:
        verdicts = evaluation.by_cases(set(ids))
        yield {
            "name": name,
            "cases": len(ids),
            "models": {model: verdict.split_to_dict() for model, verdict in verdicts.items()},
        }
