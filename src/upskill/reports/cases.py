"""The cases of a stored run with their answers, worst first, read a case at a time."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property
from statistics import mean
from typing import Any

from upskill.plain import counted
from upskill.reports.report import (
    ArmAnswers,
    CaseAnswers,
    CaseGroup,
    Draw,
    ModelAnswers,
    Outcome,
)
from upskill.reports.trial_rows import author_of, write_arguments
from upskill.runs.planning.plan import CheckFinding, Result, Trial
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Review, Store
from upskill.traces import Step
from upskill.verdicts import outcome as outcomes

WORSE = 0.5  # a rate that is this much lower with the skill
LONG = 400  # characters from which two answers are worth comparing by words
TOO_LONG = 20_000  # characters; comparing words takes minutes
ALIKE = 0.4  # share of words in common, below which a comparison says nothing
STEPS = 5  # all steps of an agent may be this many times as long as one text
MAX_FILES = 20  # of a case
BOUNDS = ("turns", "tokens", "seconds")  # what ends the work of an agent before its answer

TITLES: Mapping[Outcome, str] = {
    "worse": "Worse with the skill",
    "failing": "Still failing",
    "sometimes": "Failing sometimes",
    "fixed": "Fixed by the skill",
    "passing": "Passing either way",
    "missing": "Missing",
}
TITLES_OF_ONE_ARM: Mapping[Outcome, str] = {**TITLES, "failing": "Failing", "passing": "Passing"}
CAUSES: Mapping[str, str] = {
    "length": "cut off at the limit",
    "repetition": "cut off for endless repetition",
    "context": "too long for the model's context",
    "refusal": "refused",
    "empty": "an empty answer",
    "unreadable": "a check could not read the answer",
    "verbose": "right but longer than the case allows",
    "judge": "the judge gave no usable grade",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a run is shown; None: all of it."""

    text: int | None = None  # characters of one text
    failing: int | None = None  # different answers of an arm that fails
    passing: int | None = None  # and of one that passes


NO_LIMITS = Limits()


def limits_of_page(trials: int) -> Limits:
    if trials <= 1_000:
        return Limits(text=4_000, failing=10, passing=10)
    if trials <= 5_000:
        return Limits(text=1_500, failing=3, passing=1)
    return Limits(text=600, failing=1, passing=0)


def read_groups(
    evaluation: Evaluation,
    store: Store,
    clean: Callable[[Iterable[Result]], Iterable[Result]] = iter,
) -> Iterator[CaseGroup]:
    """Groups of cases, worst first; `clean` takes secrets out of results."""
    run = evaluation.run
    limits = limits_of_page(run.passed + run.failed + run.errored)
    return CaseReader(evaluation, store, limits, clean).groups()


@dataclass(frozen=True)
class CaseReader:
    evaluation: Evaluation
    store: Store
    limits: Limits = NO_LIMITS
    clean: Callable[[Iterable[Result]], Iterable[Result]] = iter
    models: Collection[str] = ()  # empty: all
    arms: Collection[str] = ()

    def ids(self) -> dict[Outcome, list[str]]:
        """Cases by outcome, worst first, in the order of the suite."""
        ids: dict[Outcome, list[str]] = {outcome: [] for outcome in TITLES}
        for case in self.evaluation.run.plan.suite.cases:
            ids[self.outcome(case.id)].append(case.id)
        return ids

    def groups(self) -> Iterator[CaseGroup]:
        for outcome, group in self.ids().items():
            if group:
                yield CaseGroup(
                    outcome=outcome,
                    title=self.titles[outcome],
                    cases=tuple(map(self.case, group)),
                )

    def outcome(self, case_id: str) -> Outcome:
        return outcome_of(self._marks.get(case_id, {}), self._arms)

    @cached_property
    def titles(self) -> Mapping[Outcome, str]:
        by_models = (by_model.values() for by_model in self._marks.values())
        compares = any("baseline" in by_arm for by_model in by_models for by_arm in by_model)
        return TITLES if compares else TITLES_OF_ONE_ARM

    def case(self, case_id: str) -> CaseAnswers:
        run = self.evaluation.run
        number, case = self._numbers[case_id]
        # Of a large run only failing answers are shown, so the others are not read.
        results = self.clean(self.store.results(run, case_id, failed=self.limits.passing == 0))
        by_arm: dict[tuple[str, str], list[Result]] = {}
        for result in results:
            trial = result.trial
            by_arm.setdefault((trial.model, trial.arm), []).append(result)
        marks = self._marks.get(case_id, {})
        models = tuple(
            self._model(model, marks[model], by_arm) for model in run.models if model in marks
        )
        cutter = _Cutter(self.limits.text)
        return CaseAnswers(
            id=case.id,
            number=number,
            prompt=cutter.cut(case.prompt, "the prompt"),
            outcome=outcome_of(marks, self._arms),
            models=models,
            tags=case.tags,
            reference=cutter.cut(case.reference, "the reference"),
            expected=cutter.cut(case.expected_output, "the expected output"),
            files={
                name: cutter.cut(text, "a file")
                for name, text in list(case.files.items())[:MAX_FILES]
            },
            checks=tuple(
                (name, cutter.cut(write_arguments(check), "a check"))
                for name, check in zip(case.check_names, case.checks, strict=True)
            ),
            settings=tuple(self._settings(case)),
            left_out=tuple(cutter.left_out),
            command=f"upskill show {run.id} --case {shlex.quote(case.id)} --json",
        )

    def _model(
        self,
        model: str,
        marks: Mapping[str, Sequence[bool | None]],
        results: Mapping[tuple[str, str], list[Result]],
    ) -> ModelAnswers:
        arms = tuple(
            self._arm(arm, marks[arm], results.get((model, arm), ()))
            for arm in self._arms
            if arm in marks
        )
        return ModelAnswers(
            model=model,
            outcome=outcome_of({model: marks}, self._arms),
            arms=arms,
            diff=() if self.limits.passing == 0 else compare_words(arms),
        )

    def _arm(self, arm: str, marks: Sequence[bool | None], results: Iterable[Result]) -> ArmAnswers:
        is_passed = all(marks)
        limit = self.limits.passing if is_passed else self.limits.failing
        draws = sorted(self._merge(results), key=lambda draw: _ORDER[draw.passed])
        different = len(draws) if self.limits.passing != 0 else len(marks)
        shown = draws[:limit]
        return ArmAnswers(
            arm=arm,
            label=self._labels[arm],
            outcomes=tuple(marks),
            draws=tuple(shown),
            left_out=different - len(shown),
            is_control=arm not in ("baseline", "skill"),
        )

    def _merge(self, results: Iterable[Result]) -> list[Draw]:
        """Draws with equal texts, findings and steps are one."""
        draws: dict[object, Draw] = {}
        for result in results:
            steps = result.trace.steps if result.trace else ()
            untimed = repr([replace(step, seconds=None, at="") for step in steps])
            key = (result.passed, result.findings, result.error, result.cause, untimed)
            draw = self._draw(result)
            if key in draws:
                other = draws[key]
                reviewed = other if other.review else draw
                draw = replace(
                    other,
                    seeds=(*other.seeds, *draw.seeds),
                    mark=reviewed.mark,
                    note=reviewed.note,
                )
            draws[key] = draw
        return list(draws.values())

    def _draw(self, result: Result) -> Draw:
        trial, trace, usage = result.trial, result.trace, result.usage
        review = self._reviews.get(trial)
        cutter = _Cutter(self.limits.text)
        answer = cutter.cut(trace.answer, "the answer") if trace else None
        findings = tuple(
            CheckFinding(
                each.check, each.passed, cutter.cut(each.reason, "a finding"), each.decides
            )
            for each in result.findings
        )
        problems = [result.error, f"INVALID: {result.leak}" if result.leak else ""]
        return Draw(
            passed=result.passed,
            seeds=(trial.seed,),
            answer=answer,
            findings=findings,
            error=cutter.cut("\n".join(filter(None, problems)), "the error"),
            cause=_why(result),
            steps=tuple(cutter.steps(trace.steps)) if trace and acts(trace.steps) else (),
            left_out=tuple(cutter.left_out),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            seconds=result.seconds,
            cost_usd=usage.cost_usd,
            activated=result.activated,
            mark=review.verdict if review else "",
            note=review.note if review else "",
        )

    def _settings(self, case: StoredCase) -> Iterator[tuple[str, str]]:
        plan = self.evaluation.run.plan
        yield "Author", author_of(case, plan.suite.source)
        if plan.purpose == "eval":
            is_fresh = case.id in self._fresh
            yield "Seen", "no, it is fresh" if is_fresh else "with another text of the skill"
        optional: dict[str, Any] = {
            "Held out": "yes" if case.held_out else "",
            "Group": case.group,
            "Output file": case.output_file,
            "At most": " ".join(
                counted(limit, noun)
                for limit, noun in ((case.max_output_tokens, "token"), (case.max_words, "word"))
                if limit is not None
            ),
            "Evidence": ", ".join(case.evidence),
        }
        for name, value in optional.items():
            if value:
                yield name, str(value)

    @cached_property
    def _numbers(self) -> dict[str, tuple[int, StoredCase]]:
        cases = self.evaluation.run.plan.suite.cases
        return {case.id: (number, case) for number, case in enumerate(cases, start=1)}

    @cached_property
    def _arms(self) -> tuple[str, ...]:
        """With the skill first, then without, then controls."""
        arms: list[str] = [
            arm for arm in self.evaluation.run.plan.arms if arm in (self.arms or _ARMS)
        ]
        return tuple(sorted(arms, key=_ARMS.index))

    @cached_property
    def _labels(self) -> dict[str, str]:
        labels = self.evaluation.plan.labels
        if labels["baseline"] == "baseline":
            return {**labels, "skill": "with the skill", "baseline": "without"}
        return labels

    @cached_property
    def _fresh(self) -> frozenset[str]:
        return self.evaluation.fresh

    @cached_property
    def _reviews(self) -> dict[Trial, Review]:
        return {review.trial: review for review in self.evaluation.reviews}

    @cached_property
    def _marks(self) -> Mapping[str, Mapping[str, Mapping[str, list[bool | None]]]]:
        """Outcomes by case, model and arm, in the order of their seeds.

        While trials of a model are missing, only those with the skill: side by side, the arms would show how they
        differ so far.
        """
        unfinished = self.evaluation.unfinished
        rows: Iterable[outcomes.Outcome] = self.evaluation.outcomes
        if unfinished:
            rows = self.store.outcomes(self.evaluation.run)
        marks: dict[str, dict[str, dict[str, list[bool | None]]]] = {}
        for row in rows:
            is_chosen = row.arm in self._arms and (not self.models or row.model in self.models)
            if is_chosen and (row.model not in unfinished or row.arm == self._arms[0]):
                by_arm = marks.setdefault(row.case, {}).setdefault(row.model, {})
                by_arm.setdefault(row.arm, []).append(row.passed)
        return marks


_ARMS = ("skill", "baseline", "placebo", "baseline_repeat")
_ORDER = {False: 0, None: 1, True: 2}


def outcome_of(
    marks: Mapping[str, Mapping[str, Sequence[bool | None]]], arms: Sequence[str]
) -> Outcome:
    """Of a case, from the outcomes of its draws by model and arm. Missing draws are ignored."""
    shown = arms[0] if arms else "skill"
    rates: list[float] = []
    rates_before: list[float] = []
    for by_arm in marks.values():
        after = _rate(by_arm.get(shown, ()))
        before = _rate(by_arm.get("baseline", ())) if shown == "skill" else None
        if after is not None:
            rates.append(after)
        if before is not None:
            rates_before.append(before)
        if after is not None and before is not None and after <= before - WORSE:
            return "worse"
    if not rates:
        return "missing"
    rate = mean(rates)
    if rate < 0.5:
        return "failing"
    if rate < 1:
        return "sometimes"
    if rates_before and mean(rates_before) < 1:
        return "fixed"
    return "passing"


def _rate(marks: Sequence[bool | None]) -> float | None:
    graded = [passed for passed in marks if passed is not None]
    return mean(graded) if graded else None


def _why(result: Result) -> str:
    """What ended an answer that could not pass."""
    stop = result.trace.stop if result.trace else ""
    if stop in BOUNDS:
        return f"stopped at its limit on {stop}"
    return CAUSES.get(result.cause, "")


def acts(steps: Iterable[Step]) -> bool:
    """Whether there is more to see than a question and its answer."""
    return any(step.kind in ("tool", "thinking") for step in steps)


def compare_words(arms: Sequence[ArmAnswers]) -> tuple[tuple[str, str], ...]:
    """The first answers without and with the skill, where both are long."""
    answers = {arm.arm: arm.draws[0].answer or "" for arm in arms if arm.draws}
    before, after = answers.get("baseline", ""), answers.get("skill", "")
    lengths = len(before), len(after)
    if min(lengths) < LONG or max(lengths) > TOO_LONG:
        return ()
    return tuple(word_diff(before, after))


def word_diff(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Words as ("=", both), ("-", before) and ("+", after); nothing where they have little in common."""
    words = [re.findall(r"\s*\S+", text) for text in (before, after)]
    matcher = SequenceMatcher(None, words[0], words[1])
    if matcher.quick_ratio() < ALIKE or matcher.ratio() < ALIKE:
        return
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        removed = "".join(words[0][start:end])
        added = "".join(words[1][other_start:other_end])
        if kind == "equal":
            yield "=", added
            continue
        if removed:
            yield "-", removed
        if added:
            yield "+", added


@dataclass
class _Cutter:
    """Cuts long texts and remembers what it left out."""

    most: int | None
    cuts: Counter[str] = field(default_factory=Counter[str])
    steps_left_out: int = 0

    def cut(self, text: str, of: str) -> str:
        if self.most is None or len(text) <= self.most:
            return text
        self.cuts[of] += len(text) - self.most
        end = self.most // 3
        return f"{text[: self.most - end]}\n … \n{text[-end:]}"

    def steps(self, steps: Sequence[Step]) -> Iterator[Step]:
        """Steps until they are too long together, each with its number as findings cite it."""
        room = None if self.most is None else STEPS * self.most
        for number, step in enumerate(steps):
            arguments = {
                name: self.cut(value, "the steps") if isinstance(value, str) else value
                for name, value in step.arguments.items()
            }
            shown = replace(
                step,
                text=self.cut(step.text, "the steps"),
                arguments=arguments,
                output=self.cut(step.output, "the steps"),
            )
            if room is not None:
                room -= len(shown.text) + len(shown.output) + len(write_arguments(arguments))
                if room < 0:
                    self.steps_left_out = len(steps) - number
                    return
            yield shown

    @property
    def left_out(self) -> Iterator[str]:
        for of, characters in self.cuts.items():
            yield f"{counted(characters, 'character')} of {of}"
        if self.steps_left_out:
            yield counted(self.steps_left_out, "step")
