"""Shown: what reports may show of a stored run, finished or not, and what a verdict covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from upskill.plain import counted
from upskill.runs.stores import Run, Store
from upskill.verdicts.verdict import SEARCH
from upskill.version import __version__


@dataclass(frozen=True, slots=True)
class Unfinished:
    """How far the trials of a model are. Results so far are no evidence: someone may stop when it looks good."""

    done: int
    trials: int
    errored: int  # of those done

    def __str__(self) -> str:
        return f"unfinished: {self.done:,} of {counted(self.trials, 'trial')}"


def unfinished_models(store: Store, run: Run) -> dict[str, Unfinished]:
    """The models whose lift may not be shown yet.

    With rounds that is a model in the middle of one: the looks between them are planned.
    """
    of_model = run.trials // max(1, len(run.models))
    of_round = of_model // max(1, run.plan.runs)
    done, errored = Counter[str](), Counter[str]()
    for tally in store.progress(run):
        done[tally.model] += tally.passed + tally.failed + tally.errored
        errored[tally.model] += tally.errored
    return {
        model: Unfinished(done[model], of_model, errored[model])
        for model in run.models
        if done[model] < of_model
        and not (run.plan.scope and done[model] and done[model] % of_round == 0)
    }


def reported_verdicts(store: Store, run: Run) -> list[Mapping[str, Any]] | None:
    """None if the verdicts would be different or hidden today."""
    verdicts = {} if unfinished_models(store, run) else current_verdicts(store, run)
    return [verdicts[model] for model in run.models] if verdicts.keys() >= set(run.models) else None


def current_verdicts(store: Store, run: Run) -> dict[str, Mapping[str, Any]]:
    """By model, those that would be the same today."""
    scored: Counter[str] = Counter()
    for tally in store.progress(run):
        scored[tally.model] += tally.passed + tally.failed
    settings = (run.plan.margin, run.plan.scope or "", __version__)
    return {
        look.model: look.verdict
        for look in store.looks_at(run.id)
        if (look.margin, look.scope, look.version) == settings and look.trials == scored[look.model]
    }


def limits_of(run: Run, decision: str) -> str:
    """What a verdict covers, in words, unless it is a whole suite with and without the skill."""
    plan, suite = run.plan, run.plan.suite
    limits = [plan.replayed] if plan.replayed else []
    if plan.analysis.reported is False and "baseline" in plan.arms:
        limits.append(part_of(run))
    if part := suite.part:
        limits.append(f"only {len(suite.cases)} of {part.of} cases")
    if plan.reference_skill:
        limits.append("against a reference skill")
    if "baseline" not in plan.arms:
        limits.append("without a baseline")
    if is_cut_short(run) and not (
        plan.scope and decision != "undecided"
    ):  # which it came to before its end
        limits.append(
            f"only {run.passed + run.failed + run.errored:,} of {counted(run.trials, 'trial')}"
        )
    return ", ".join(limits)


def part_of(run: Run) -> str:
    """What ran it to compare something, and reports the result itself. Only `ci` and `recheck` do that in rounds."""
    if run.plan.scope is None:
        return SEARCH
    return "part of `upskill ci`" if run.plan.reference_skill else "part of `upskill recheck`"


def rank_of(run: Run, decision: str) -> tuple[bool, bool]:
    """Which run gives a skill its verdict: one on its own suite, then one without limits, then the latest."""
    return not run.plan.other_suite, not limits_of(run, decision)


def is_cut_short(run: Run) -> bool:
    """Whether trials are missing. Rounds may end after any of them, unless a ceiling ended them."""
    done, plan = run.passed + run.failed + run.errored, run.plan
    of_round = len(plan.suite.cases) * len(plan.arms)
    stopped_by_rule = plan.scope and done and not done % of_round and not plan.analysis.halted
    return done < run.trials and not stopped_by_rule
