"""`skill-creator`: a workspace of Anthropic's skill-creator, for its viewer and its scripts.

`iteration-1/eval-N/with_skill/run-K/` has `grading.json`, `timing.json` and `outputs/`, and `iteration-1` has
`benchmark.json` and `benchmark.md`. A workspace is about one model; with several, each has a folder of its own. Its
pass rate is the share of expectations (our checks) that hold, so it is another number than ours, which wants them all.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from upskill.plain import counted
from upskill.reports.exports import FolderExport, StoredRun, file_name
from upskill.runs.planning.plan import Arm, Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.sandboxes import printable

METRICS = ("pass_rate", "time_seconds", "tokens")


@dataclass
class _Stats:
    """Mean, deviation and range of numbers that go by."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self.squares += before * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)

    def plain(self) -> dict[str, float]:
        if not self.count:
            return dict.fromkeys(("mean", "stddev", "min", "max"), 0.0)
        deviation = math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0
        numbers = {"mean": self.mean, "stddev": deviation, "min": self.low, "max": self.high}
        return {name: round(value, 4) for name, value in numbers.items()}


@dataclass
class _Configuration:
    metrics: dict[str, _Stats] = field(default_factory=lambda: {name: _Stats() for name in METRICS})
    most_runs: int = 0
    trials: int = 0
    passed: int = 0  # trials in which every expectation holds

    def add(self, row: Mapping[str, Any]) -> None:
        self.trials += 1
        self.passed += row["result"]["failed"] == 0
        for name, stats in self.metrics.items():
            stats.add(row["result"][name])
        self.most_runs = max(self.most_runs, row["run_number"])

    def plain(self) -> dict[str, Any]:
        return {name: stats.plain() for name, stats in self.metrics.items()}


def write(source: StoredRun, folder: Path) -> None:
    models = source.run.models
    for number, model in enumerate(models, start=1):
        workspace = folder if len(models) == 1 else folder / file_name(model, number)
        _Workspace(source, model, workspace / "iteration-1").write()


class _Workspace:
    """The trials of one model."""

    def __init__(self, source: StoredRun, model: str, place: Path) -> None:
        self.source = source
        self.model = model
        self.place = place
        older = bool(source.run.plan.reference_skill)
        self.names = (
            {"skill": "new_skill", "baseline": "old_skill"}
            if older
            else {"skill": "with_skill", "baseline": "without_skill"}
        )
        self.found = {self.names[arm]: _Configuration() for arm in ("skill", "baseline") if arm in self._arms}

    @property
    def _arms(self) -> tuple[Arm, ...]:
        return self.source.run.plan.arms

    def write(self) -> None:
        self.place.mkdir(parents=True)
        for number, case in enumerate(self.source.cases.values()):
            written = {
                "eval_id": number,
                "eval_name": case.id,
                "prompt": case.prompt,
                "assertions": expectations(case),
            }
            # Its viewer looks beside the runs, its scripts in the folder of the case.
            for place in ("", *self.found):
                write_json(self.place / f"eval-{number}" / place / "eval_metadata.json", written)
        with (self.place / "benchmark.json").open("w", encoding="utf-8") as file:
            self._write_benchmark(file)
        (self.place / "benchmark.md").write_text(self._markdown(), encoding="utf-8")

    def _write_benchmark(self, file: IO[str]) -> None:
        """As the trials are read: the runs before what they come to."""
        file.write('{\n"runs": [')
        for number, row in enumerate(self._rows()):
            file.write(f"{',' if number else ''}\n{json.dumps(row)}")
        rest = {"metadata": self._metadata(), "run_summary": self._summary(), "notes": self._notes()}
        file.write(f"\n],\n{json.dumps(rest, indent=1)[1:].lstrip()}\n")

    def _rows(self) -> Iterator[dict[str, Any]]:
        numbers = {case: number for number, case in enumerate(self.source.cases)}
        first = self.source.run.plan.seed
        for result in self.source.results(self.model):
            trial = result.trial
            if trial.arm not in self.names or trial.case not in numbers:
                continue
            name, number = self.names[trial.arm], trial.seed - first + 1
            place = self.place / f"eval-{numbers[trial.case]}" / name / f"run-{number}"
            write_run(place, self.source, result)
            if (row := self._row(result, numbers[trial.case], name, number)) is not None:
                self.found[name].add(row)
                yield row

    def _row(self, result: Result, case: int, name: str, number: int) -> dict[str, Any] | None:
        if result.passed is None:  # neither right nor wrong, for which there is no word there
            return None
        return {
            "eval_id": case,
            "eval_name": result.trial.case,
            "configuration": name,
            "run_number": number,
            **run_row(result),
        }

    def _metadata(self) -> dict[str, Any]:
        run = self.source.run
        return {
            "skill_name": run.skill,
            "skill_path": "",
            "executor_model": self.model,
            "analyzer_model": "",
            "timestamp": run.created,
            "evals_run": list(range(len(self.source.cases))),
            "runs_per_configuration": max((one.most_runs for one in self.found.values()), default=0),
        }

    def _summary(self) -> dict[str, Any]:
        summary = {name: one.plain() for name, one in self.found.items()}
        means = [{name: one[name]["mean"] for name in METRICS} for one in summary.values()]
        without = means[1] if len(means) > 1 else dict.fromkeys(METRICS, 0.0)
        places = {"pass_rate": "+.2f", "time_seconds": "+.1f", "tokens": "+.0f"}
        delta = {name: format(means[0][name] - without[name], places[name]) for name in METRICS} if means else {}
        return {**summary, "delta": delta}

    def _notes(self) -> list[str]:
        run = self.source.run
        whole = [f"{name} {one.passed} of {one.trials}" for name, one in self.found.items()]
        said = f"pass_rate is the share of expectations that hold. All of them hold in: {', '.join(whole)} trials."
        errored = [f"{run.errored} trials of the run errored and have no grading."] if run.errored else []
        left_out = [arm for arm in self._arms if arm not in self.names]
        return [said, *errored, *([f"Left out: {', '.join(left_out)}."] if left_out else [])]

    def _markdown(self) -> str:
        summary, metadata, run = self._summary(), self._metadata(), self.source.run
        runs = counted(metadata["runs_per_configuration"], "run")
        heads = [name.replace("_", " ").capitalize() for name in self.found]
        lines = [
            f"# Benchmark of the skill {metadata['skill_name']}",
            "",
            f"{self.model}, {counted(len(metadata['evals_run']), 'case')}, at most {runs}, {run.created}",
            "",
            f"| | {' | '.join(heads)} | difference |",
            f"|---|{'---|' * (len(heads) + 1)}",
        ]
        for name in METRICS:
            cells = [f"{summary[each][name]['mean']} ± {summary[each][name]['stddev']}" for each in self.found]
            lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} | {summary['delta'].get(name, '')} |")
        return printable("\n".join([*lines, *(f"\n{note}" for note in self._notes())]) + "\n")


EXPORT = FolderExport(write)


# One trial in a workspace of skill-creator: `grading.json`, `timing.json`, `outputs/` and the transcript.


def expectations(case: StoredCase) -> list[str]:
    """The checks of a case in words."""
    return [f"{name}: {_words(value)}" for check in case.checks for name, value in check.items()]


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def write_run(place: Path, source: StoredRun, result: Result) -> None:
    usage, seconds = result.usage, result.seconds
    answer = result.trace.answer if result.trace else ""
    write_text(place / "outputs" / "answer.md", answer)
    write_text(place / "transcript.md", _transcript(source, result))
    timing = {"total_tokens": usage.total_tokens, "duration_ms": round(seconds * 1000)}
    write_json(
        place / "timing.json", {**timing, "total_duration_seconds": seconds, "executor_duration_seconds": seconds}
    )
    if result.passed is None:
        write_text(place / "outputs" / "error.txt", result.error)
        return
    row = run_row(result)
    graded = row["result"]
    # No `timing` here: its script would then not look for the tokens in timing.json.
    write_json(
        place / "grading.json",
        {
            "expectations": row["expectations"],
            "summary": {name: graded[name] for name in ("passed", "failed", "total", "pass_rate")},
            "execution_metrics": _metrics(result, answer),
        },
    )


def run_row(result: Result) -> dict[str, Any]:
    """A scored trial, as `benchmark.json` and `grading.json` have it."""
    passed, total = result.checks_passed
    found = [
        {"text": one.check, "passed": one.passed, "evidence": one.reason} for one in result.judgements if one.decides
    ]
    return {
        "result": {
            "pass_rate": passed / total if total else 0.0,
            "passed": passed,
            "failed": total - passed,
            "total": total,
            "time_seconds": result.seconds,
            "tokens": result.usage.total_tokens,
            "tool_calls": len(result.trace.calls) if result.trace else 0,
            "errors": result.tool_errors,
        },
        "expectations": found,
        "notes": [f"{one.check}: {one.reason}" for one in result.judgements if not one.decides],
    }


def _metrics(result: Result, answer: str) -> dict[str, Any]:
    trace = result.trace
    calls = trace.calls if trace else ()
    said = sum(len(step.text) + len(step.output) for step in trace.steps) if trace else 0
    return {
        "tool_calls": Counter(call.tool for call in calls),
        "total_tool_calls": len(calls),
        "total_steps": len(trace.steps) if trace else 0,
        "errors_encountered": result.tool_errors,
        "output_chars": len(answer),
        "transcript_chars": said,
    }


def _transcript(source: StoredRun, result: Result) -> str:
    case = source.cases.get(result.trial.case)
    parts = [f"## Eval Prompt\n\n{case.prompt if case else ''}"]
    for number, step in enumerate(result.trace.steps if result.trace else (), start=1):
        if step.kind == "tool":
            said = f"{json.dumps(step.arguments, ensure_ascii=False, default=str)}\n\n{step.output}"
            parts.append(f"## {number}. {step.tool} ({step.status})\n\n{said}")
        else:
            parts.append(f"## {number}. {step.kind}\n\n{step.text}")
    return "\n\n".join(parts) + "\n"


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
