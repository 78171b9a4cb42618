"""Which trials of a run are left to run: known without a list of them, for there may be millions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from upskill.record import record
from upskill.runs.planning.plan import Plan, Trial

Group = tuple[str, str, str]  # model, case and arm


@record
class TrialsLeft(Collection[Trial]):
    """The trials of these groups, less those that are done, in the order in which they are run."""

    plan: Plan
    groups: Mapping[Group, bytearray | None]  # 1 for every seed that is done; None: none is
    seeds: range = field(kw_only=True)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __iter__(self) -> Iterator[Trial]:
        first = self.plan.seed
        for trial in self.plan.trials(self.groups, self.seeds):
            done = self.groups[trial.model, trial.case, trial.arm]
            if done is None or not done[trial.seed - first]:
                yield trial

    def __contains__(self, trial: object) -> bool:
        if not isinstance(trial, Trial) or trial.seed not in self.seeds:
            return False
        done = self.groups.get((trial.model, trial.case, trial.arm), bytearray())
        return done is None or (bool(done) and not done[trial.seed - self.plan.seed])

    @property
    def counts(self) -> dict[Group, int]:
        """How many of each group."""
        start, stop = self.seeds.start - self.plan.seed, self.seeds.stop - self.plan.seed
        return {
            group: len(self.seeds) - (done.count(1, start, stop) if done else 0) for group, done in self.groups.items()
        }

    def of(self, models: Collection[str], arm: str | None = None, seed: int | None = None) -> TrialsLeft:
        """Those of some models, of one arm, of one seed."""
        groups = {group: done for group, done in self.groups.items() if group[0] in models and arm in (None, group[2])}
        return replace(self, groups=groups, seeds=self.seeds if seed is None else range(seed, seed + 1))


def trials_left(plan: Plan, scored: Mapping[Group, int], done: Iterable[tuple[str, str, str, int]]) -> TrialsLeft:
    """What is left of a plan of which so many of each group are scored: all but these, which may be of other groups."""
    each = [(model, case, arm) for model in plan.addresses for case in plan.suite.by_id for arm in plan.arms]
    groups: dict[Group, bytearray | None] = {group: None for group in each if scored.get(group, 0) < plan.runs}
    for model, case, arm, seed in done:
        group = model, case, arm
        if group in groups and seed in plan.seeds:
            marks = groups[group] = groups[group] or bytearray(plan.runs)
            marks[seed - plan.seed] = 1
    return TrialsLeft(plan, groups, seeds=plan.seeds)


def of_group(trials: Collection[Trial], models: Sequence[str], arm: str | None = None) -> Collection[Trial]:
    """Those of some models, and of one arm, as they are needed where that is possible."""
    if isinstance(trials, TrialsLeft):
        return trials.of(models, arm)
    return [trial for trial in trials if trial.model in models and arm in (None, trial.arm)]


def count_groups(trials: Iterable[Trial]) -> Mapping[Group, int]:
    if isinstance(trials, TrialsLeft):
        return trials.counts
    return Counter((trial.model, trial.case, trial.arm) for trial in trials)
