"""A stored run without secrets, to share: `upskill export --redact`, `upskill report --redact`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from upskill.runs.planning.plan import Result
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
        plan = run.plan
        suite = replace(
            plan.suite, cases=tuple(self._in(each, CASE_TEXTS) for each in plan.suite.cases)
        )
        skill = self._in(plan.skill, ("description", "body", "meta"))
        analysis = self._in(plan.analysis, ("halted", "stopped"))
        return replace(run, plan=replace(plan, skill=skill, suite=suite, analysis=analysis))

    def results(self, results: Iterable[Result]) -> Iterator[Result]:
        return map(self._result, results)

    def _result(self, result: Result) -> Result:
        redactor = Redactor(self.counts, self.values)
        trace = redact_trace(result.trace, redactor).trace if result.trace else None
        findings = tuple(self._in(each, ("reason",), redactor) for each in result.findings)
        cleaned = self._in(result, ("error", "leak", "traceback"), redactor)
        return replace(cleaned, trace=trace, findings=findings)

    def evaluation(self, evaluation: Evaluation) -> Evaluation:
        """The same figures, computed from stored results, with redacted texts."""
        assert evaluation.verdicts is not None  # computed before the texts of the plan change
        evaluation.run = self.run(evaluation.run)
        evaluation.plan = evaluation.run.plan.to_plan()
        for name in ("bugs", "errors", "invalid"):
            rows = [tuple(map(self._clean, row)) for row in getattr(evaluation, name)]
            setattr(evaluation, name, rows)
        evaluation.warnings = self._clean(evaluation.warnings)
        evaluation.reviews = [self._in(review, ("note",)) for review in evaluation.reviews]
        return evaluation

    def _in(self, item: Any, names: Iterable[str], redactor: Redactor | None = None) -> Any:
        """A frozen record without secrets in these fields."""
        fields = {name: self._clean(getattr(item, name), redactor) for name in names}
        return replace(item, **fields)

    def _clean(self, value: Any, redactor: Redactor | None = None) -> Any:
        redactor = redactor or Redactor(self.counts, self.values)
        cleaned = redactor.replace_known(redactor.value(value))
        return tuple(cleaned) if isinstance(value, tuple) else cleaned
