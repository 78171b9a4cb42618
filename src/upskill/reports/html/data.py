"""A run as the page's plain data: `summary` without trials, `trial_row` for the list, `trial_to_page` for one trial."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from upskill.authoring.saving.provenance import Provenance, is_fact, sourced_lines
from upskill.authoring.trigger.metrics import TriggerMetrics
from upskill.errors import UsageError
from upskill.reports import json as json_report
from upskill.reports.numbers import INVALID, percent
from upskill.reports.pictures import PictureOptions, lift_forest, pareto, pass_rates
from upskill.reports.trial_rows import author_of, finding_row, outcome_row, write_arguments
from upskill.reports.view import ACTIVATION_CAVEAT, RunView, trigger_metrics, view_of
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.results.evaluation import Evaluation
from upskill.traces import Step
from upskill.verdicts.outcome import Outcome
from upskill.version import __version__

MAX_TEXT = 20_000  # characters of one answer, or one output of a tool, that a page holds
MAX_PROMPT = 20_000
WIDTHS = {"wide": 520, "narrow": 310}  # that pictures are drawn in
MAX_FILES = 20  # of a case that are shown
MAX_SEEDS = 500  # that a case can be opened with
MAX_STEPS, MIN_STEPS = 400, 10  # of an agent
# Of the list of trials.
COLUMNS = (
    *(
        "case",
        "model",
        "arm",
        "seed",
        "outcome",
        "cause",
        "input_tokens",
        "output_tokens",
        "cost_usd",
        "seconds",
    ),
    *("activated", "turns", "tool_calls"),
)


def summary(evaluation: Evaluation) -> dict[str, Any]:
    """A run without its trials. `document` has the numbers of `--json`."""
    run, plan = evaluation.run, evaluation.run.plan
    labels = evaluation.plan.labels
    rounds = max(map(plan.rounds_of, run.models), default=1)
    document, view = json_report.to_dict(evaluation), view_of(evaluation)
    triggered = trigger_metrics(evaluation)
    return {
        "upskill": __version__,
        "document": document,
        "run": {
            **{name: getattr(run, name) for name in ("id", "skill", "created", "trials")},
            "missing": run.errored,
            "agent": plan.agent,
            "draws": view.draws,
            "description": plan.skill.description,
            "scored": run.passed + run.failed,
            "rounds": rounds,
            "seeds": [page_seed(plan.seed + number) for number in range(min(rounds, MAX_SEEDS))],
            "invalid": evaluation.leaked,
        },
        "names": evaluation.full_names,
        "arms": {arm: view.arms[arm] for arm in plan.arms},
        "headline": _headline(evaluation, view, triggered),
        "conclusions": [_conclude_trigger(metrics, run.skill) for metrics in triggered]
        or [verdict.line for verdict in view.verdicts],
        "trigger": [metrics.to_dict() for metrics in triggered],
        "findings": [] if triggered else list(view.findings),
        **{name: list(getattr(view, name)) for name in ("choices", "diagnosis")},
        "caveats": list(view.caveats),
        "problems": list(view.problems),
        "not_run": view.not_run,  # one of the problems, but not while the run is in progress
        "authors": view.authors,
        "cases": cases_to_page(evaluation),
        "matrix": _matrix(evaluation),
        "control_arms": _control_arms(evaluation),
        "activity": {model: _activity(evaluation.outcomes_of(model)) for model in run.models},
        "caveat": ACTIVATION_CAVEAT,
        "skill": _skill(evaluation),
        "pictures": {  # as SVG that takes its colors from the style of the page
            screen: {
                "forest": lift_forest(document, options),
                "bars": pass_rates(document, options),
                "pareto": pareto(document, options),
            }
            for screen, width in WIDTHS.items()
            for options in [
                PictureOptions(
                    width=width, style=False, baseline=labels["baseline"], skill=labels["skill"]
                )
            ]
        },
    }


def _headline(evaluation: Evaluation, view: RunView, triggered: Sequence[TriggerMetrics]) -> str:
    """The sentence of a single model, or how many models the skill helps; for queries, how it triggers."""
    skill = evaluation.run.skill
    if len(triggered) == 1 and not evaluation.leaked:
        return _conclude_trigger(triggered[0], skill)
    if triggered and not evaluation.leaked:
        return f"How {skill} triggers with {len(triggered)} models."
    if (
        len(evaluation.unfinished) == len(view.verdicts) and not evaluation.leaked
    ):  # how many trials have run is said below
        return f"No verdict on {skill} yet."
    if evaluation.leaked:
        return INVALID
    if len(view.verdicts) == 1:
        return f"{skill}: {view.verdicts[0].line}"
    counts = Counter(verdict.decision for verdict in view.verdicts)
    decisions = ", ".join(f"{decision} ({count})" for decision, count in counts.items())
    return f"{skill} with {len(view.verdicts)} models: {decisions}"


def _conclude_trigger(metrics: TriggerMetrics, skill: str) -> str:
    kinds = (("needs", metrics.recall), ("does not need", metrics.false_triggers))
    shares = [
        f"{percent(rate.value)} of the runs where a query {needs} it"
        for needs, rate in kinds
        if rate
    ]
    return f"{metrics.model} activates {skill} in {' and in '.join(shares) or 'no run: none was scored'}."


def _control_arms(evaluation: Evaluation) -> list[dict[str, Any]]:
    arms = [arm for arm in evaluation.run.plan.arms if arm not in ("baseline", "skill")]
    control_arms: list[dict[str, Any]] = []
    for model, arm in product(evaluation.run.models, arms):
        rows = [row for row in evaluation.outcomes_of(model) if row.arm == arm]
        passed = Counter(row.passed for row in rows)
        counts = {"passed": passed[True], "failed": passed[False], "missing": passed[None]}
        causes = Counter(row.cause for row in rows if row.passed is False and row.cause)
        control_arms.append({"model": model, "arm": arm, **counts, "causes": dict(causes)})
    return control_arms


def cases_to_page(evaluation: Evaluation, most: int = MAX_PROMPT) -> list[dict[str, Any]]:
    """Texts longer than `most` characters are cut and say how long they were."""
    suite, fresh = evaluation.run.plan.suite, evaluation.fresh
    return [
        _case(case, suite.source, most) | {"seen": case.id not in fresh} for case in suite.cases
    ]


def _case(case: StoredCase, source: str, most: int) -> dict[str, Any]:
    files = list(case.files.items())
    return {
        "id": case.id,
        "prompt": cut(case.prompt, most),
        "tags": list(case.tags),
        "author": author_of(case, source),
        "checks": [
            [next(iter(check)), cut(write_arguments(check), most)["text"]] for check in case.checks
        ],
        "files": [[name, cut(text, most)] for name, text in files[:MAX_FILES]],
        "more_files": max(0, len(files) - MAX_FILES),
        "reference": cut(case.reference, most),
        "expected": cut(case.expected_output, most),
    }


def _matrix(evaluation: Evaluation) -> list[list[list[list[int]]]]:
    """Trials passed, failed and missing by case, model and arm, in the order of the plan."""
    counts = Counter((row.case, row.model, row.arm, row.passed) for row in evaluation.outcomes)
    plan, models = evaluation.run.plan, evaluation.run.models
    return [
        [
            [
                [counts[case.id, model, arm, passed] for passed in (True, False, None)]
                for arm in plan.arms
            ]
            for model in models
        ]
        for case in plan.suite.cases
    ]


def _activity(outcomes: Iterable[Outcome]) -> dict[str, int] | None:
    """How many trials were offered the skill, opened it, and then passed; None if nothing could be opened."""
    offered = [
        row
        for row in outcomes
        if row.arm == "skill" and row.activated is not None and row.passed is not None
    ]
    if not offered:
        return None
    opened = [row for row in offered if row.activated]
    return {
        "offered": len(offered),
        "opened": len(opened),
        "opened_passed": sum(bool(row.passed) for row in opened),
    }


def _skill(evaluation: Evaluation) -> dict[str, Any]:
    skill = evaluation.plan.skill
    try:
        meta = Provenance.of(skill)
        lines = [[line.text, list(line.ids), line.is_own] for line in sourced_lines(skill)]
        facts = sum(map(is_fact, skill.body.splitlines()))
    except UsageError:  # a broken file must not hide the skill
        meta, lines, facts = (
            Provenance(),
            [[line, list[str](), False] for line in skill.body.splitlines()],
            0,
        )
    return {
        "lines": lines,
        "facts": facts,
        "recorded": bool(meta.sources),
        "evidence": {
            name: {key: cut(text, 2_000)["text"] for key, text in row.items()}
            for name, row in meta.evidence.items()
        },
    }


def trial_row(outcome: Outcome) -> dict[str, Any]:
    row = outcome_row(outcome)
    row |= {"seed": page_seed(outcome.seed), "seconds": round(outcome.seconds, 3)}
    return {name: row[name] for name in COLUMNS}


def page_seed(seed: int) -> int | str:
    """A seed that JavaScript can hold: numbers beyond 53 bits would lose their last digits."""
    return seed if abs(seed) < 2**53 else str(seed)


def trial_to_page(result: Result, most: int = MAX_TEXT) -> dict[str, Any]:
    """Texts longer than `most` characters are cut and say how long they were."""
    trace = result.trace
    steps = trace.steps if trace else ()
    acted = bool(trace and trace.calls) or any(step.kind == "thinking" for step in steps)
    row: dict[str, Any] = {
        **trial_row(result.outcome),
        "answer": cut(trace.answer, most) if trace else None,
        "findings": [
            finding_row(finding) | {"reason": cut(finding.reason, most)["text"]}
            for finding in result.findings
        ],
        "judge_tokens": result.judging.total_tokens,
    }
    if acted:
        limit = max(
            MIN_STEPS, min(MAX_STEPS, most // 5)
        )  # if texts have to be short, so has the list of steps
        row["steps"] = [_step(step, most) for step in steps[:limit]]
        row["more_steps"] = max(0, len(steps) - limit)
    for name, text in (
        ("error", result.error),
        ("leak", result.leak),
        ("stop", trace.stop if trace else ""),
    ):
        if text:
            row[name] = cut(text, most)["text"]
    return row


def _step(step: Step, most: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": step.kind, "agent": step.agent or None}
    if step.kind == "tool":
        fields |= {
            "tool": step.tool,
            "status": step.status,
            "arguments": cut(write_arguments(step.arguments), most),
        }
        fields |= {
            "output": cut(step.output, most) if step.output else None,
            "seconds": step.seconds,
        }
    else:
        fields["text"] = cut(step.text, most)
    return {name: value for name, value in fields.items() if value is not None}


def cut(text: str, most: int) -> dict[str, Any]:
    """The text or, if too long, its beginning and end with its full length."""
    if len(text) <= most:
        return {"text": text}
    return {"text": f"{text[: most * 2 // 3]}\n … \n{text[-(most // 3) :]}", "length": len(text)}


def to_json_bytes(value: object) -> bytes:
    """JSON in UTF-8. What cannot be encoded, such as half of a surrogate pair, stays an escape."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
