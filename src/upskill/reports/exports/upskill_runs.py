"""`upskill-runs`: the tree of Hugging Face's upskill, which its own `upskill runs` reads.

A run there is one pass of a model over all cases, with or without the skill. It has no missing trials: ours count as no
assertion, and their number and the first error are the run's message.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from upskill.plain import counted
from upskill.reports.exports import FolderExport, StoredRun, file_name
from upskill.runs.planning.plan import Result
from upskill.runs.stores import Run

RUN_TYPES = {
    "baseline": "baseline",
    "skill": "with_skill",
}  # in this order: a run is compared with an earlier one


@dataclass
class _Pass:
    """One pass over the cases: one model, one seed, one arm."""

    passed: int = 0
    failed: int = 0
    errored: int = 0
    error: str = ""
    seconds: float = 0.0
    tool_seconds: float = 0.0
    turns: int = 0
    calls: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, result: Result) -> None:
        if result.passed is None:
            self.errored += 1
            self.error = self.error or result.error
        else:
            self.passed += result.passed
            self.failed += not result.passed
        self.seconds += result.seconds
        self.input_tokens += result.usage.input_tokens
        self.output_tokens += result.usage.output_tokens
        if result.trace:
            self.turns += result.trace.turns
            for call in result.trace.calls:
                self.calls[call.tool] += 1
                self.errors[call.tool] += call.status == "error"
                self.tool_seconds += call.seconds or 0.0

    def to_dict(self) -> dict[str, Any]:
        mcp = sum(count for name, count in self.calls.items() if "__" in name)
        tool_seconds = min(self.seconds, self.tool_seconds)
        return {
            "stats": {
                "conversation_span_ms": self.seconds * 1000,
                "llm_time_ms": (self.seconds - tool_seconds) * 1000,
                "tool_time_ms": tool_seconds * 1000,
                "turns": self.turns,
                "tool_calls": self.calls.total(),
                "tool_errors": self.errors.total(),
                "mcp_calls": mcp,
                "execute_calls": self.calls.total() - mcp,
                "tool_call_map": self.calls,
                "tool_error_map": +self.errors,
                "input_tokens": self.input_tokens,
                "output_tokens": self.output_tokens,
                "total_tokens": self.input_tokens + self.output_tokens,
                "usage_summaries": [],
                "timing_summaries": [],
            },
            "passed": bool(self.passed) and not self.failed and not self.errored,
            "assertions_passed": self.passed,
            "assertions_total": self.passed + self.failed,
            "error_message": f"{counted(self.errored, 'trial')} missing: {self.error}"
            if self.errored
            else None,
        }


def write(source: StoredRun, folder: Path) -> None:
    source.check_finished()
    run = source.run
    passes: dict[tuple[str, int, str], _Pass] = {}
    for result in source.results():
        trial = result.trial
        if trial.arm in RUN_TYPES:
            passes.setdefault((trial.model, trial.seed, trial.arm), _Pass()).add(result)
    batch = f"{datetime.fromisoformat(run.created):%Y_%m_%d_%H_%M}_{file_name(run.id)}"
    order = sorted(
        passes, key=lambda key: (run.models.index(key[0]), key[1], list(RUN_TYPES).index(key[2]))
    )
    results = [
        _result(run, batch, number, key, passes[key]) for number, key in enumerate(order, start=1)
    ]
    for result in results:
        subfolder = folder / batch / f"run_{result['metadata']['run_number']}"
        _write(subfolder / "run_metadata.json", result["metadata"])
        _write(subfolder / "run_result.json", result)
    summary = {
        "batch_id": batch,
        "model": ", ".join(run.models),
        "task": run.plan.skill.description or run.skill,
        "total_runs": len(results),
        "passed_runs": sum(result["passed"] for result in results),
        "results": results,
    }
    _write(folder / batch / "batch_summary.json", summary)


def _result(
    run: Run, batch: str, number: int, key: tuple[str, int, str], done: _Pass
) -> dict[str, Any]:
    model, _, arm = key
    metadata = {
        "model": model,
        "task": run.plan.skill.description or run.skill,
        "batch_id": batch,
        "run_number": number,
        "timestamp": run.created,
    } | ({"replayed": run.plan.replayed} if run.plan.replayed else {})
    return {
        "metadata": metadata,
        **done.to_dict(),
        "session_id": None,
        "session_history_file": None,
        "run_type": RUN_TYPES[arm],
        "skill_name": run.skill,
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


EXPORT = FolderExport(write, has_answers=False)  # only how many checks passed
