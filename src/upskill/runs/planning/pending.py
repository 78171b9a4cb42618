"""PendingTrials are the trials of a run that are left to run, without a list of them: there may be millions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from upskill.runs.planning.plan import Plan, Trial

Group = tuple[str, str, str]  # model, case and arm


@dataclass(frozen=True, slots=True)
class PendingTrials(Collection[Trial]):
    """The trials of these groups, less those that are done, in the order in which they are run."""

    plan: Plan
    groups: Mapping[Group, bytearray | None]  # 1 for every seed that is done; None: none is
    seeds: range = field(kw_only=True)

    @classmethod
    def of(cls, plan: Plan, scored: Mapping[Group, int], done: Iterable[tuple[str, str, str, int]]) -> PendingTrials:
        """All trials of a plan but those that are done. `scored` counts them by group; `done` may leave out those of
        groups that are complete."""
        each = ((model, case, arm) for model in plan.addresses for case in plan.suite.by_id for arm in plan.arms)
        groups: dict[Group, bytearray | None] = {group: None for group in each if scored.get(group, 0) < plan.runs}
        for model, case, arm, seed in done:
            group = model, case, arm
            if group in groups and seed in plan.seeds:
                marks = groups[group] = groups[group] or bytearray(plan.runs)
                marks[seed - plan.seed] = 1
        return cls(plan, groups, seeds=plan.seeds)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __iter__(self) -> Iterator[Trial]:
        return (trial for trial in self.plan.trials(self.groups, self.seeds) if trial in self)

    def __contains__(self, trial: object) -> bool:
        if not isinstance(trial, Trial) or trial.seed not in self.seeds:
            return False
        group = trial.model, trial.case, trial.arm
        done = self.groups.get(group)
        return group in self.groups and (done is None or not done[trial.seed - self.plan.seed])

    @property
    def counts(self) -> dict[Group, int]:
        """How many of each group."""
        start, stop = self.seeds.start - self.plan.seed, self.seeds.stop - self.plan.seed
        return {
            group: len(self.seeds) - (done.count(1, start, stop) if done else 0) for group, done in self.groups.items()
        }

    def select(self, models: Collection[str], arm: str | None = None, seed: int | None = None) -> PendingTrials:
        """Those of some models, of one arm, of one seed."""
        groups = {group: done for group, done in self.groups.items() if group[0] in models and arm in (None, group[2])}
        return replace(self, groups=groups, seeds=self.seeds if seed is None else range(seed, seed + 1))


def pending_of(trials: Collection[Trial], models: Sequence[str], arm: str | None = None) -> Collection[Trial]:
    """Those of some models, and of one arm, without a list of them where that is possible."""
    if isinstance(trials, PendingTrials):
        return trials.select(models, arm)
    return [trial for trial in trials if trial.model in models and arm in (None, trial.arm)]


def count_groups(trials: Iterable[Trial]) -> Mapping[Group, int]:
    if isinstance(trials, PendingTrials):
        return trials.counts
    return Counter((trial.model, trial.case, trial.arm) for trial in trials)
