"""Ablation: which blocks of a skill can go, and which do harm?

The search takes out groups of blocks and splits a group only if something changed. A block usually decides a case or
two, so each case is weighed by itself: did it become one that fails? A group whose absence no case notices is set
aside. Half of a group is run only on the cases that noticed the whole. In the end all that was set aside is taken out
together, on all cases, so of two blocks that say the same one stays.

All of that is a guess from few trials. What it comes to is tested on new draws and all cases, with a test that may be
looked at after every round: a block hurts if the student is shown to do better without it, and the shorter skill is
accepted if it is shown not to be worse than the tolerance. The tests of a search share one error level.

Nothing here knows of models or files: `Ablation` asks `measure` for the outcomes of what is left of the skill.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import TypeVar

from upskill.verdicts.interval import Estimate, mean_share, paired_lift
from upskill.verdicts.outcome import Outcome

TOLERANCE = 0.05  # the loss of pass rate that the shorter skill may have
MAX_PAIRS = 2_400  # of the last test: if one trial in ten fails by chance, a tolerance of 5 points takes that many
REFERENCE_ROUNDS, FIRST_ROUNDS, SCREENING_ROUNDS = (
    8,
    4,
    24,
)  # of the whole skill; of a group, at first and at most
NOTICED, UNNOTICED = (
    math.log(240),
    -math.log(240),
)  # odds at which a case is taken to have changed, or not to
REMAINS = 0.25  # of its pass rate, if a case lost what it needs
MIN_ROOM = 0.4  # a case that passes less often has little to lose
HOPELESS = 0.25  # one that two lines break passes less often
# The chance that a search accepts what is worse than the tolerance, and that it names a harmless block as harmful. The
# k-th test of a kind gets 1/k(k+1) of it.
ACCEPTING, ACCUSING = 0.04, 0.01
MAX_CONFIRMATIONS = 4
SHOWN_WORSE, ABOVE_ZERO = math.log(20), 1e-9
BETS = (0.15, 0.3, 0.55, 0.95)  # fractions of what may be risked
FRESH_SEEDS = 500_000  # added to the seeds of the search

Blocks = frozenset[int]
# What the students do with these blocks taken out, on these cases and seeds.
Measure = Callable[[Blocks, Sequence[str], range], Awaitable[Iterable[Outcome]]]
NOTHING: Blocks = frozenset()
Hypothesis = TypeVar("Hypothesis")
Pair = tuple[
    str, float, float
]  # case, and whether it passed in the reference and in what is compared with it


@dataclass(frozen=True, slots=True)
class Tested:
    """What happened on some cases when a group was taken out."""

    group: Blocks
    removed: Blocks  # the group, and what was out already
    reference: Blocks  # what was out of the skill that it is compared with
    cases: tuple[str, ...]
    lost: frozenset[str]  # by any student, as are the others
    gained: frozenset[str]
    odds: float  # of a loss on the case that speaks most for one, as a logarithm


@dataclass(frozen=True, slots=True)
class Worth:
    """What a group of blocks is worth to a student: the pass rate with it less the one without it."""

    model: str
    points: Estimate
    cases: tuple[str, ...]  # those that miss it


@dataclass
class Ablation:
    sections: Sequence[str]  # of each block, the heading above it
    cases: tuple[str, ...]
    measure: Measure
    tolerance: float = TOLERANCE
    rounds: int = 0  # at most; 0: as many as make MAX_PAIRS; 1: what is seen is the truth
    seed: int = 0
    tell: Callable[[str], None] = lambda _: None
    dropped: Blocks = NOTHING
    harmful: dict[int, bool] = field(
        default_factory=dict[int, bool]
    )  # suspects, and whether they are shown to hurt
    tests: list[Tested] = field(default_factory=list[Tested])
    accepted: bool = False  # the shorter skill is shown not to be worse
    confirmations: int = 0
    trials: int = 0
    outcomes: dict[tuple[Blocks, str, str], dict[int, Outcome]] = field(
        default_factory=dict[tuple[Blocks, str, str], dict[int, Outcome]]
    )  # by removed blocks, model and case, then by seed
    groups: list[Tested] = field(default_factory=list[Tested])  # what was set aside
    models: list[str] = field(default_factory=list[str])
    # What seems to hurt: a block, or several of which each is enough; and the cases that change without it.
    suspects: dict[Blocks, tuple[str, ...]] = field(default_factory=dict[Blocks, tuple[str, ...]])
    fixed: frozenset[str] = (
        frozenset()
    )  # cases that failed or changed, run again without the suspects
    _next_seed: dict[tuple[Blocks, str, bool], int] = field(
        default_factory=dict[tuple[Blocks, str, bool], int]
    )

    def __post_init__(self) -> None:
        self.rounds = self.rounds or math.ceil(MAX_PAIRS / max(1, len(self.cases)))
        self.first_fresh_seed = self.seed + FRESH_SEEDS

    @property
    def is_exact(self) -> bool:
        """The students always give the same answer: then what is seen is the truth on these cases."""
        return self.rounds == 1

    @property
    def expected_rounds(self) -> int:
        """Roughly, of all cases."""
        blocks = len(self.sections)
        searching = blocks if self.is_exact else FIRST_ROUNDS * blocks // 2 + REFERENCE_ROUNDS
        return searching + math.ceil(
            2 * self.rounds / 3
        )  # of the whole and the shorter one: mostly, a third does

    # ------------------------------------------------------------------------------------------ search

    async def search(self) -> None:
        await self._run_whole()
        await self._find_harmful()
        if self.has_nothing_to_lose:
            return  # then no block would be missed
        blocks = tuple(index for index in range(len(self.sections)) if index not in self.harmful)
        pending: list[Tested] = []
        if blocks:
            await self._find_idle(blocks, self.cases, pending)
            count = sum(len(each.group) for each in pending)
            self.tell(f"{count} of {len(self.sections)} blocks seem to carry nothing")
        await self._settle([each.group for each in pending], self.cases)

    async def _run_whole(self) -> None:
        await self.extend(NOTHING, self.cases, REFERENCE_ROUNDS)
        self.models = list(dict.fromkeys(model for _, model, _ in self.outcomes))

    async def _find_harmful(self) -> None:
        """Try parts of the skill on the cases that fail with it. What one of them needs may be in the same part as what
        breaks it, so the parts are cut in three ways."""
        failing = tuple(
            case
            for case in self.cases
            if any(self._rate(model, case) < 0.5 for model in self.models)
        )
        if not failing or not self.sections:
            return
        count = len(self.sections)
        quarter = max(1, math.ceil(count / 4))
        groups = [
            tuple(range(start, min(start + quarter, count))) for start in range(0, count, quarter)
        ]
        pairs = [
            one + other for one, other in combinations(groups, 2)
        ]  # two lines may say the same
        groups += [
            tuple(each for each in range(count) if each // step % 4 == part)
            for step in (1, 4)
            for part in range(4)
        ]
        groups = list(dict.fromkeys(filter(None, groups)))
        if self.is_exact and len(groups) > 3:
            tests = [await self._test(frozenset(group), failing) for group in groups]
            passing = Counter(case for tested in tests for case in tested.gained)
            failing = tuple(
                case for case in failing if passing[case] <= len(tests) / 2
            )  # else any change would do
        found: dict[Blocks, frozenset[str]] = {}
        for group in (*groups, *pairs):
            cases = tuple(
                case for case in failing if not any(case in fixed for fixed in found.values())
            )
            if cases and (
                group in groups or 4 * len(cases) <= len(self.cases)
            ):  # if many fail, they are too hard
                for culprit, fixed in (await self._find_culprits(group, NOTHING, cases)).items():
                    found[culprit] = found.get(culprit, frozenset()) | fixed
        without = {group: await self._test(group, self.cases) for group in found}
        found = {group: fixed | without[group].gained for group, fixed in found.items()}
        hurting = [
            group for group, gained in found.items() if len(gained) > len(without[group].lost)
        ]
        self.suspects = {group: tuple(found[group] | without[group].lost) for group in hurting}
        self.dropped = NOTHING.union(*hurting)
        self.harmful = dict.fromkeys(self.dropped, False)
        if self.harmful:  # with them out, other blocks may matter to these cases
            self.fixed = frozenset(failing).union(*self.suspects.values())
            await self.extend(self.dropped, sorted(self.fixed), REFERENCE_ROUNDS)

    async def _find_culprits(
        self, group: tuple[int, ...], beside: Blocks, cases: tuple[str, ...]
    ) -> dict[Blocks, frozenset[str]]:
        """The smallest parts of the group that, taken out with what is beside, fix some of these cases."""
        gained = (await self._test(beside.union(group), cases)).gained
        if not gained or len(group) == 1:
            return {frozenset(group): gained} if gained else {}
        found: dict[Blocks, frozenset[str]] = {}
        left, right = halves(group, self.sections)
        for half in (left, right):
            if rest := tuple(sorted(gained.difference(*found.values()))):
                found |= await self._find_culprits(half, beside, rest)
        unexplained = sorted(gained.difference(*found.values()))
        rest = tuple(
            case
            for case in unexplained
            if any(self._rate(model, case) < HOPELESS for model in self.models)
        )
        if rest and not beside:  # each half has a line that breaks them
            for first, fixed in (await self._find_culprits(left, frozenset(right), rest)).items():
                others = await self._find_culprits(right, first, tuple(sorted(fixed)))
                found |= {first | other: both for other, both in others.items()}
        return found

    async def _find_idle(
        self, group: tuple[int, ...], cases: tuple[str, ...], pending: list[Tested]
    ) -> frozenset[str]:
        """The cases that notice its absence. What they don't is pending."""
        tested = await self._test(frozenset(group), cases)
        if tested.lost:
            await self._divide(group, tuple(sorted(tested.lost)), tested, pending)
        else:
            pending.append(tested)
        return tested.lost

    async def _divide(
        self, group: tuple[int, ...], cases: tuple[str, ...], within: Tested, pending: list[Tested]
    ) -> None:
        """Find out which blocks of a group these cases need. What they don't miss of one half, they miss of the other:
        that takes no trial until one block is left. If they don't miss that either, something is said twice."""
        if len(group) == 1:
            if within.group != frozenset(group):
                await self._find_idle(group, cases, pending)
            return
        left, right = halves(group, self.sections)
        lost = await self._find_idle(left, cases, pending)
        if others := tuple(case for case in cases if case not in lost):
            await self._divide(right, others, within, pending)
        else:
            await self._find_idle(right, cases, pending)

    async def _settle(self, groups: Sequence[Blocks], cases: tuple[str, ...]) -> None:
        """Take out together what seems to carry nothing: two blocks may say the same, or a case may need both halves of
        something. If some cases notice, fewer of them at a time, on these cases: the others missed none of it."""
        if not groups:
            return
        tested = await self._test(NOTHING.union(*groups), cases)
        if not tested.lost:
            self.dropped = tested.removed
            self.groups.append(tested)
            return
        if len(groups) == 1:
            (group,) = groups
            groups = (
                [frozenset(half) for half in halves(tuple(sorted(group)), self.sections)]
                if len(group) > 1
                else []
            )
        middle, lost = len(groups) // 2, tuple(sorted(tested.lost))
        await self._settle(groups[:middle], lost)
        await self._settle(groups[middle:], lost)

    async def _test(self, group: Blocks, cases: tuple[str, ...]) -> Tested:
        """Run what is left without the group until each case has been noticed to change, or not to."""
        removed, waiting, rounds = self.dropped | group, cases, 0
        limit = min(SCREENING_ROUNDS, self.rounds)
        while waiting and rounds < limit:
            rounds = min(limit, rounds + 2 if rounds else FIRST_ROUNDS)
            await self.extend(removed, waiting, rounds)
            waiting = tuple(case for case in waiting if self._is_open(removed, case))
        odds = {
            (model, case): self._odds(removed, model, case)
            for model in self.models
            for case in cases
        }
        lost, gained = (
            frozenset(case for (_, case), each in odds.items() if each[side] > 0.0)
            for side in (0, 1)
        )
        highest = max((loss for loss, _ in odds.values()), default=-math.inf)
        tested = Tested(group, removed, frozenset(self.harmful), cases, lost, gained, highest)
        self.tests.append(tested)
        return tested

    def _is_open(self, removed: Blocks, case: str) -> bool:
        odds = [each for model in self.models for each in self._odds(removed, model, case)]
        return all(each < NOTICED for each in odds) and any(each > UNNOTICED for each in odds)

    def _odds(self, removed: Blocks, model: str, case: str) -> tuple[float, float]:
        """Logarithms: how much better a loss on this case explains its trials than no change; and a gain."""
        rate, trials = self._rate(model, case), self._scored(removed, model, case)
        passed, failed = sum(trials), len(trials) - sum(trials)
        if self.is_exact:
            before, after = rate > 0.5, passed > 0
            return (math.inf if before and not after else -math.inf), (
                math.inf if after and not before else -math.inf
            )
        loss = odds_of_loss(rate, passed, failed) if rate >= MIN_ROOM else -math.inf
        return loss, odds_of_loss(1.0 - rate, failed, passed) if rate < 0.5 else -math.inf

    def _rate(self, model: str, case: str) -> float:
        """How often the case passes with all that does no harm: a guess that is never sure."""
        trials = self._scored(frozenset(self.harmful), model, case)
        if self.harmful and case not in self.fixed:
            trials += self._scored(NOTHING, model, case)
        return (sum(trials) + 0.5) / (len(trials) + 1.0)

    def fails(self, case: str) -> bool:
        """With the whole skill, so that it has nothing to lose."""
        return all(self._rate(model, case) < MIN_ROOM for model in self.models)

    @property
    def has_nothing_to_lose(self) -> bool:
        return all(map(self.fails, self.cases))

    def _scored(self, removed: Blocks, model: str, case: str, *, fresh: bool = False) -> list[bool]:
        rows = self.outcomes.get((removed, model, case), {}).values()
        return [
            row.passed
            for row in rows
            if row.passed is not None and (row.seed >= self.first_fresh_seed) == fresh
        ]

    async def extend(
        self, removed: Blocks, cases: Sequence[str], rounds: int, *, fresh: bool = False
    ) -> None:
        """Run what these cases lack of so many rounds."""
        first = self.first_fresh_seed if fresh else self.seed
        end = first + min(rounds, self.rounds)
        by_start: dict[int, list[str]] = {}
        for case in cases:
            by_start.setdefault(self._next_seed.get((removed, case, fresh), first), []).append(case)
        for start, names in by_start.items():
            if start >= end:
                continue
            for row in await self.measure(removed, names, range(start, end)):
                self.trials += 1
                rows = self.outcomes.setdefault((removed, row.model, row.case), {})
                rows[row.seed] = row
            self._next_seed |= dict.fromkeys(((removed, case, fresh) for case in names), end)

    # ------------------------------------------------------------------------------------------ confirmation

    async def confirm(self) -> None:
        for number, (group, cases) in enumerate(self.suspects.items(), start=1):
            level = ACCUSING / (number * (number + 1) * len(self.models) * len(group))
            # Of several, each must hurt if the others are gone.
            tests = [await self._compare(group, group - {block}, level, cases) for block in group]
            together = self.reference | group  # a case may need one of them
            if all(shown for shown, _ in tests) and len(together) > 1:
                tests = [await self._compare(together, NOTHING, level)]
            self.harmful |= dict.fromkeys(group, True) if all(shown for shown, _ in tests) else {}
        surest = sorted(self.groups, key=lambda each: each.odds)
        blocks, best_guess = (
            [block for each in surest for block in sorted(each.group, reverse=True)],
            self.reference,
        )
        while self.dropped != self.reference and self.confirmations < MAX_CONFIRMATIONS:
            self.accepted, is_worse = await self.is_good_enough(self.dropped)
            changes = [self.change(self.dropped, self.reference, model) for model in self.models]
            is_worse |= min(each.high for each in changes) < 0.0
            if self.accepted or not (
                is_worse or min(each.value for each in changes) < -self.tolerance / 2
            ):
                return  # a smaller loss takes more rounds
            best_guess = (
                self.dropped if best_guess == self.reference and not is_worse else best_guess
            )
            blocks = blocks[
                : len(blocks) // 2
            ]  # put back the half that was least sure to carry nothing
            self.dropped = self.reference.union(blocks)
            self.tell(
                f"It seems to be worse without them. {len(self.dropped)} blocks are still left out"
            )
        self.dropped = best_guess
        self.accepted = self.dropped == self.reference != NOTHING

    async def is_good_enough(self, removed: Blocks) -> tuple[bool, bool]:
        """Whether it is shown to lose no more than the tolerance, and whether it is shown to lose more."""
        self.confirmations += 1
        return await self._compare(
            removed, self.reference, ACCEPTING / (self.confirmations * (self.confirmations + 1))
        )

    @property
    def reference(self) -> Blocks:
        """What the shorter skill is compared with: the whole one, without what is shown to hurt."""
        return frozenset(block for block, shown in self.harmful.items() if shown)

    async def try_rewrite(self, number: int) -> bool:
        """Whether no case notices a rewrite of what is left. It goes by a number beyond those of the blocks."""
        tested = await self._test(frozenset({number}), self.cases)
        if not tested.lost:
            self.dropped = tested.removed
            self.groups.append(replace(tested, odds=math.inf))  # the first to be undone
        return not tested.lost

    async def _compare(
        self, removed: Blocks, reference: Blocks, level: float, better: Sequence[str] = ()
    ) -> tuple[bool, bool]:
        """On new draws and all cases: whether it is shown to lose no more than the tolerance, for every student,
        and to be better on some, for any; and whether the opposite is."""
        rounds, shown, refuted = 0, False, False
        while not (shown or refuted) and rounds < self.rounds:
            rounds = min(self.rounds, rounds + max(2, rounds // 3))
            for each in (reference, removed):
                await self.extend(each, self.cases, rounds, fresh=True)
            pairs = [self.pairs(removed, reference, model, fresh=True) for model in self.models]
            overall = some = [self._weigh(each, -self.tolerance, level) for each in pairs]
            if better:
                some = [
                    self._weigh([pair for pair in each if pair[0] in better], ABOVE_ZERO, level)
                    for each in pairs
                ]
            shown = all(is_shown for is_shown, _ in overall) and any(
                is_shown for is_shown, _ in some
            )
            refuted = any(is_refuted for _, is_refuted in overall) or all(
                is_refuted for _, is_refuted in some
            )
        return shown, refuted

    def _weigh(self, pairs: Sequence[Pair], mean: float, level: float) -> tuple[bool, bool]:
        differences = [after - before for _, before, after in pairs]
        room = sum(differences) / max(1, len(differences)) - mean
        if self.is_exact:
            return room >= 0.0, room < 0.0
        is_refuted = log_wealth([-each for each in differences], -mean) >= SHOWN_WORSE
        return log_wealth(differences, mean) >= -math.log(level), is_refuted

    def pairs(
        self,
        removed: Blocks,
        reference: Blocks,
        model: str,
        *,
        fresh: bool,
        cases: Sequence[str] | None = None,
    ) -> list[Pair]:
        """By case and seed: whether it passed in the reference, and without what was removed. An error of one of them
        counts against the shorter one."""
        found: list[Pair] = []
        for case in self.cases if cases is None else cases:
            before, after = (
                self.outcomes.get((each, model, case), {}) for each in (reference, removed)
            )
            found += [
                (case, float(before[seed].passed is not False), float(bool(after[seed].passed)))
                for seed in sorted(before.keys() & after.keys())
                if (seed >= self.first_fresh_seed) == fresh
                and (before[seed].passed, after[seed].passed) != (None, None)
            ]
        return found

    # ------------------------------------------------------------------------------------------ results

    def worth(self, block: int) -> Iterator[Worth]:
        """Of the smallest group with this block that was tried, to each student."""
        if (tested := self.smallest_test(block)) is None:
            return
        for model in self.models:
            pairs = self.pairs(
                tested.removed, tested.reference, model, fresh=False, cases=tested.cases
            )
            change = lift(pairs, is_exact=self.is_exact)
            share = len(tested.cases) / len(self.cases)  # the others did not notice a larger group
            points = Estimate(
                -share * change.value, -share * change.high, -share * change.low, change.level
            )
            lost = (case for case in tested.cases if case in tested.lost)
            yield Worth(
                model,
                points,
                tuple(case for case in lost if self._odds(tested.removed, model, case)[0] > 0),
            )

    def smallest_test(self, block: int) -> Tested | None:
        """Those first that were made when nothing else was known to hurt, and in which it was missed."""
        suspect = next((group for group in self.suspects if block in group), frozenset({block}))
        tests = [each for each in self.tests if suspect <= each.group]
        last = frozenset[int]() if block in self.harmful else frozenset(self.harmful)
        order = {
            each: (each.reference != last, len(each.group), not each.lost, -len(each.cases))
            for each in tests
        }
        return min(order, key=lambda each: order[each], default=None)

    def fresh_rounds(self, removed: Blocks) -> int:
        return (
            self._next_seed.get((removed, self.cases[0], True), self.first_fresh_seed)
            - self.first_fresh_seed
        )

    def pass_rate(self, removed: Blocks, model: str) -> Estimate | None:
        """On exactly these cases, from new draws."""
        trials = [
            passed
            for case in self.cases
            for passed in self._scored(removed, model, case, fresh=True)
        ]
        if not trials:
            return None
        rate = sum(trials) / len(trials)
        return Estimate(rate, rate, rate, 0.95) if self.is_exact else mean_share(trials)

    def change(self, removed: Blocks, reference: Blocks, model: str) -> Estimate:
        return lift(self.pairs(removed, reference, model, fresh=True), is_exact=self.is_exact)


def lift(pairs: Sequence[Pair], *, is_exact: bool) -> Estimate:
    """On exactly these cases, with the pair as the unit; of an exact student nothing is left to chance."""
    if is_exact or not pairs:
        by_case = {case: after - before for case, before, after in pairs}
        value = sum(by_case.values()) / max(1, len(by_case))
        return Estimate(value, value, value, 0.95)
    return paired_lift([after - before for _, before, after in pairs], range(len(pairs)))


def log_wealth(differences: Sequence[float], mean: float) -> float:
    """The logarithm of the wealth from betting that the true mean is above this one: an e-value, as in `Sequential`.

    A few bets that suit the tolerance: it is small, and most pairs of a finished skill do not differ.
    """
    counts = Counter(differences)
    grown = [
        sum(
            count * math.log1p(bet * ((value - mean) / (1.0 + mean)))
            for value, count in counts.items()
        )
        for bet in BETS
    ]
    top = max(grown)
    return top + math.log(sum(math.exp(each - top) for each in grown) / len(grown))


def holm(evidence: Mapping[Hypothesis, float], level: float) -> Iterator[Hypothesis]:
    """What is shown by these logarithms of e-values, so that the chance of any error is at most `level` (Holm)."""
    ranked = sorted(evidence, key=lambda each: evidence[each], reverse=True)
    for number, each in enumerate(ranked):
        if evidence[each] < math.log((len(ranked) - number) / level):
            return
        yield each


def odds_of_loss(rate: float, passed: int, failed: int) -> float:
    usual = min(0.95, rate)
    lost = REMAINS * usual
    return passed * math.log(lost / usual) + failed * math.log((1.0 - lost) / (1.0 - usual))


def halves(group: tuple[int, ...], sections: Sequence[str]) -> list[tuple[int, ...]]:
    """Cut in the middle, or between two sections where there is such a place."""
    middle, ends = len(group) / 2, enumerate(pairwise(group), 1)
    between = [number for number, (one, other) in ends if sections[one] != sections[other]]
    cut = min(between or [len(group) // 2], key=lambda place: abs(place - middle))
    return [group[:cut], group[cut:]]
