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
from upskill.reports.exports import Export, StoredRun, file_name
from upskill.runs.planning.plan import Result

# In this order: a run is compared with an earlier one.
RUN_TYPES = {"baseline": "baseline", "skill": "with_skill"}


@dataclass
class _Pass:
    """One pass over the cases: one model, one seed, one arm."""

    outcomes: Counter[bool | None] = field(default_factory=Counter[bool | None])
    error: str = ""
    seconds: float = 0.0
    tool_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])
    calls: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])

    def add(self, result: Result) -> None:
        self.outcomes[result.passed] += 1
        self.error = self.error or result.error
        self.seconds += result.seconds
        self.counts["input_tokens"] += result.usage.input_tokens
        self.counts["output_tokens"] += result.usage.output_tokens
        self.counts["total_tokens"] += result.usage.total_tokens
        if result.trace:
            self.counts["turns"] += result.trace.turns
            for call in result.trace.calls:
                self.calls[call.tool] += 1
                self.errors[call.tool] += call.status == "error"
                self.counts["mcp_calls"] += "__" in call.tool
                self.tool_seconds += call.seconds or 0.0

    def to_dict(self) -> dict[str, Any]:
        passed, failed, missing = (self.outcomes[passed] for passed in (True, False, None))
        calls = self.calls.total()
        stats: dict[str, Any] = {
            "conversation_span_ms": self.seconds * 1000,
            "llm_time_ms": max(0.0, self.seconds - self.tool_seconds) * 1000,
            "tool_time_ms": min(self.seconds, self.tool_seconds) * 1000,
            **self.counts,
            "tool_calls": calls,
            "tool_errors": self.errors.total(),
            "execute_calls": calls - self.counts["mcp_calls"],
            "tool_call_map": self.calls,
            "tool_error_map": +self.errors,
            "usage_summaries": [],
            "timing_summaries": [],
        }
        error = f"{counted(missing, 'trial')} missing: {self.error}" if missing else None
        return {
            "stats": stats,
            "passed": bool(passed) and not failed and not missing,
            "assertions_passed": passed,
            "assertions_total": passed + failed,
            "error_message": error,
        }


def write(source: StoredRun, folder: Path) -> None:
    source.check_finished()
    run = source.run
    passes: dict[tuple[int, int, int], _Pass] = {}
    for result in source.results():
        trial = result.trial
        if trial.arm in RUN_TYPES:
            key = run.models.index(trial.model), trial.seed, [*RUN_TYPES].index(trial.arm)
            passes.setdefault(key, _Pass()).add(result)
    batch = f"{datetime.fromisoformat(run.created):%Y_%m_%d_%H_%M}_{file_name(run.id)}"
    task = run.plan.skill.description or run.skill
    replayed = {"replayed": run.plan.replayed} if run.plan.replayed else {}
    results: list[dict[str, Any]] = []
    for number, (model, seed, arm) in enumerate(sorted(passes), start=1):
        metadata = {
            "model": run.models[model],
            "task": task,
            "batch_id": batch,
            "run_number": number,
            "timestamp": run.created,
            **replayed,
        }
        result = {
            "metadata": metadata,
            **passes[model, seed, arm].to_dict(),
            "session_id": None,
            "session_history_file": None,
            "run_type": [*RUN_TYPES.values()][arm],
            "skill_name": run.skill,
        }
        subfolder = folder / batch / f"run_{number}"
        _write(subfolder / "run_metadata.json", metadata)
        _write(subfolder / "run_result.json", result)
        results.append(result)
    summary = {
        "batch_id": batch,
        "model": ", ".join(run.models),
        "task": task,
        "total_runs": len(results),
        "passed_runs": sum(result["passed"] for result in results),
        "results": results,
    }
    _write(folder / batch / "batch_summary.json", summary)


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


EXPORT = Export(write, has_answers=False)  # only how many checks passed
