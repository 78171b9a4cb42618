"""`skill-creator`: a workspace of Anthropic's skill-creator for one model; with several, each has its own folder.

Its pass rate is the share of expectations (our checks) that hold; ours needs all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from upskill.plain import counted
from upskill.reports.exports import FolderExport, StoredRun, file_name
from upskill.runs.planning.plan import Result
from upskill.sandboxes import printable

METRICS = {
    "pass_rate": "+.2f",
    "time_seconds": "+.1f",
    "tokens": "+.0f",
}  # how a difference is written


@dataclass
class _Configuration:
    metrics: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in METRICS})
    most_runs: int = 0
    passed: int = 0  # trials in which every expectation holds

    def add(self, row: Mapping[str, Any]) -> None:
        self.passed += row["result"]["failed"] == 0
        for name, values in self.metrics.items():
            values.append(row["result"][name])
        self.most_runs = max(self.most_runs, row["run_number"])

    def summarize(self) -> dict[str, dict[str, float]]:
        return {
            name: {
                "mean": round(fmean(values or [0.0]), 4),
                "stddev": round(stdev(values), 4) if len(values) > 1 else 0.0,
                "min": round(min(values, default=0.0), 4),
                "max": round(max(values, default=0.0), 4),
            }
            for name, values in self.metrics.items()
        }


def write(source: StoredRun, folder: Path) -> None:
    source.check_finished()
    models = source.run.models
    for number, model in enumerate(models, start=1):
        workspace = folder if len(models) == 1 else folder / file_name(model, number)
        _Workspace(source, model, workspace / "iteration-1").write()


EXPORT = FolderExport(write)


class _Workspace:
    def __init__(self, source: StoredRun, model: str, folder: Path) -> None:
        self.source, self.model, self.folder = source, model, folder
        self.arms = source.run.plan.arms
        self.names = {"skill": "with_skill", "baseline": "without_skill"}
        if source.run.plan.reference_skill:
            self.names = {"skill": "new_skill", "baseline": "old_skill"}
        self.configurations = {
            name: _Configuration() for arm, name in self.names.items() if arm in self.arms
        }

    def write(self) -> None:
        self.folder.mkdir(parents=True)
        for number, case in enumerate(self.source.cases.values()):
            expectations = [
                f"{name}: {_as_text(value)}"
                for check in case.checks
                for name, value in check.items()
            ]
            metadata = {
                "eval_id": number,
                "eval_name": case.id,
                "prompt": case.prompt,
                "assertions": expectations,
            }
            # Its viewer looks beside the runs, its scripts in the folder of the case.
            for name in ("", *self.configurations):
                _write_json(self.folder / f"eval-{number}" / name / "eval_metadata.json", metadata)
        with (self.folder / "benchmark.json").open("w", encoding="utf-8") as file:
            file.write('{\n"runs": [')  # streamed: the runs, then their sums
            for number, row in enumerate(self._rows()):
                file.write(f"{',' if number else ''}\n{json.dumps(row)}")
            sums = {
                "metadata": self._metadata(),
                "run_summary": self._summary(),
                "notes": self._notes(),
            }
            file.write(f"\n],\n{json.dumps(sums, indent=1)[1:].lstrip()}\n")
        _write_text(self.folder / "benchmark.md", self._markdown())

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Scored trials in the form of `benchmark.json`; an errored one is neither right nor wrong."""
        numbers = {case: number for number, case in enumerate(self.source.cases)}
        for result in self.source.results(self.model):
            trial = result.trial
            if trial.arm not in self.names or trial.case not in numbers:
                continue
            case, name = numbers[trial.case], self.names[trial.arm]
            number = trial.seed - self.source.run.plan.seed + 1
            _write_run(self.folder / f"eval-{case}" / name / f"run-{number}", self.source, result)
            if result.passed is not None:
                run = {
                    "eval_id": case,
                    "eval_name": trial.case,
                    "configuration": name,
                    "run_number": number,
                }
                row = run | _graded(result)
                self.configurations[name].add(row)
                yield row

    def _metadata(self) -> dict[str, Any]:
        return {
            "skill_name": self.source.run.skill,
            "skill_path": "",
            "executor_model": self.model,
            "analyzer_model": "",
            "timestamp": self.source.run.created,
            "evals_run": list(range(len(self.source.cases))),
            "runs_per_configuration": max(
                (each.most_runs for each in self.configurations.values()), default=0
            ),
        }

    def _summary(self) -> dict[str, Any]:
        summary = {name: each.summarize() for name, each in self.configurations.items()}
        means = [{name: each[name]["mean"] for name in METRICS} for each in summary.values()]
        without = means[1] if len(means) > 1 else dict.fromkeys(METRICS, 0.0)
        delta = (
            {name: format(means[0][name] - without[name], form) for name, form in METRICS.items()}
            if means
            else {}
        )
        return {**summary, "delta": delta}

    def _notes(self) -> list[str]:
        errored = self.source.run.errored
        passed = [
            f"{name} {each.passed} of {len(each.metrics['tokens'])}"
            for name, each in self.configurations.items()
        ]
        notes = [
            f"pass_rate is the share of expectations that hold. All of them hold in: {', '.join(passed)} trials."
        ]
        notes += [f"The run is {replayed}."] if (replayed := self.source.run.plan.replayed) else []
        notes += [f"{errored} trials in the run errored and have no grading."] if errored else []
        left_out = [arm for arm in self.arms if arm not in self.names]
        return [*notes, *([f"Left out: {', '.join(left_out)}."] if left_out else [])]

    def _markdown(self) -> str:
        summary, run = self._summary(), self.source.run
        runs = counted(self._metadata()["runs_per_configuration"], "run")
        heads = [name.replace("_", " ").capitalize() for name in self.configurations]
        lines = [
            f"# Benchmark of the skill {run.skill}",
            "",
            f"{self.model}, {counted(len(self.source.cases), 'case')}, at most {runs}, {run.created}",
            "",
            f"| | {' | '.join(heads)} | difference |",
            f"|---|{'---|' * (len(heads) + 1)}",
        ]
        for name in METRICS:
            cells = [
                f"{summary[each][name]['mean']} ± {summary[each][name]['stddev']}"
                for each in self.configurations
            ]
            lines.append(
                f"| {name.replace('_', ' ')} | {' | '.join(cells)} | {summary['delta'].get(name, '')} |"
            )
        return printable("\n".join([*lines, *(f"\n{note}" for note in self._notes())]) + "\n")


def _write_run(folder: Path, source: StoredRun, result: Result) -> None:
    trace, seconds = result.trace, result.seconds
    answer = trace.answer if trace else ""
    steps = trace.steps if trace else ()
    _write_text(folder / "outputs" / "answer.md", answer)
    _write_text(folder / "transcript.md", _transcript(source, result))
    timing = {
        "total_tokens": result.usage.total_tokens,
        "duration_ms": round(seconds * 1000),
        "total_duration_seconds": seconds,
        "executor_duration_seconds": seconds,
    }
    _write_json(folder / "timing.json", timing)
    if result.passed is None:
        _write_text(folder / "outputs" / "error.txt", result.error)
        return
    graded, calls = _graded(result), trace.calls if trace else ()
    metrics = {
        "tool_calls": Counter(call.tool for call in calls),
        "total_tool_calls": len(calls),
        "total_steps": len(steps),
        "errors_encountered": result.tool_errors,
        "output_chars": len(answer),
        "transcript_chars": sum(len(step.text) + len(step.output) for step in steps),
    }
    summary = {name: graded["result"][name] for name in ("passed", "failed", "total", "pass_rate")}
    # No `timing` here: its script would then not look for the tokens in timing.json.
    grading = {
        "expectations": graded["expectations"],
        "summary": summary,
        "execution_metrics": metrics,
    }
    _write_json(folder / "grading.json", grading)


def _graded(result: Result) -> dict[str, Any]:
    passed, total = result.checks_passed
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
        "expectations": [
            {"text": each.check, "passed": each.passed, "evidence": each.reason}
            for each in result.findings
            if each.decides
        ],
        "notes": [f"{each.check}: {each.reason}" for each in result.findings if not each.decides],
    }


def _transcript(source: StoredRun, result: Result) -> str:
    case = source.cases.get(result.trial.case)
    parts = [f"## Eval Prompt\n\n{case.prompt if case else ''}"]
    for number, step in enumerate(result.trace.steps if result.trace else (), start=1):
        if step.kind == "tool":
            call = json.dumps(step.arguments, ensure_ascii=False, default=str)
            parts.append(f"## {number}. {step.tool} ({step.status})\n\n{call}\n\n{step.output}")
        else:
            parts.append(f"## {number}. {step.kind}\n\n{step.text}")
    return "\n\n".join(parts) + "\n"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_json(path: Path, value: object) -> None:
    _write_text(path, json.dumps(value, indent=2) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
