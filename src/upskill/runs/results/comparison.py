"""A Comparison puts two runs side by side, case by case.

A case that was edited, or that only one of the runs has, says nothing about the skill and is counted separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import attrgetter
from typing import Any, Literal, cast

from upskill.errors import UsageError
from upskill.models import Address
from upskill.plain import as_mapping, counted
from upskill.runs.results.shown import unfinished_models
from upskill.runs.stores import Run, Store
from upskill.verdicts import LEVEL_OF_TASKS
from upskill.verdicts.interval import Estimate, paired_lift

Change = Literal["better", "worse", "same"]
_DECIDES = (
    "prompt",
    "checks",
    "files",
    "reference",
    "output_file",
    "max_output_tokens",
    "max_words",
)  # of a case
_SETTINGS = {
    "agent": "the agent",
    "temperature": "the temperature",
    "runs": "the number of repeats",
    "seed": "the first seed",
    "max_output_tokens": "the output limit",
    "judge": "the judge",
    "distractors": "the other skills installed",
    "bounds.turns": "the agent's turn limit",
    "bounds.tokens": "the agent's token limit",
    "bounds.seconds": "the agent's time limit",
    "bounds.until_activated": "whether the agent stops once it opens the skill",
    "sandbox": "the sandbox",
}


@dataclass(frozen=True, slots=True)
class Side:
    """One model and arm of one run."""

    run: Run
    model: str
    arm: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.run.id, self.model, self.arm


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """One case in both runs: how many trials passed, of how many."""

    id: str
    before: tuple[int, int]
    after: tuple[int, int]

    @property
    def gain(self) -> Fraction:
        return Fraction(*self.after) - Fraction(*self.before)

    @property
    def change(self) -> Change:
        return "better" if self.gain > 0 else "worse" if self.gain < 0 else "same"


@dataclass(frozen=True)
class Comparison:
    before: Side
    after: Side
    cases: list[ComparedCase]  # scored in both, and the same in both
    edited: list[str] = field(default_factory=list[str])
    only_before: list[str] = field(default_factory=list[str])
    only_after: list[str] = field(default_factory=list[str])
    unscored: list[str] = field(default_factory=list[str])  # in both, and not scored in one of them
    lift: Estimate | None = None  # over cases, at 95 %
    no_test: str = ""  # why there is none

    def changed(self, change: Change) -> list[ComparedCase]:
        return [case for case in self.cases if case.change == change]

    @property
    def same_skill(self) -> bool:
        return self.before.run.plan.skill.visible_hash == self.after.run.plan.skill.visible_hash

    @property
    def repeats(self) -> tuple[int, int]:
        """How many each side ran: with rounds, its plan has only the maximum."""
        before, after = self.before.run.plan, self.after.run.plan
        return (
            max((case.before[1] for case in self.cases if before.in_rounds), default=before.runs),
            max((case.after[1] for case in self.cases if after.in_rounds), default=after.runs),
        )

    @property
    def differences(self) -> list[str]:
        return list(_differences(self))


def latest_pair(
    store: Store, befores: Sequence[Run], afters: Sequence[Run], models: Sequence[str] = ()
) -> tuple[Run, Run] | None:
    """Of these runs, newest first, the latest two that can be compared, the older one first; None: there are none.

    They share cases and a model (this one, if one is named; of two, each has its own) and are runs of a kind. The older
    one is preferably a run of the same skill with exactly the same cases.
    """
    for after in afters:
        cases = after.plan.suite.by_id.keys()
        earlier = [
            run
            for run in befores
            if run.number < after.number
            and (_kind(after) or ()) == _kind(run)
            and (
                models[-1] in after.models and models[0] in run.models
                if models
                else {*run.models} & {*after.models}
            )
            and cases & run.plan.suite.by_id.keys()
        ]
        finished = [run for run in earlier if not unfinished_models(store, run)]
        if finished and not unfinished_models(store, after):
            same = [
                (run.skill == after.skill, run.plan.suite.by_id.keys() == cases) for run in finished
            ]
            return finished[same.index(max(same))], after
    return None


def _kind(run: Run) -> tuple[str, bool, bool] | None:
    """Unless somebody names two runs, only runs of one kind are compared. None: part of a search."""
    if run.plan.purpose not in ("eval", "trigger"):
        return None
    is_trigger_test = run.plan.purpose == "trigger"
    return run.plan.other_suite, is_trigger_test, run.plan.reference_skill is not None


def compare(store: Store, before: Side, after: Side) -> Comparison:
    """UsageError if they share no case, or if a side is unfinished."""
    for side in (before, after):
        if so_far := unfinished_models(store, side.run).get(side.model):
            raise UsageError(
                f"{side.run.id}: {side.model} is {so_far}",
                "Run the same `upskill eval` again to continue.",
            )
    old, new = (side.run.plan.suite.by_id for side in (before, after))
    both = [case for case in old if case in new]
    if not both:
        raise UsageError(
            f"{before.run.id} and {after.run.id} have no cases in common",
            "Compare two runs of the same suite.",
        )
    edited = [
        case
        for case in both
        if any(getattr(old[case], name) != getattr(new[case], name) for name in _DECIDES)
    ]
    scores = tuple(store.scores(side.run, side.model, side.arm) for side in (before, after))
    alike = [case for case in both if case not in edited]
    cases = [
        ComparedCase(case, scores[0][case], scores[1][case])
        for case in alike
        if all(case in side for side in scores)
    ]
    comparison = Comparison(
        before,
        after,
        cases,
        edited,
        [case for case in old if case not in new],
        [case for case in new if case not in old],
        [case for case in alike if not all(case in side for side in scores)],
    )
    if why := _no_test(comparison):
        return replace(comparison, no_test=why)
    groups = {case.id: case.group or case.id for case in after.run.plan.suite.cases}
    gains = [float(case.gain) for case in cases]
    units = [groups[case.id] for case in cases]
    return replace(comparison, lift=paired_lift(gains, units, level=LEVEL_OF_TASKS))


def _no_test(comparison: Comparison) -> str:
    if comparison.edited or comparison.only_before or comparison.only_after or comparison.unscored:
        return "the runs do not score the same cases"
    if any(side.run.plan.suite.part for side in (comparison.before, comparison.after)):
        return "the cases are a hand-picked part of the suite"
    before, after = comparison.before.run.plan, comparison.after.run.plan
    if (comparison.repeats[0], before.seed) != (comparison.repeats[1], after.seed):
        return "the runs use different seeds"
    return "the runs had different limits on repeats" if before.runs != after.runs else ""


def _differences(comparison: Comparison) -> Iterator[str]:
    before, after = comparison.before, comparison.after
    if before.run.skill != after.run.skill:
        yield f"the skill's name ({before.run.skill} → {after.run.skill})"
    addresses = [
        next(model for model in side.run.plan.models if model.name == side.model)
        for side in (before, after)
    ]
    if before.model != after.model:
        yield f"the model ({before.model} → {after.model})"
    elif addresses[0] != addresses[1]:
        yield f"the endpoint of {before.model}"
    for number, what in (
        (len(comparison.edited), "edited"),
        (len(comparison.only_before), "removed"),
        (len(comparison.only_after), "added"),
    ):
        if number:
            yield f"the suite ({counted(number, 'case')} {what})"
    for key, label in _SETTINGS.items():
        settings = (
            comparison.repeats
            if key == "runs"
            else (attrgetter(key)(side.run.plan) for side in (before, after))
        )
        old, new = map(_describe_setting, settings)
        if old != new:
            yield f"{label} ({old} → {new})"
    if (
        before.arm == "baseline"
        and before.run.plan.reference_skill != after.run.plan.reference_skill
    ):
        yield "the reference skill"


def _describe_setting(setting: Any) -> str:
    if isinstance(setting, Address):
        return setting.name
    if isinstance(setting, tuple):
        return ", ".join(cast("tuple[str, ...]", setting)) or "none"
    if isinstance(setting, bool):
        return "yes" if setting else "no"
    sandbox = as_mapping(setting)
    return "none" if setting is None else str(sandbox["name"] if sandbox else setting)
