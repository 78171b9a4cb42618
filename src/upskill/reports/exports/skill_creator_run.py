"""One trial in a workspace of skill-creator: `grading.json`, `timing.json`, `outputs/` and the transcript."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from upskill.reports.exports import StoredRun
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase


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
