"""Looks: how often somebody has been told what a skill does on these cases, and what was edited meanwhile.

Other flags, other seeds, more cases or more results make another look; the same results shown again the same way do
not. What a search compares on its train cases is no look.
"""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upskill.plain import counted
from upskill.runs.planning.plan import Plan
from upskill.runs.stores import Look, Run, Store
from upskill.runs.stores.rows import timestamp
from upskill.verdicts.outcome import Outcome
from upskill.version import __version__


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks before this one: of the same model, at the same skill, on a suite with some of the same cases."""

    earlier: tuple[Look, ...] = ()  # oldest first
    edited: int = 0  # cases that the first of them had, with other words or other checks
    added: int = 0  # cases that the first of them did not have
    removed: int = 0  # cases that only the first of them had
    revisions: int = 0  # looks at other versions of the skill, which are not among the `earlier`

    @property
    def number(self) -> int:
        return len(self.earlier) + 1


def looks_before(known: Sequence[Look], look: Look) -> Looks:
    stored = next((each.number for each in known if each.identity == look.identity), None)
    before = [
        each
        for each in known
        if (stored is None or each.number < stored)
        and (each.skill, each.model) == (look.skill, look.model)
        # A case is the same by its id or, under another id, by all that it says.
        and (each.cases.keys() & look.cases.keys() or {*each.cases.values()} & {*look.cases.values()})
    ]
    earlier = tuple(each for each in before if each.skill_hash == look.skill_hash)
    first = earlier[0].cases if earlier else look.cases
    return Looks(
        earlier,
        edited=sum(first.get(case, hashed) != hashed for case, hashed in look.cases.items()),
        added=len(look.cases.keys() - first.keys()),
        removed=len(first.keys() - look.cases.keys()),
        revisions=len(before) - len(earlier),
    )


def make_look(plan: Plan, run: Run, rows: Iterable[Outcome], model: str) -> Look:
    return Look(
        run=run.id,
        model=model,
        skill=plan.skill.name,
        skill_hash=plan.skill.visible_hash,
        suite=plan.suite.source,
        suite_fingerprint=plan.suite.fingerprint,
        cases={case.id: case.fingerprint for case in plan.suite.cases},
        runs=plan.runs,
        seed=plan.seed,
        margin=run.plan.margin,
        scope=run.plan.scope or "",
        trials=sum(row.passed is not None for row in rows),
        version=__version__,
        asked=timestamp(),
        asked_by=_user_name(),
    )


def known_looks(store: Store, run: Run, *, carried_out: bool) -> list[Look]:
    """The looks at a run's skill that count.

    For a run that carried out its registered plan, later looks count only if they were planned by then: of several
    plans registered before any was run, or several runs of one plan, only the first is a first look.
    """
    known = [look for look in store.looks(run.skill) if not _is_of_recorded(store, run, look)]
    registered = (run.plan.registered or "") if carried_out else ""
    if not registered:
        return known
    plans = {other.id: other.plan.registered or "" for other in store.runs(run.skill) if other.id != run.id}
    return [look for look in known if look.asked <= registered or "" < plans.get(look.run, "") <= registered]


def _is_of_recorded(store: Store, run: Run, look: Look) -> bool:
    """A replay shows nothing new unless checks have changed."""
    name, created = run.plan.replay_of or ("", "")
    if look.run != name or look.suite_fingerprint != run.plan.suite.fingerprint:
        return False
    recorded = next((other for other in store.runs(run.skill) if other.id == name), None)
    return recorded is None or recorded.created == created


def reported_verdicts(store: Store, run: Run) -> list[Mapping[str, Any]] | None:
    """None where the verdicts would differ today."""
    verdicts = current_verdicts(store, run)
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
    """What a verdict covers, in words, where that is not a whole suite with and without the skill."""
    plan, suite = run.plan, run.plan.suite
    limits: list[str] = []
    if part := suite.part:
        limits.append(f"only {len(suite.cases)} of {part.of} cases")
    if plan.reference_skill:
        limits.append("against a reference skill")
    if "baseline" not in plan.arms:
        limits.append("without a baseline")
    done = run.passed + run.failed + run.errored
    if done < run.trials and not (plan.scope and decision != "undecided"):  # which it came to before its end
        limits.append(f"only {done:,} of {counted(run.trials, 'trial')}")
    return ", ".join(limits)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # nobody has this number here, or there are no users
        return ""
