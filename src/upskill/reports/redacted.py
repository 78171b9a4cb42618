"""A stored run without secrets, to share: `upskill export --redact`, `upskill report --redact`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from upskill.plain import as_list
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Run
from upskill.traces.redaction.redact import Redactor, describe_counts, redact_trace

CASE_TEXTS = (
    "prompt",
    "checks",
    "files",
    "reference",
    "expected_output",
    "evidence",
    "right",
    "wrong",
    "metadata",
)


def describe_contents(redacted: Mapping[str, int] | None) -> str:
    """What to know before you share a file; None: it was not redacted."""
    if redacted is None:
        return "It contains full prompts and answers; --redact removes secrets."
    done = describe_counts(redacted)
    return f"{done[0].upper()}{done[1:]}; read it before you share it."


class RunRedactor:
    """Removes secrets from everything in a run; one that was found is also removed from later trials."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.values: dict[str, str] = {}

    def run(self, run: Run) -> Run:
        skill, suite = run.plan.skill, run.plan.suite
        texts = {
            name: self._clean(getattr(skill, name)) for name in ("description", "body", "meta")
        }
        cases = tuple(map(self._case, suite.cases))
        analysis = run.plan.analysis
        said = {name: self._clean(getattr(analysis, name)) for name in ("halted", "stopped")}
        plan = replace(
            run.plan,
            skill=replace(skill, **texts),
            suite=replace(suite, cases=cases),
            analysis=replace(analysis, **said),
        )
        return replace(run, plan=plan)

    def _case(self, case: StoredCase) -> StoredCase:
        fields = {name: self._clean(getattr(case, name)) for name in CASE_TEXTS}
        tuples = {
            name: tuple(items)
            for name, value in fields.items()
            if (items := as_list(value)) is not None
        }
        return replace(case, **(fields | tuples))

    def results(self, results: Iterable[Result]) -> Iterator[Result]:
        return map(self._result, results)

    def _result(self, result: Result) -> Result:
        redactor = Redactor(self.counts, self.values)
        return replace(
            result,
            trace=redact_trace(result.trace, redactor).trace if result.trace else None,
            findings=tuple(
                replace(each, reason=self._clean(each.reason, redactor)) for each in result.findings
            ),
            **{
                name: self._clean(getattr(result, name), redactor)
                for name in ("error", "leak", "traceback")
            },
        )

    def evaluation(self, evaluation: Evaluation) -> Evaluation:
        """The same figures, computed from stored results, with redacted texts."""
        assert evaluation.verdicts is not None  # computed before the texts of the plan change
        evaluation.run = self.run(evaluation.run)
        evaluation.plan = evaluation.run.plan.to_plan()
        for name in ("bugs", "errors", "invalid"):
            rows = [tuple(map(self._clean, row)) for row in getattr(evaluation, name)]
            setattr(evaluation, name, rows)
        evaluation.warnings = self._clean(evaluation.warnings)
        evaluation.reviews = [
            replace(review, note=self._clean(review.note)) for review in evaluation.reviews
        ]
        return evaluation

    def _clean(self, value: Any, redactor: Redactor | None = None) -> Any:
        redactor = redactor or Redactor(self.counts, self.values)
        return redactor.replace_known(redactor.value(value))
