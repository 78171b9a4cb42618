"""What a store has for a plan: rounds that count in it, and results that it can take from other runs.

All draws count: a plan has as many rounds as were asked for, or as many as are stored for this text of the skill,
whichever is more. Answers of an exact student are used wherever the same was asked. Other draws are taken only from
runs of the same text, which have them beside each other; and the baseline of a case that was seen, if it is less than a
day old and the suite has lost no case since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import randrange

from upskill.runs.planning.plan import Plan, Trial
from upskill.runs.stores import Run, Store

MAX_REUSED = 20_000  # trials of a plan that are looked up in earlier runs
MAX_AGE = timedelta(days=1)  # of a baseline that is used again
MAX_SHUFFLES = 2**31

Source = tuple[int, str]  # the number of a run, and the key of a result there


def find_dropped_cases(plan: Plan, store: Store) -> tuple[str, ...]:
    """Cases that ran together with some of this suite's and are not in it: their results may have chosen these."""
    if plan.purpose != "eval" or plan.suite.part or plan.replay:
        return ()
    ids = plan.suite.by_id
    prompts = {case.prompt for case in plan.suite.cases}
    dropped: set[str] = set()
    for run in store.recent_runs(plan.skill.name):
        if run.purpose != "eval" or run.plan.part:
            continue
        cases = run.plan.suite.cases
        gone = {case.id for case in cases if case.id not in ids and case.prompt not in prompts}
        if len(gone) < len(cases):
            dropped |= gone
    return tuple(sorted(dropped))


@dataclass(frozen=True)
class PastDraws:
    """`known`: the stored run of this plan, if there is one."""

    plan: Plan
    store: Store
    known: Run | None

    def extend_plan(self, *, redraw: bool) -> Plan:
        """With all rounds that are stored or were begun; `redraw` adds as many again."""
        plan, known = self.plan, self.known
        stored = self._stored_rounds()
        rounds: dict[str, int] = {}
        for model in plan.addresses:
            before = stored.get(model, 0)
            wanted = max(plan.runs, before)
            if redraw and before:
                wanted = 2 * before
            if wanted != plan.runs:
                rounds[model] = wanted
        return replace(
            plan,
            rounds=rounds,
            from_cache=plan.from_cache
            | (frozenset(known.plan.from_cache) if known else frozenset()),
            shuffle=known.plan.shuffle if known else randrange(MAX_SHUFFLES),  # noqa: S311 - an order
        )

    def _stored_rounds(self) -> dict[str, int]:
        runs = [self.known] if self.known else []
        if self.plan.purpose != "gate" and not self.plan.replay:
            runs += [
                run
                for run in self.store.recent_runs(self.plan.skill.name)
                if run.plan.setup == self.plan.setup
            ]
        rounds: dict[str, int] = {}
        for run in runs:
            for model, seed in self.store.last_seeds(run).items():
                rounds[model] = max(rounds.get(model, 0), seed - self.plan.seed + 1)
        return rounds

    def find(
        self, plan: Plan, missing: Sequence[Trial], seen: Mapping[str, str]
    ) -> dict[str, Source]:
        """By the key that a missing trial has in this plan: where its result is."""
        if plan.replay or len(missing) > MAX_REUSED:
            return {}
        keys = [
            plan.key(trial)
            for trial in missing
            if plan.purpose != "gate" or plan.draws[trial.model].is_deterministic
        ]
        found = self.store.find_results(plan.skill.name, keys)
        sources = {key: (number, key) for key, number in found.items()}
        if self.known is None and plan.purpose == "eval" and plan.suite.part is None:
            text = plan.skill.text_hash
            seen_cases = {case for case, first in seen.items() if first != text}
            wanted = [
                trial
                for trial in missing
                if trial.arm == "baseline"
                and trial.case in seen_cases
                and plan.key(trial) not in sources
            ]
            sources |= self._recent_baselines(plan, wanted)
        return sources

    def _recent_baselines(self, plan: Plan, wanted: Sequence[Trial]) -> dict[str, Source]:
        """All of a case come from one run, where each was drawn less than a day ago."""
        sources: dict[str, Source] = {}
        oldest = (datetime.now(UTC) - MAX_AGE).isoformat()
        for run in self.store.recent_runs(plan.skill.name) if wanted else ():
            before = run.plan
            has_lost = before.suite.by_id.keys() - plan.suite.by_id.keys()
            if before.purpose != "eval" or before.part or has_lost:
                continue
            old_keys = {trial: plan.key_beside(trial, before.salt) for trial in wanted}
            finished = self.store.finished_at(run, [*old_keys.values()])
            by_case: dict[tuple[str, str], list[Trial]] = {}
            for trial in wanted:
                if old_keys[trial] in finished:
                    by_case.setdefault((trial.model, trial.case), []).append(trial)
            for trials in by_case.values():
                if all(finished[old_keys[trial]] > oldest for trial in trials):
                    sources |= {plan.key(trial): (run.number, old_keys[trial]) for trial in trials}
            wanted = [trial for trial in wanted if (trial.model, trial.case) not in by_case]
        return sources
