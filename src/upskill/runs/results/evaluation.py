"""An Evaluation is a run with everything that reports show, computed from its stored trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice, product

from upskill.agents import AGENTS, ExternalAgent
from upskill.errors import StoreError
from upskill.models.addresses import full_name
from upskill.plain import counted
from upskill.runs.planning.plan import BOTH_ARMS, Plan, Result, Trial
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.results.looks import Looks, looks_of, make_look
from upskill.runs.results.shown import Unfinished, unfinished_models
from upskill.runs.stores import Look, Page, Review, Run, Store
from upskill.suites import Suite, are_from_memory
from upskill.verdicts.advice import as_part, is_too_weak, with_advice
from upskill.verdicts.arms import MAX_ERROR_RATE
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.outcome import Outcome, Scope, never_varies
from upskill.verdicts.requirements import Requirement, Ruling, check_requirement, parse_requirement
from upskill.verdicts.several_models import decide_together
from upskill.verdicts.verdict import (
    CHOSEN,
    ERRORS,
    ISOLATION,
    NO_EVIDENCE_NEEDED,
    PART,
    SEARCH,
    SNAPSHOTS,
    UNFINISHED,
    UNTESTED,
    USED,
    StoppingPoint,
    Verdict,
    VerdictOptions,
)
from upskill.version import __version__

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
    looks: dict[str, Looks] = field(
        default_factory=dict[str, Looks]
    )  # by model: the looks before this one
    # By model, where trials are missing: of its outcomes there are only those that errored.
    unfinished: dict[str, Unfinished] = field(default_factory=dict[str, Unfinished])
    used_cases: frozenset[str] = (
        frozenset()
    )  # by a search, to choose the skill; empty for its own runs
    in_search: bool = False  # somebody reads a run that a search compared candidates with: it decides nothing itself
    # The names that each model's provider answered under, and how many trials each answered.
    snapshots: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    warnings: list[str] = field(default_factory=list[str])
    # What shows that the arms were not isolated: then no number of the run means anything.
    invalid: list[tuple[Trial, str]] = field(default_factory=list[tuple[Trial, str]])
    # The trials that a bug in upskill ended, each with its error and its traceback.
    bugs: list[tuple[Trial, str, str]] = field(default_factory=list[tuple[Trial, str, str]])
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
        by_model = self._by_model(self.outcomes)

        def weigh(model: str, models: int = 1) -> Verdict:
            return self._verdict(
                model, by_model[model], self.run.plan.analysis.making_cost, models=models
            )

        return decide_together(by_model, weigh, has_reference=self.plan.reference_skill is not None)

    def _by_model(self, rows: Iterable[Outcome]) -> dict[str, list[Outcome]]:
        by_model: dict[str, list[Outcome]] = {address.name: [] for address in self.plan.models}
        for row in rows:
            by_model.setdefault(row.model, []).append(row)
        return by_model

    def _verdict(
        self,
        model: str,
        outcomes: list[Outcome],
        making_cost: float | None = None,
        cases: Iterable[str] | None = None,
        models: int = 1,
    ) -> Verdict:
        verdict = verdict_so_far(
            self.run.plan,
            outcomes,
            leaked=self.leaked,  # a wall that did not stand for one model stood for none
            looks=self.looks.get(model),
            making_cost=making_cost,
            cases=cases,
            used_cases=self.used_cases,
            models=models,
        )
        if (so_far := self.unfinished.get(model)) and verdict.reason != ISOLATION:
            progress = (so_far.done, so_far.trials)
            verdict = with_advice(replace(verdict.withhold(UNFINISHED), progress=progress))
        elif self.in_search and verdict.reason not in (ERRORS, ISOLATION, UNTESTED):
            verdict = with_advice(replace(verdict.withhold(SEARCH), evidence_needed=None))
        return replace(verdict, model=model)

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
            if verdict.model in embedded and is_too_weak(verdict) and not verdict.replayed
            if (suggestion := next_student(embedded[verdict.model]))
        ]

    def outcomes_of(self, model: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.model == model]

    @property
    def unused(self) -> list[Outcome]:
        """Of cases that no search has used to choose the skill."""
        return [outcome for outcome in self.outcomes if outcome.case not in self.used_cases]

    def weighed(self, model: str) -> list[Outcome]:
        """The outcomes that its verdict counts."""
        counted_cases = next(
            verdict.case_ids for verdict in self.verdicts if verdict.model == model
        )
        return [outcome for outcome in self.outcomes_of(model) if outcome.case in counted_cases]

    @cached_property
    def unused_cases(self) -> frozenset[str]:
        """None unless a search has used the others: who edits a skill by hand may have seen any case fail."""
        suite = self.plan.suite
        if self.used_cases:
            return frozenset(suite.by_id) - self.used_cases
        return frozenset(() if suite.train or suite.part else suite.by_id)

    def by_split(self, *, used: bool) -> dict[str, Verdict]:
        return self.by_cases(
            {case for case in self.plan.suite.by_id if (case not in self.unused_cases) is used}
        )

    def by_cases(self, ids: Collection[str]) -> dict[str, Verdict]:
        """Lifts of each model over some of the cases."""
        by_model = self._by_model(outcome for outcome in self.outcomes if outcome.case in ids)
        return {model: self._verdict(model, rows, cases=ids) for model, rows in by_model.items()}

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
            or any(verdict.reason == ERRORS for verdict in self.verdicts)
            or any(each.errored > MAX_ERROR_RATE * each.done for each in so_far)
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


def verdict_so_far(
    plan: StoredPlan,
    outcomes: list[Outcome],
    *,
    leaked: bool,
    looks: Looks | None = None,
    making_cost: float | None = None,
    cases: Iterable[str] | None = None,
    used_cases: Collection[str] = (),
    models: int = 1,
) -> Verdict:
    """`cases`: those that the outcomes were picked from (None: all). `models`: how many share the error.

    `used_cases`: by a search, to choose the skill. They can show that it hurts; only the others show that it helps.
    """
    weigh = partial(_weigh, plan, leaked=leaked, making_cost=making_cost, models=models)
    if cases is not None:
        return weigh(outcomes, cases, looks, is_whole=False)
    verdict = weigh(outcomes, plan.suite.by_id, looks, is_whole=True)
    is_a_loss = "hurts" in _decisions(verdict) or (
        plan.reference_skill and (verdict.lift or 0.0) <= 0
    )
    if not used_cases or is_a_loss or verdict.reason in (ERRORS, ISOLATION, SNAPSHOTS, UNFINISHED):
        return verdict
    unused = [case for case in plan.suite.by_id if case not in used_cases]
    if not unused:
        is_part = verdict.reason == PART  # of the suite: the others may decide
        return (
            verdict
            if is_part
            else with_advice(replace(verdict.withhold(USED), evidence_needed=None))
        )
    if looks and looks.left_out:
        looks = replace(
            looks, left_out=tuple(row for row in looks.left_out if row.case not in used_cases)
        )
    return weigh([row for row in outcomes if row.case in unused], unused, looks, is_whole=True)


def _weigh(
    plan: StoredPlan,
    outcomes: list[Outcome],
    cases: Iterable[str],
    looks: Looks | None,
    *,
    leaked: bool,
    making_cost: float | None,
    models: int,
    is_whole: bool,
) -> Verdict:
    suite, drawn = plan.suite, as_drawn(plan, outcomes)
    options = VerdictOptions(
        margin=plan.margin,
        anytime=plan.scope,
        stopping_point=stopping_point_of(outcomes, plan.scope, plan.runs, cases),
        making_cost=making_cost,
        tags={case.id: case.tags for case in suite.cases},
        twins=plan.twins,
        has_reference=plan.reference_skill is not None,
        isolation_broken=leaked,
        earlier_looks=len(looks.earlier) if looks else 0,
        replayed=plan.replayed,
        models=models,
        both_scopes=is_whole,
    )
    verdict = compute_verdict(drawn, options)
    # No decision that these cases cannot bear, however large the lift.
    if suite.part and verdict.lift is not None and verdict.reason not in NO_EVIDENCE_NEEDED:
        return as_part(verdict, suite.part, len(suite.cases))
    # Whoever leaves out or edits what a look showed chooses the lift, so what is decided has to hold with it too.
    if looks and looks.left_out != () and is_whole:
        # Rounds that only some of the cases have had are none, so this is no test that may be looked at after each.
        at_once = replace(options, anytime=None)
        whole = compute_verdict([*drawn, *looks.left_out], at_once) if looks.left_out else None
        both = zip(_decisions(verdict), _decisions(whole), strict=True)
        if any(decision not in ("undecided", with_others) for decision, with_others in both):
            return with_advice(replace(verdict.withhold(CHOSEN), evidence_needed=None))
    if (
        are_from_memory(case.metadata for case in suite.cases)
        and verdict.reason not in NO_EVIDENCE_NEEDED
    ):
        return with_advice(replace(verdict.withhold(UNTESTED), evidence_needed=None))
    if plan.scope == "suite" and is_whole and never_varies(outcomes):
        return with_advice(verdict.made_exact(), has_reference=options.has_reference)
    return verdict


def as_drawn(plan: StoredPlan, outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Without the answers of an embedded model that samples: each seed is a draw, so equal answers are no copies."""
    samples = {
        address.name for address in plan.models if address.provider == "local" and plan.temperature
    }
    return [replace(row, answer=0) if row.model in samples else row for row in outcomes]


def _decisions(verdict: Verdict | None) -> tuple[str, str]:
    """On tasks like these, and on exactly these cases."""
    these = verdict.these_cases if verdict else None
    return verdict.decision if verdict else "undecided", these.decision if these else "undecided"


def stopping_point_of(
    outcomes: Iterable[Outcome], scope: Scope | None, runs: int, cases: Iterable[str]
) -> StoppingPoint:
    """The last look is taken once, when every round has scored each of these cases in both arms."""
    if scope != "cases":
        return "open"
    scored = {
        (row.seed, row.case, row.arm)
        for row in outcomes
        if row.passed is not None and row.arm in BOTH_ARMS
    }
    return "last" if len(scored) == runs * len(set(cases)) * len(BOTH_ARMS) else "early"


def evaluation_of(
    store: Store, run: Run, plan: Plan | None = None, *, reported: bool = True
) -> Evaluation:
    """A stored run under the settings it was last evaluated with.

    Whoever is told of it looks at it, so the store counts that look; where trials are missing there is nothing to see.
    """
    run = store.run(run.id)
    unfinished = unfinished_models(store, run) if reported else {}
    snapshots = store.snapshots(run)
    evaluation = Evaluation(
        plan or run.plan.to_plan(),
        run,
        [row for row in store.outcomes(run) if row.passed is None or row.model not in unfinished],
        store.errors(run),
        store.spent(run),
        snapshots=snapshots,
        warnings=list(dict.fromkeys([*mixed_snapshots(snapshots), *run.plan.analysis.warnings])),
        invalid=store.leaks(run),
        bugs=list(islice(store.bugs(run), MAX_BUGS)),
        reviews=store.reviews(run),
        unfinished=unfinished,
        in_search=reported and run.plan.analysis.reported is False and "baseline" in run.plan.arms,
    )
    if reported and run.plan.analysis.reported is not False:
        evaluation.used_cases = evaluation.plan.used_cases
    looks = {
        model: _look_at(store, evaluation, model)
        for model in evaluation.plan.addresses
        if model not in unfinished
    }
    if reported:  # what is compared and not reported adds to no look and allows for none
        evaluation.looks = {model: looks_of(store, run, look) for model, look in looks.items()}
    if reported and run.plan.analysis.reported:
        for verdict in evaluation.verdicts:
            look = looks.get(verdict.model)
            # Without a baseline, too: who knows it from elsewhere sees what a version of the skill adds.
            is_seen = verdict.pairs if "baseline" in run.plan.arms else verdict.skill.scored
            if look and is_seen and not _is_stored(look, verdict):
                shown = {
                    "pairs": verdict.pairs,
                    "decision": verdict.decision,
                    "verdict": verdict.to_dict(),
                }
                try:
                    store.add_look(replace(look, **shown))
                except StoreError:  # somebody else's store, say
                    if plan is not None:
                        raise
                    evaluation.looks[verdict.model] = replace(
                        evaluation.looks[verdict.model], logged=False
                    )
    return evaluation


def _look_at(store: Store, evaluation: Evaluation, model: str) -> Look:
    """The stored look where somebody has seen the same before, otherwise a new one."""
    look = make_look(evaluation.plan, evaluation.run, evaluation.outcomes_of(model), model)
    return next(
        (
            stored
            for stored in store.looks_at(evaluation.run.id)
            if stored.identity == look.identity
        ),
        look,
    )


def _is_stored(look: Look, verdict: Verdict) -> bool:
    """A search may have used some of the cases since somebody looked. What an older upskill decided stays."""
    before, now = (
        (look.verdict.get("pairs"), look.verdict.get("decision")),
        (verdict.pairs, verdict.decision),
    )
    return bool(look.number) and (before == now or look.version != __version__)


def mixed_snapshots(snapshots: Mapping[str, Mapping[str, int]]) -> list[str]:
    return [
        f"{model}: {len(trials)} snapshots answered ("
        + ", ".join(f"{name}: {counted(number, 'trial')}" for name, number in trials.items())
        + "), so the arms may have used different models; --fresh runs all trials again"
        for model, trials in snapshots.items()
        if len(trials) > 1
    ]


def first_results(store: Store, run: Run, seeds: int) -> Iterator[Result]:
    page = Page(seeds * len(run.plan.arms))
    for case in run.plan.suite.cases:
        for model in run.models:
            yield from store.results(run, case.id, model, page=page)


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
