"""Shown: what reports may show of a stored run, finished or not, and what a verdict covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upskill.errors import UsageError
from upskill.plain import counted
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.stores import Run, Store
from upskill.skills import MANIFEST, Skill
from upskill.skills.seen import mark_seen
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
    """The models whose lift may not be shown yet. With rounds, that is one in the middle of a round."""
    of_round = len(run.plan.suite.cases) * len(run.plan.arms)
    done, errored = Counter[str](), Counter[str]()
    for tally in store.progress(run):
        done[tally.model] += tally.passed + tally.failed + tally.errored
        errored[tally.model] += tally.errored
    return {
        model: Unfinished(done[model], run.plan.trials_of(model), errored[model])
        for model in run.models
        if done[model] < run.plan.trials_of(model)
        and not (run.plan.in_rounds and done[model] and done[model] % of_round == 0)
    }


def mark_shown(store: Store, run: Run) -> str:
    """Record that somebody sees results of this run. A caveat where its skill's folder cannot be written."""
    plan = run.plan
    text_hash = plan.skill.text_hash if "skill" in plan.arms else ""
    skill = find_skill(plan) or plan.skill.to_skill()
    return mark_seen(skill, plan.suite, store.scored_cases(run), text_hash, store)


def find_skill(plan: StoredPlan) -> Skill | None:
    """The skill with the plan's name in whose folder its suite lies."""
    folders = Path(plan.suite.source).absolute().parents
    names = (MANIFEST, MANIFEST.lower())
    folder = next(
        (each for each in folders if any((each / name).is_file() for name in names)), None
    )
    try:
        skill = Skill.load(folder) if folder else None
    except UsageError:  # it is being edited
        return None
    return skill if skill and skill.name == plan.skill.name else None


def reported_verdicts(store: Store, run: Run) -> list[Mapping[str, Any]] | None:
    """None if the verdicts would be different or hidden today."""
    verdicts = {} if unfinished_models(store, run) else current_verdicts(store, run)
    return [verdicts[model] for model in run.models] if verdicts.keys() >= set(run.models) else None


def current_verdicts(store: Store, run: Run) -> dict[str, Mapping[str, Any]]:
    """By model, those that would be the same today."""
    scored = sum(tally.passed + tally.failed for tally in store.progress(run))
    kept = run.plan.analysis.kept
    if (kept.version, kept.trials) != (__version__, scored):
        return {}
    return {str(verdict["model"]): verdict for verdict in kept.verdicts}


def limits_of(run: Run, decision: str) -> str:
    """What a verdict covers, in words, unless it is a whole suite with and without the skill."""
    plan, suite = run.plan, run.plan.suite
    limits = [plan.replayed] if plan.replayed else []
    if plan.purpose != "eval":
        limits.append(part_of(run))
    if part := suite.part:
        limits.append(f"only {len(suite.cases)} of {part.of} cases")
    if plan.reference_skill:
        limits.append("against a reference skill")
    if "baseline" not in plan.arms and not suite.part:
        limits.append("without a baseline")
    if is_cut_short(run) and not (plan.in_rounds and decision != "undecided"):
        done = run.passed + run.failed + run.errored
        limits.append(f"only {done:,} of {counted(run.trials, 'trial')}")
    return ", ".join(limits)


def part_of(run: Run) -> str:
    """What ran it, if that was not `eval`."""
    of = {"search": "a search", "gate": "`upskill ci`", "trigger": "`upskill trigger`"}
    return f"part of {of[run.plan.purpose]}" if run.plan.purpose in of else ""


def rank_of(run: Run, decision: str) -> tuple[bool, bool]:
    """Which run gives a skill its verdict: one on its own suite, then one without limits, then the latest."""
    return not run.plan.other_suite, not limits_of(run, decision)


def is_cut_short(run: Run) -> bool:
    """Whether trials are missing. Rounds may end after any of them, unless a ceiling ended them."""
    done, plan = run.passed + run.failed + run.errored, run.plan
    of_round = len(plan.suite.cases) * len(plan.arms)
    stopped_by_rule = plan.in_rounds and done and not done % of_round and not plan.analysis.halted
    return done < run.trials and not stopped_by_rule
