from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import unified_diff
from itertools import islice
from typing import Any, Literal, cast

from upskill.errors import UsageError
from upskill.plain import dict_or_empty
from upskill.reports.comparison import describe, shown_answers
from upskill.reports.html.data import trial_row, trial_to_page
from upskill.reports.pictures import PictureOptions, lift_forest
from upskill.runs.planning.plan import Arm, Trial
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.results.comparison import Side, compare, latest_pair
from upskill.runs.results.shown import (
    current_verdicts,
    limits_of,
    part_of,
    rank_of,
    unfinished_models,
)
from upskill.runs.results.versions import list_versions
from upskill.runs.stores import Run, Store
from upskill.verdicts.outcome import Outcome

RUNS_AT_ONCE = 50
MAX_RUNS = 50  # of a skill, the latest
MAX_LINES = 1_500  # of a text that is compared line by line
MAX_IN_PICTURE = 40  # verdicts
WIDTHS = (300, 1100)  # of a picture, in px
UNCHANGED_LINES = 3  # that are shown beside a change
MAX_CASES = 20  # of a comparison that are shown with their answers
TRIALS_AT_ONCE = 50
MAX_OUTCOMES_READ = 1_000  # per request, which returns the trials it has and where to continue
MAX_SEARCH_TEXT = 500  # characters

State = Literal["running", "done", "ended", "interrupted"]


def overview(store: Store, before: int | None = None) -> dict[str, Any]:
    runs: list[Run] = []
    while len(runs) <= RUNS_AT_ONCE and (batch := store.latest_runs(RUNS_AT_ONCE + 1, before)):
        runs += [run for run in batch if run.purpose != "search" or store.is_claimed(run)]
        before = batch[-1].number
    return {
        "runs": [run_row(store, run) for run in runs[:RUNS_AT_ONCE]],
        "more": runs[RUNS_AT_ONCE - 1].number if len(runs) > RUNS_AT_ONCE else None,
        "skills": [
            {"name": name, "runs": count, "latest": latest, "created": store.run(latest).created}
            | {"verdicts": skill_verdicts(store, name)}
            for name, (count, latest) in store.skills().items()
        ],
        "location": store.location,
    }


def run_row(store: Store, run: Run) -> dict[str, Any]:
    """One run in the list, at a cost that does not depend on its number of trials."""
    progress = store.progress(run)
    costs = [row.cost_usd for row in progress]
    verdicts, current = last_verdicts(store, run)
    suite = run.plan.suite
    return {
        **{name: getattr(run, name) for name in ("id", "number", "skill", "created", "models")},
        "trials": run.trials,
        "missing": run.errored,
        "scored": run.passed + run.failed,
        "agent": run.plan.agent,
        "cases": len(suite.cases),
        "part": bool(suite.part),
        "other_suite": run.plan.other_suite,
        "against": bool(run.plan.reference_skill),
        "part_of": part_of(run).replace("`", ""),
        "state": _state(store, run, decided=current),
        "tokens": sum(row.tokens for row in progress),
        "cost_usd": None
        if any(cost is None for cost in costs)
        else sum(cost for cost in costs if cost is not None),
        "verdicts": verdicts,
        "verdicts_are_current": current,
    }


def last_verdicts(store: Store, run: Run) -> tuple[list[dict[str, Any]], bool]:
    """As they were last shown, and whether they would be the same today."""
    shown = {str(verdict["model"]): verdict for verdict in run.plan.analysis.kept.verdicts}
    rows = [verdict_row(shown[model]) for model in run.models if model in shown]
    return rows, bool(rows) and current_verdicts(store, run).keys() >= {*run.models}


def verdict_row(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict in one line, with the keys of `--json`."""
    names = ("model", "decision", "about", "reason", "lift", "interval", "level", "pairs")
    row = {name: verdict.get(name) for name in (*names, "other", "caveats")}
    for arm in ("baseline", "skill"):
        row[arm] = dict_or_empty(verdict.get(arm)).get("pass_rate")
    return row


def _state(store: Store, run: Run, *, decided: bool) -> State:
    if store.is_claimed(run):
        return "running"
    if run.passed + run.failed + run.errored == run.trials:
        return "done"
    return (
        "ended" if decided else "interrupted"
    )  # a run may be decided before all of its trials have run


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


def skill_page(store: Store, name: str, width: int = WIDTHS[1]) -> dict[str, Any] | None:
    """The versions of the latest runs, oldest first, with the last verdict per model; None: no such skill."""
    versions: dict[str, dict[str, Any]] = {}
    names = {
        version.fingerprint: f"v{number}"
        for number, version in enumerate(list_versions(store, name), start=1)
    }
    every = store.runs(name, newest_first=True)
    listed = {run.plan.skill.visible_hash for run in store.runs(name, listed=True)}
    only_parts = names.keys() - listed
    runs = (
        run for run in every if run.plan.skill.visible_hash in only_parts or run.purpose != "search"
    )
    latest = list(islice(runs, MAX_RUNS))
    older = sum(1 for _ in runs)
    for run in reversed(latest):
        skill = run.plan.skill
        version = versions.setdefault(
            skill.visible_hash,
            {"hash": skill.visible_hash[:8], "tokens": skill.tokens, "runs": 0, "verdicts": {}},
        )
        version |= {"latest": run.id, "created": run.created, "runs": version["runs"] + 1}
        for verdict in run.plan.analysis.kept.verdicts:
            model, rank = str(verdict["model"]), rank_of(run, str(verdict["decision"]))
            before = version["verdicts"].get(model)
            if before and rank < (not before["other_suite"], not before["of"]):
                continue
            of = limits_of(run, str(verdict["decision"]))
            source = {"of": of, "other_suite": run.plan.other_suite}
            version["verdicts"][model] = verdict_row(verdict) | source
    if next(store.runs(name), None) is None:
        return None
    for visible_hash, version in versions.items():
        version["name"] = names.get(visible_hash, version["hash"])  # no version: part of a search
    rows = [
        row | {"model": f"{version['name']} {model}"}
        for model in sorted(
            {model for version in versions.values() for model in version["verdicts"]}
        )
        for version in versions.values()
        # A lift over a reference skill, or on part of a suite, is not comparable.
        if (row := version["verdicts"].get(model)) and not row["of"]
    ]
    has_own = any(
        not row["other_suite"] for row in rows
    )  # with which no lift on another suite is comparable
    models = [row for row in rows if not (row["other_suite"] and has_own)]
    document = {"skill": {"name": name}, "models": models[-MAX_IN_PICTURE:]}
    options = PictureOptions(
        style=False, heading=False, width=max(WIDTHS[0], min(width, WIDTHS[1]))
    )
    return {
        "name": name,
        "versions": list(versions.values()),
        "runs": len(latest) + older,
        "shown": len(latest),
        "searches": store.skills_with_candidates().get(name, 0),
        "picture": lift_forest(document, options) if rows else "",
    }


def line_diff(before: str, after: str) -> list[list[Any]]:
    """Lines as ["=" | "-" | "+" | "…", text]: what was removed and added, with context."""
    old, new = (text.splitlines()[:MAX_LINES] for text in (before, after))
    lines: list[list[Any]] = []
    for line in islice(unified_diff(old, new, n=UNCHANGED_LINES, lineterm=""), 2, None):
        if line.startswith("@@"):
            lines.append(["…", f"line {re.findall(r'[0-9]+', line)[0]}"])
        else:
            lines.append([line[0].replace(" ", "="), line[1:]])
    return lines


def pair_to_compare(store: Store, skill: str, before: str, after: str) -> list[str]:
    """The latest two runs that can be compared, else the latest two; `before`, `after`: a run, or a version's hash."""
    runs = list(islice(store.runs(skill or None, newest_first=True, listed=True), MAX_RUNS))
    befores, afters = (
        [run for run in runs if name in ("", run.id, run.plan.skill.visible_hash[:8])]
        for name in (before, after)
    )
    pair = latest_pair(store, befores, afters) or (latest_pair(store, afters, befores) or ())[::-1]
    if not pair:
        others = [run for run in befores if run not in afters[:1]] or befores
        pair = (*others[:1], *afters[:1])
    return [run.id for run in pair]


def comparison_page(
    store: Store, before: Run, after: Run, models: tuple[str, str], arm: str
) -> dict[str, Any]:
    """UsageError if a run has no such model."""
    first = models[0] or next(
        (name for name in before.models if name in after.models), before.models[0]
    )
    second = models[1] or (first if first in after.models else after.models[0])
    for run, model in ((before, first), (after, second)):
        if model not in run.models:
            raise UsageError(f"{run.id}: no model named {model!r}")
    sides = [
        Side(run, model, cast("Arm", arm or "skill"))
        for run, model in ((before, first), (after, second))
    ]
    texts = [f"{run.plan.skill.description}\n\n{run.plan.skill.body}" for run in (before, after)]
    page: dict[str, Any] = {
        "before": _side(sides[0]),
        "after": _side(sides[1]),
        "words": ["The two runs have no cases in common, so only their skills can be compared."],
        "diff": line_diff(*texts),
        "same_skill": texts[0] == texts[1],
        "changed": [],
        "same": [],
    }
    if before.plan.suite.by_id.keys().isdisjoint(after.plan.suite.by_id):
        return page
    comparison = compare(store, *sides)
    changed = [*comparison.changed("worse"), *comparison.changed("better")]
    prompts = {case.id: case.prompt for case in after.plan.suite.cases}
    return page | {
        "words": list(describe(comparison)),
        "diff": [] if comparison.same_skill else page["diff"],
        "same_skill": comparison.same_skill,
        "changed": [
            {
                "id": case.id,
                "change": case.change,
                "before": case.before,
                "after": case.after,
                "prompt": prompts.get(case.id, ""),
                "answers": [
                    trial_to_page(result) for result in shown_answers(store, comparison, case)
                ]
                if number < MAX_CASES
                else [],
            }
            for number, case in enumerate(changed)
        ],
        "same": [
            {"id": case.id, "before": case.before, "after": case.after}
            for case in comparison.changed("same")
        ],
    }


def _side(side: Side) -> dict[str, Any]:
    run = side.run
    return {
        "run": run.id,
        "skill": run.skill,
        "version": run.plan.skill.visible_hash[:8],
        "model": side.model,
        "arm": side.arm,
        "models": run.models,
        "arms": list(run.plan.arms),
    }


def list_trials(
    store: Store, run: Run, query: Mapping[str, str], after: Trial | None
) -> dict[str, Any]:
    """Up to a page of matching trials, and where to continue; filling a page may take another request."""
    filters = {name: query.get(name, "") for name in ("model", "arm", "outcome")}
    case_id, tag = query.get("case", ""), query.get("tag", "")
    text = query.get("text", "").strip().lower()[:MAX_SEARCH_TEXT]
    rows: list[dict[str, Any]] = []
    last: Outcome | None = None
    outcomes = store.outcomes(run, case_id or None, after=after, limit=MAX_OUTCOMES_READ)
    for looked_at, outcome in enumerate(outcomes, start=1):
        case = run.plan.suite.by_id.get(outcome.case) or StoredCase(id=outcome.case, prompt="")
        row = trial_row(outcome)
        fits = tag in ("", *case.tags) and all(
            value in ("", row[name]) for name, value in filters.items()
        )
        if fits and _has_text(store, run, outcome, case, text):
            rows.append(row)
        if len(rows) == TRIALS_AT_ONCE or looked_at == MAX_OUTCOMES_READ:
            last = outcome
            break
    key = json.dumps([last.case, last.model, last.arm, last.seed]) if last else None
    total = None  # how many match, if that is known without reading them and reveals nothing before the end
    tells = filters["outcome"] in ("passed", "failed") and unfinished_models(store, run)
    if not (case_id or tag or text or tells):
        counted = (filters["outcome"],) if filters["outcome"] else ("passed", "failed", "errored")
        arms = [
            arm
            for arm in store.progress(run)
            if filters["model"] in ("", arm.model) and filters["arm"] in ("", arm.arm)
        ]
        total = sum(getattr(arm, name, 0) for arm in arms for name in counted)
    return {"rows": rows, "next": key, "total": total}


def find_trial(store: Store, run: Run, trial: Trial) -> dict[str, Any] | None:
    result = store.result(run, trial)
    return trial_to_page(result) if result else None


def trial_at(key: str) -> Trial:
    try:
        fields: object = json.loads(key)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(fields, list) or len(cast("list[Any]", fields)) != 4:
        raise ValueError("a key must consist of case, model, arm and seed")
    case, model, arm, seed = cast("list[Any]", fields)
    if (
        not all(isinstance(each, str) for each in (case, model, arm))
        or type(seed) is not int
        or abs(seed) >= 2**63
    ):
        raise ValueError("a key must be three strings and a number")
    return Trial(model, case, cast("Arm", arm), seed)


def _has_text(store: Store, run: Run, row: Outcome, case: StoredCase, text: str) -> bool:
    if text in f"{row.case}\n{row.model}\n{case.prompt}".lower():
        return True
    result = store.result(run, Trial(row.model, row.case, cast("Arm", row.arm), row.seed))
    if result is None:
        return False
    texts = [result.error]
    for finding in result.findings:
        texts += [finding.check, finding.reason]
    for step in result.trace.steps if result.trace else ():
        texts += [step.text, step.tool, step.output, json.dumps(step.arguments, ensure_ascii=False)]
    return any(text in each.lower() for each in texts)
