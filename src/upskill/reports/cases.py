"""The cases of a stored run with their answers, worst first, read a case at a time."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import islice
from statistics import mean
from typing import Any, cast

from upskill.plain import as_mapping, counted, fields_of
from upskill.reports.report import (
    ArmAnswers,
    CaseAnswers,
    CaseGroup,
    Draw,
    ModelAnswers,
    Outcome,
)
from upskill.reports.trial_rows import author_of
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Store
from upskill.verdicts.outcome import Cause
from upskill.verdicts.outcome import Outcome as TrialOutcome

WORSE = 0.5  # a rate that is this much lower with the skill
LONG = 400  # characters from which two answers are worth comparing by words
TOO_LONG = 20_000  # characters; comparing words takes minutes
ALIKE = 0.4  # share of words in common, below which a comparison says nothing
MAX_FILES = 20  # of a case
BOUNDS = ("turns", "tokens", "seconds")  # what ends the work of an agent before its answer
ARMS = ("skill", "baseline", "placebo", "baseline_repeat")
ORDER = {False: 0, None: 1, True: 2}  # of draws

TITLES: Mapping[Outcome, str] = {
    "worse": "Worse with the skill",
    "failing": "Still failing",
    "sometimes": "Failing sometimes",
    "fixed": "Fixed by the skill",
    "passing": "Passing either way",
    "missing": "Missing",
}
TITLES_OF_ONE_ARM: Mapping[Outcome, str] = {**TITLES, "failing": "Failing", "passing": "Passing"}
CAUSES: Mapping[Cause, str] = {
    "length": "cut off at the limit",
    "repetition": "cut off for endless repetition",
    "context": "too long for the model's context",
    "refusal": "refused by the model or its provider",
    "empty": "an empty answer",
    "unreadable": "not readable by a check",
    "verbose": "right but verbose: longer than the case allows",
    "judge": "the judge gave no usable grade",
}
Clean = Callable[[Iterable[Result]], Iterable[Result]]  # takes secrets out
Marks = Mapping[str, Mapping[str, Sequence[bool | None]]]  # outcomes by model and arm


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a run is shown; None: all of it."""

    text: int | None = None  # characters of one text
    failing: int | None = None  # different answers of an arm that fails
    passing: int | None = None  # and of one that passes
    steps: int | None = None  # of an agent


NO_LIMITS = Limits()


def limits_of_page(trials: int) -> Limits:
    if trials <= 1_000:
        return Limits(text=4_000, failing=10, passing=10, steps=100)
    if trials <= 5_000:
        return Limits(text=1_500, failing=3, passing=1, steps=30)
    return Limits(text=600, failing=1, passing=0, steps=10)


@dataclass(frozen=True)
class CaseReader:
    evaluation: Evaluation
    store: Store
    limits: Limits = NO_LIMITS
    clean: Clean = iter
    models: Collection[str] = ()  # whose answers are read; empty: all
    arms: Collection[str] = ()  # likewise
    only_failed: bool = False

    def groups(self) -> Iterator[CaseGroup]:
        for outcome, ids in self.ids().items():
            if ids:
                yield self.group(outcome, map(self.case, ids))

    def ids(self) -> dict[Outcome, list[str]]:
        """Cases by outcome, worst first, in the order of the suite."""
        ids: dict[Outcome, list[str]] = {outcome: [] for outcome in TITLES}
        for case_id in self._numbers:
            ids[outcome_of(self._marks.get(case_id, {}), self._arms)].append(case_id)
        return ids

    def group(self, outcome: Outcome, cases: Iterable[CaseAnswers]) -> CaseGroup:
        by_models = (by_model.values() for by_model in self._marks.values())
        compares = any("baseline" in by_arm for by_model in by_models for by_arm in by_model)
        titles = TITLES if compares else TITLES_OF_ONE_ARM
        return CaseGroup(outcome=outcome, title=titles[outcome], cases=tuple(cases))

    def case(self, case_id: str) -> CaseAnswers:
        run = self.evaluation.run
        case = run.plan.suite.by_id[case_id]
        # Of a large run only failing answers are shown, so the others are not read.
        only_failed = self.only_failed or self.limits.passing == 0
        results: dict[tuple[str, str], list[Result]] = {}
        for result in self.clean(self.store.results(run, case_id, failed=only_failed)):
            trial = result.trial
            results.setdefault((trial.model, trial.arm), []).append(result)
        marks = self._marks.get(case_id, {})
        cuts = _Cuts(self.limits.text)
        models: list[ModelAnswers] = []
        for model in run.models:
            by_arm = marks.get(model, {})
            arms = tuple(
                self._arm(arm, by_arm[arm], results.get((model, arm), ()), cuts)
                for arm in self._arms
                if arm in by_arm and (not self.arms or arm in self.arms)
            )
            if by_arm:
                outcome = outcome_of({model: by_arm}, self._arms)
                diff = () if self.limits.passing == 0 else compare_words(arms)
                models.append(ModelAnswers(model=model, outcome=outcome, arms=arms, diff=diff))
        files = dict(islice(case.files.items(), MAX_FILES))
        case = cuts.cut(replace(case, files=files))
        return CaseAnswers(
            case=case,
            number=self._numbers[case_id],
            outcome=outcome_of(marks, self._arms),
            models=tuple(models),
            facts=self._facts(case),
            left_out=str(cuts),
            command=f"upskill show {run.id} --case {shlex.quote(case_id)} --json",
        )

    def _arm(
        self, arm: str, marks: Sequence[bool | None], results: Iterable[Result], cuts: _Cuts
    ) -> ArmAnswers:
        draws = sorted(self._merge(results, cuts), key=lambda draw: ORDER[draw.result.passed])
        different = len(marks) if self.limits.passing == 0 else len(draws)
        shown = draws[: self.limits.passing if all(marks) else self.limits.failing]
        cuts.answers += different - len(shown)
        return ArmAnswers(
            arm=arm,
            label=self._labels[arm],
            outcomes=tuple(marks),
            draws=tuple(shown),
            is_control=arm not in ("baseline", "skill"),
        )

    def _merge(self, results: Iterable[Result], cuts: _Cuts) -> Iterable[Draw]:
        """Draws with equal texts, findings and steps are one."""
        draws: dict[object, Draw] = {}
        for result in results:
            steps = result.trace.steps if result.trace else ()
            untimed = repr([replace(step, seconds=None, at="") for step in steps])
            key = (result.passed, result.findings, result.error, result.cause, untimed)
            review = self._reviews.get(result.trial)
            draw = draws[key] if key in draws else self._draw(result, cuts)
            draw = replace(draw, seeds=(*draw.seeds, result.trial.seed))
            if review and not draw.review:
                draw = replace(draw, mark=review.verdict, note=review.note)
            draws[key] = draw
        return draws.values()

    def _draw(self, result: Result, cuts: _Cuts) -> Draw:
        trace = result.trace
        cause = CAUSES[result.cause] if result.cause else ""
        if trace and trace.stop in BOUNDS:
            cause = f"stopped at its limit on {trace.stop}"
        # The answer is the last step, too.
        answer = _Cuts(self.limits.text).cut(trace.answer) if trace else None
        if trace and self.limits.steps:
            dropped = trace.steps[self.limits.steps :]
            cuts.characters += sum(len(step.text) + len(step.output) for step in dropped)
            trace = replace(trace, steps=trace.steps[: self.limits.steps])
        return Draw(result=cuts.cut(replace(result, trace=trace)), answer=answer, cause=cause)

    def _facts(self, case: StoredCase) -> dict[str, str]:
        plan = self.evaluation.run.plan
        seen = ""
        if plan.purpose == "eval":
            seen = "no, it is fresh" if case.id in plan.fresh else "with another text of the skill"
        limits = (case.max_output_tokens, "token"), (case.max_words, "word")
        found = {
            "Author": author_of(case, plan.suite.source),
            "Seen": seen,
            "Held out": "yes" if case.held_out else "",
            "Group": case.group,
            "Output file": case.output_file,
            "Expected": case.expected_output if case.reference else "",
            "At most": " ".join(counted(limit, noun) for limit, noun in limits if limit),
            "Evidence": ", ".join(case.evidence),
        }
        return {name: value for name, value in found.items() if value}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        cases = self.evaluation.run.plan.suite.cases
        return {case.id: number for number, case in enumerate(cases, start=1)}

    @cached_property
    def _arms(self) -> Sequence[str]:
        """With the skill first, then without, then controls."""
        return [arm for arm in ARMS if arm in self.evaluation.run.plan.arms]

    @cached_property
    def _labels(self) -> Mapping[str, str]:
        labels = self.evaluation.plan.labels
        if labels["baseline"] == "baseline":
            return {**labels, "skill": "with the skill", "baseline": "without"}
        return labels

    @cached_property
    def _reviews(self) -> Mapping[Any, Any]:
        return {review.trial: review for review in self.evaluation.reviews}

    @cached_property
    def _marks(self) -> Mapping[str, Marks]:
        """Outcomes by case, model and arm, in the order of their seeds.

        While trials of a model are missing, only those with the skill: side by side, the arms would show how they
        differ so far.
        """
        unfinished = self.evaluation.unfinished
        rows: Iterable[TrialOutcome] = self.evaluation.outcomes
        if unfinished:
            rows = self.store.outcomes(self.evaluation.run)
        marks: dict[str, dict[str, dict[str, list[bool | None]]]] = {}
        for row in rows:
            is_chosen = not self.models or row.model in self.models
            if is_chosen and (row.model not in unfinished or row.arm == self._arms[0]):
                by_arm = marks.setdefault(row.case, {}).setdefault(row.model, {})
                by_arm.setdefault(row.arm, []).append(row.passed)
        return marks


def outcome_of(marks: Marks, arms: Sequence[str]) -> Outcome:
    """Of a case. Missing draws are ignored."""
    rates = [*_rates(marks, arms[0])]
    if not rates:
        return "missing"
    before = {model: rate for model, rate in _rates(marks, "baseline") if arms[0] == "skill"}
    if any(rate <= before.get(model, 0) - WORSE for model, rate in rates):
        return "worse"
    rate = mean(rate for _, rate in rates)
    if rate < 0.5:
        return "failing"
    if rate < 1:
        return "sometimes"
    return "fixed" if before and mean(before.values()) < 1 else "passing"


def _rates(marks: Marks, arm: str) -> Iterator[tuple[str, float]]:
    for model, by_arm in marks.items():
        graded = [passed for passed in by_arm.get(arm, ()) if passed is not None]
        if graded:
            yield model, mean(graded)


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
class _Cuts:
    """Cuts long texts, and counts what is left out of a case."""

    most: int | None
    characters: int = 0
    answers: int = 0

    def __str__(self) -> str:
        counts = {"character": self.characters, "answer": self.answers}
        return " and ".join(counted(count, noun) for noun, count in counts.items() if count)

    def cut(self, value: Any) -> Any:
        """A text, or a record with all texts in it."""
        if self.most is None:
            return value
        if isinstance(value, str) and len(value) > self.most:
            self.characters += len(value) - self.most
            end = self.most // 3
            return f"{value[: self.most - end]}\n … \n{value[-end:]}"
        if (named := as_mapping(value)) is not None:
            return {name: self.cut(item) for name, item in named.items()}
        if isinstance(value, tuple | list):
            items = cast("Sequence[Any]", value)
            return tuple(map(self.cut, items))
        if is_dataclass(value) and not isinstance(value, type):
            parts = fields_of(value).items()
            return replace(value, **{name: self.cut(part) for name, part in parts})
        return value
