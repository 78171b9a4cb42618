"""The first page: runs with how far they are and what was decided, and skills with their latest decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from upskill.errors import UsageError
from upskill.runs.results.looks import current_verdicts, limits_of
from upskill.runs.stores import Look, Run, Store

RUNS_AT_ONCE = 50
LOOKS_AT_ONCE = 30  # at a skill, that its latest decisions are taken from

State = Literal["running", "done", "ended", "interrupted"]


Rows = dict[str, dict[str, Any]]  # by id: runs as they were last listed; under SKILLS: skills
SKILLS = "skills"  # which is no id of a run


def overview(store: Store, before: int | None = None, known: Rows | None = None) -> dict[str, Any]:
    """A page of runs, the newest first, and all skills. What is known of a run that has not changed is used again."""
    runs = store.latest_runs(RUNS_AT_ONCE + 1, before)
    listed = [_listed(store, run, {} if known is None else known) for run in runs[:RUNS_AT_ONCE]]
    return {
        "runs": listed,
        "more": runs[RUNS_AT_ONCE - 1].number if len(runs) > RUNS_AT_ONCE else None,
        "skills": _skills(store, {} if known is None else known),
        "location": store.location,
    }


def _listed(store: Store, run: Run, known: Rows) -> dict[str, Any]:
    row = known.get(run.id)
    if row is None or row["revision"] != store.revision(run):
        known[run.id] = row = run_row(store, run)
    return row | {"state": _state(store, run, decided=row["verdicts_are_current"])}  # which the store does not know


def run_row(store: Store, run: Run) -> dict[str, Any]:
    """One run in the list: nothing here depends on how many trials it has."""
    progress = store.progress(run)
    costs = [row.cost_usd for row in progress]
    verdicts, current = last_verdicts(store, run)
    suite = run.plan.suite
    return {
        "id": run.id,
        "number": run.number,
        "skill": run.skill,
        "version": run.plan.skill.visible_hash[:8],
        "created": run.created,
        "models": run.models,
        "agent": run.plan.agent,
        "cases": len(suite.cases),
        "held_out": sum(case.held_out for case in suite.cases),
        "part": bool(suite.part),
        "against": bool(run.plan.reference_skill),
        "trials": run.trials,
        "passed": run.passed,
        "failed": run.failed,
        "errored": run.errored,
        "state": _state(store, run, decided=current),
        "tokens": sum(row.tokens for row in progress),
        "cost_usd": None if any(cost is None for cost in costs) else sum(cost for cost in costs if cost is not None),
        "arms": [
            {"model": row.model, "arm": row.arm, "passed": row.passed, "failed": row.failed, "errored": row.errored}
            for row in progress
        ],
        "verdicts": verdicts,
        "verdicts_are_current": current,
        "revision": store.revision(run),
    }


def last_verdicts(store: Store, run: Run) -> tuple[list[dict[str, Any]], bool]:
    """The verdicts that were last reported of a run, and whether they are what its trials say today."""
    looks = {look.model: look for look in store.looks_at(run.id)}
    current = {model: verdict for model, verdict in current_verdicts(store, run).items() if verdict}
    through = run.passed + run.failed + run.errored == run.trials
    without_pairs = {row.model for row in store.tally(run) if through and not row.passed + row.failed}
    rows: list[dict[str, Any]] = []
    for model in run.models:
        if model in looks:
            rows.append(verdict_row(current.get(model) or _verdict(looks[model])))
        elif model in without_pairs:  # of which no look is kept
            rows.append(verdict_row({"model": model, "decision": "undecided", "reason": "errors", "pairs": 0}))
    return rows, bool(rows) and looks.keys() <= current.keys() and len(rows) == len(run.models)


def _verdict(look: Look) -> Mapping[str, Any]:
    # An older version kept of its verdicts no more than the decision.
    return look.verdict or {"model": look.model, "decision": look.decision, "pairs": look.pairs}


def verdict_row(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown of a verdict in a line, under the names that `--json` has for it."""
    arms = {arm: verdict.get(arm, {}).get("pass_rate") for arm in ("baseline", "skill")}
    named = {name: verdict.get(name) for name in ("model", "decision", "reason", "lift", "interval", "pairs")}
    return {**named, **arms}


def _state(store: Store, run: Run, *, decided: bool) -> State:
    if store.is_claimed(run):
        return "running"
    if run.passed + run.failed + run.errored == run.trials:
        return "done"
    return "ended" if decided else "interrupted"  # a run may be decided before all of its trials have run


def _skills(store: Store, known: Rows) -> list[dict[str, Any]]:
    """All skills; those of which no run has changed since the last time are used again."""
    revision, before = store.revision(), known.get(SKILLS, {"revision": 0, "rows": {}})
    ids = store.changed_runs(before["revision"]) if before["rows"] else []
    changed = {found.skill for run in ids if (found := _stored(store, run))}
    rows: dict[str, dict[str, Any]] = {}
    for name, (count, latest) in store.skills().items():
        row = before["rows"].get(name)
        same = row and name not in changed and (row["runs"], row["latest"]) == (count, latest)
        rows[name] = row if same else skill_row(store, name, count, latest)
    known[SKILLS] = {"revision": revision, "rows": rows}
    return list(rows.values())


def skill_row(store: Store, name: str, count: int, latest: str) -> dict[str, Any]:
    """A skill with what was last decided for each of its models."""
    created = store.run(latest).created
    return {"name": name, "runs": count, "latest": latest, "created": created, "verdicts": skill_verdicts(store, name)}


def skill_verdicts(store: Store, name: str) -> list[dict[str, Any]]:
    """For each model the latest verdict on all of a suite; where there is none, the latest, with what it is of."""
    looks = store.latest_looks(name, LOOKS_AT_ONCE)
    runs = {run: found for run in dict.fromkeys(look.run for look in looks) if (found := _stored(store, run))}
    latest: dict[str, tuple[Look, str]] = {}
    for look in looks:
        if run := runs.get(look.run):
            limits = limits_of(run, look.decision)
            if look.model not in latest or (latest[look.model][1] and not limits):
                latest[look.model] = (look, limits)
    newest = max((look for look, limits in latest.values() if not limits), key=lambda look: look.number, default=None)
    rows: list[dict[str, Any]] = []
    for look, limits in sorted(latest.values(), key=lambda one: (-runs[one[0].run].number, one[0].number)):
        older = not limits and newest is not None and look.skill_hash != newest.skill_hash
        of = "an older version of the skill" if older else limits
        rows.append(verdict_row(_verdict(look)) | {"run": look.run, "of": of})
    return rows


def _stored(store: Store, run: str) -> Run | None:
    try:
        found = store.run(run)
    except UsageError:  # deleted: what was looked at stays known
        return None
    return found if found.id == run else None
