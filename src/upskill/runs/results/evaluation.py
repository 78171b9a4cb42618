"""An Evaluation is a run with everything that reports show, computed from its stored trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from typing import Any

from upskill.agents import AGENTS, ExternalAgent
from upskill.errors import StoreError
from upskill.models.addresses import full_name
from upskill.plain import counted
from upskill.runs.planning.plan import Plan, Trial
from upskill.runs.planning.stored_plan import KeptVerdicts, StoredPlan
from upskill.runs.results.caveats import find_caveats
from upskill.runs.results.shown import Unfinished, unfinished_models
from upskill.runs.stores import Review, Run, Store
from upskill.suites import Suite
from upskill.verdicts.arms import MAX_MISSING_ALWAYS, MAX_MISSING_SHARE
from upskill.verdicts.compute import compute_splits, compute_verdicts
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.requirements import Requirement, Ruling, check_requirement, parse_requirement
from upskill.verdicts.verdict import OBSTACLES, Reason, Verdict, VerdictOptions
from upskill.version import __version__

GOOD_PASS_RATE = 0.8  # below it, a larger student may be the next step
MAX_BUGS = 1000  # that are kept with their tracebacks
MAX_RUNS_SEARCHED = 50  # for the cases that failed last time


@dataclass
class Evaluation:
    """A run and everything computed from its stored trials."""

    plan: Plan
    run: Run
    outcomes: list[Outcome]
    errors: list[tuple[str, str, int]]  # model, message, how many trials
    spent: dict[
        str, tuple[int, float | None]
    ]  # tokens and dollars by role; None: a price is not known
    # By model, where trials are missing: of its outcomes there are only those that errored.
    unfinished: dict[str, Unfinished] = field(default_factory=dict[str, Unfinished])
    # The names that each model's provider answered under, and how many trials each answered.
    snapshots: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    warnings: list[str] = field(default_factory=list[str])
    # What shows that the arms were not isolated: then no number of the run means anything.
    invalid: list[tuple[Trial, str]] = field(default_factory=list[tuple[Trial, str]])
    # The trials that a bug in upskill ended, each with its error and its traceback.
    bugs: list[tuple[Trial, str, str]] = field(default_factory=list[tuple[Trial, str, str]])
    caveats: list[str] = field(default_factory=list[str])  # of showing it, beside those of verdicts
    reviews: list[Review] = field(default_factory=list[Review])  # what people said of its answers
    failures: list[str] = field(
        default_factory=list[str]
    )  # on train cases; only for `evaluate_skill`

    def __repr__(self) -> str:
        return f"Evaluation({self.run.id!r}, {self.verdicts})"

    # How the run was last analyzed: see StoredPlan and Analysis.

    @property
    def halted(self) -> str:
        return self.run.plan.analysis.halted

    @property
    def stopped(self) -> Mapping[str, str]:
        return self.run.plan.analysis.stopped

    @cached_property
    def requirements(self) -> list[Requirement]:
        return [parse_requirement(text) for text in self.run.plan.analysis.requirements]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        models = dict.fromkeys(address.name for address in self.plan.models)
        return compute_verdicts(self._grouped, self._options, models)

    def split(self, cases: Collection[str]) -> dict[str, dict[str, Any]]:
        """By model, over some of the cases, at the level of its verdict."""
        levels = {verdict.model: verdict.these.level for verdict in self.verdicts}
        rows = (row for row in self._grouped if row.case in cases)
        return compute_splits(rows, self._options, levels)

    @cached_property
    def _grouped(self) -> list[Outcome]:
        """What counts as one task where tasks are counted."""
        groups = {case.id: case.group for case in self.plan.suite.cases if case.group}
        return [
            replace(row, group=groups[row.case]) if row.case in groups else row
            for row in self.outcomes
        ]

    @cached_property
    def _options(self) -> VerdictOptions:
        return verdict_options(
            self.run.plan,
            isolation_broken=self.leaked,  # a wall that did not stand for one model stood for none
            unfinished={model: (each.done, each.trials) for model, each in self.unfinished.items()},
            caveats=tuple(find_caveats(self.run.plan, self.snapshots)),
        )

    @cached_property
    def rulings(self) -> list[tuple[str, Ruling]]:
        """A run that was cut short or hit a bug meets no requirement: what was run is not the suite."""
        rulings: list[tuple[str, Ruling]] = []
        for verdict, requirement in product(self.verdicts, self.requirements):
            so_far = self.unfinished.get(verdict.model)
            short = (
                "the run was stopped early" if self.halted else f"it is {so_far}" if so_far else ""
            )
            if any(trial.model == verdict.model for trial, _, _ in self.bugs):
                short = "a trial hit a bug in upskill"
            ruling = (
                Ruling(requirement, held=False, reason=short)
                if short
                else check_requirement(requirement, verdict)
            )
            rulings.append((verdict.model, ruling))
        return rulings

    # As upstream's users read a result: of the only model, or of the first.

    @property
    def skill_lift(self) -> float | None:
        return self.verdicts[0].lift

    @property
    def token_savings(self) -> float | None:
        return self.verdicts[0].token_savings

    @property
    def is_beneficial(self) -> bool:
        return self.verdicts[0].is_beneficial

    @property
    def full_names(self) -> dict[str, str]:
        """By name, with the model behind an alias."""
        answered_by = {
            model: max(names, key=names.__getitem__)
            for model, names in self.snapshots.items()
            if names
        }
        return {
            each.name: full_name(each, answered_by.get(each.name, "")) for each in self.plan.models
        }

    @property
    def next_students(self) -> list[tuple[str, str]]:
        """Where an embedded student gains nothing or stays undecided, and fails often: with its name, a larger one."""
        from upskill.models.embedded.capacity import next_student  # noqa: PLC0415 - only for embedded models

        embedded = {each.name: each.model for each in self.plan.models if each.provider == "local"}
        return [
            (verdict.model, suggestion)
            for verdict in self.verdicts
            if verdict.model in embedded and is_too_weak(verdict) and not self.run.plan.replayed
            if (suggestion := next_student(embedded[verdict.model]))
        ]

    def outcomes_of(self, model: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.model == model]

    @property
    def fresh(self) -> frozenset[str]:
        return self.run.plan.fresh

    def cut_at(self, model: str) -> list[int]:
        """The lowest and highest limit that cut answers off; those of programs are unknown."""
        if isinstance(AGENTS.load(self.plan.agent)(), ExternalAgent):
            return []
        cut = [outcome.case for outcome in self.outcomes_of(model) if outcome.cause == "length"]
        limits = [
            self.plan.output_limit(Trial(model, case, "skill", self.plan.seed)) for case in cut
        ]
        return sorted({min(limits), max(limits)}) if limits else []

    @property
    def judge_errors(self) -> dict[str, dict[str, tuple[int, int]]]:
        """By model and arm: how many trials the judge gave no grade for, and how many there are; empty without any."""
        trials = Counter((row.model, row.arm) for row in self.outcomes)
        ungraded = Counter(
            (row.model, row.arm)
            for row in self.outcomes
            if row.passed is None and row.cause == "judge"
        )
        models = dict.fromkeys(model for model, _ in ungraded)
        return {
            model: {
                arm: (ungraded[model, arm], trials[model, arm])
                for name, arm in sorted(trials)
                if name == model
            }
            for model in models
        }

    @property
    def leaked(self) -> bool:
        return bool(self.invalid) or any(outcome.leaked for outcome in self.outcomes)

    @property
    def too_many_errors(self) -> bool:
        so_far = self.unfinished.values()
        return (
            bool(self.stopped)
            or any(map(_misses_too_many, self.verdicts))
            or any(each.errored > MAX_MISSING_SHARE * each.done for each in so_far)
        )

    @property
    def bug_count(self) -> int:
        return sum(outcome.bug for outcome in self.outcomes)

    @property
    def bug_messages(self) -> list[tuple[str, int]]:
        """Last lines of tracebacks, most frequent first, with the number of trials."""
        return Counter(
            traceback.strip().rpartition("\n")[2] for _, _, traceback in self.bugs
        ).most_common()

    @property
    def has_failed(self) -> bool:
        """The command ends with exit code 3."""
        return bool(self.why_failed)

    @property
    def why_failed(self) -> str:
        """Empty if it has not."""
        if self.leaked:
            return "a trial saw a skill that should have been hidden"
        if self.bugs:
            return f"a bug in upskill ended {counted(self.bug_count, 'trial')}: {self.bug_messages[0][0]}"
        if self.stopped:
            return "; ".join(f"{model} was stopped: {why}" for model, why in self.stopped.items())
        errored = sum(number for _, _, number in self.errors)
        first = next((f" ({model}: {message})" for model, message, _ in self.errors), "")
        return (
            f"{errored:,} of {counted(self.run.trials, 'trial')} errored{first}"
            if self.too_many_errors
            else ""
        )


def _misses_too_many(verdict: Verdict) -> bool:
    """Also where one arm was run only, so that another reason comes first."""
    return verdict.these.reason == Reason.ERRORS or any(
        arm.missing > max(MAX_MISSING_ALWAYS, MAX_MISSING_SHARE * (arm.missing + arm.scored))
        or (arm.missing and not arm.scored)
        for arm in (verdict.baseline, verdict.skill)
    )


def verdict_options(
    plan: StoredPlan,
    *,
    isolation_broken: bool = False,
    unfinished: Mapping[str, tuple[int, int]] | None = None,
    caveats: tuple[str, ...] = (),
) -> VerdictOptions:
    return VerdictOptions(
        exact=frozenset(plan.exact),
        fresh=plan.fresh,
        in_rounds=plan.in_rounds,
        tolerance=plan.tolerance,
        making_cost=plan.analysis.making_cost,
        isolation_broken=isolation_broken,
        has_baseline="baseline" in plan.arms,
        unfinished=unfinished or {},
        caveats=caveats,
    )


def is_too_weak(verdict: Verdict) -> bool:
    """Whether a stronger student is the next step: this one gains nothing or is undecided, and fails often."""
    gains_nothing = verdict.decision in ("undecided", "no effect")
    is_evidence = verdict.reason not in OBSTACLES
    return gains_nothing and is_evidence and (verdict.skill.pass_rate or 0.0) < GOOD_PASS_RATE


def evaluation_of(store: Store, run: Run, plan: Plan | None = None) -> Evaluation:
    """A stored run under the settings it was last evaluated with. What is computed is kept for lists."""
    run = store.run(run.id)
    unfinished = unfinished_models(store, run)
    snapshots = store.snapshots(run)
    evaluation = Evaluation(
        plan or run.plan.to_plan(),
        run,
        [row for row in store.outcomes(run) if row.passed is None or row.model not in unfinished],
        store.errors(run),
        store.spent(run),
        snapshots=snapshots,
        warnings=[*run.plan.analysis.warnings],
        invalid=store.leaks(run),
        bugs=list(islice(store.bugs(run), MAX_BUGS)),
        reviews=store.reviews(run),
        unfinished=unfinished,
    )
    _keep_verdicts(store, evaluation)
    return evaluation


def _keep_verdicts(store: Store, evaluation: Evaluation) -> None:
    run = evaluation.run
    if evaluation.unfinished:
        return
    verdicts = tuple(verdict.to_dict() for verdict in evaluation.verdicts)
    kept = KeptVerdicts(version=__version__, trials=run.passed + run.failed, verdicts=verdicts)
    if run.plan.analysis.kept == kept:
        return
    try:
        store.annotate(run, analysis=replace(run.plan.analysis, kept=kept))
    except StoreError:  # somebody else's store, which can only be read
        return


def failing_cases(
    store: Store, skill: str, suite: Suite, models: Collection[str]
) -> set[str] | None:
    """Cases that a model failed or errored in the latest run that has them. None: no stored run has any of them."""
    latest: dict[str, bool] = {}
    prompts = {(case.id, case.prompt) for case in suite.cases}
    runs = (
        run
        for run in store.runs(skill, newest_first=True)
        if {*models} & {*run.models}
        and (
            run.plan.suite.source == suite.source
            or any((case.id, case.prompt) in prompts for case in run.plan.suite.cases)
        )
    )
    for run in islice(runs, MAX_RUNS_SEARCHED):
        failed: dict[str, bool] = {}
        for outcome in store.outcomes(run):
            if outcome.arm == "skill" and outcome.model in models and outcome.case in suite.by_id:
                failed[outcome.case] = failed.get(outcome.case, False) or outcome.passed is not True
        latest = failed | latest
        if latest.keys() == suite.by_id.keys():
            break
    return {case for case, failed in latest.items() if failed} if latest else None
