"""`inspect`: logs that inspect_ai reads and `inspect view` opens, one per model and arm.

A case is a sample, a seed an epoch, a check a score; `outcome` needs all of them. A log is a zip file of JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from upskill.plain import digest
from upskill.reports.exports import FolderExport, StoredRun, file_name
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.traces import Trace, Usage
from upskill.version import __version__

VERSION = 2  # of the format


def write(source: StoredRun, folder: Path) -> None:
    created = datetime.fromisoformat(source.run.created)
    models = source.run.models
    for number, model in enumerate(models, start=1):
        # An underscore parts the parts of a name.
        name = file_name(model, number if len(models) > 1 else 0).replace("_", "-")
        for arm in source.run.plan.arms:
            task = file_name(f"{source.run.skill}-{arm}").replace("_", "-")
            path = folder / f"{created:%Y-%m-%dT%H-%M-%S}-00-00_{task}_{name}.eval"
            with ZipFile(path, "w", ZIP_DEFLATED) as log:
                _write_log(log, source, model, arm)


def _write_log(log: ZipFile, source: StoredRun, model: str, arm: str) -> None:
    start: dict[str, Any] = {
        "version": VERSION,
        "eval": _spec(source, model, arm),
        "plan": {
            "name": "upskill",
            "steps": [{"solver": f"upskill/{source.run.plan.agent}", "params": {}}],
        },
    }
    _add(log, "_journal/start.json", start)
    usage: dict[str, dict[str, Any]] = {}
    summaries: list[dict[str, Any]] = []
    for result in source.results(model, arm):
        written = sample(source, result)
        for name, used in written["model_usage"].items():
            add_usage(usage, name, used)
        _add(log, f"samples/{written['id']}_epoch_{written['epoch']}.json", written)
        summaries.append(summarize(written))
    _add(log, "summaries.json", summaries)
    run = source.run
    planned = len(source.cases) * run.plan.rounds_of(model)
    header: dict[str, Any] = {
        **start,
        "status": "success" if len(summaries) == planned else "cancelled",
        "results": {
            "total_samples": planned,
            "completed_samples": sum(summary["error"] is None for summary in summaries),
            # None before the end: the logs of two arms would reveal how they differ so far.
            "scores": [] if model in source.unfinished else list(_scores_of(summaries)),
        },
        "stats": {
            "started_at": run.created,
            "completed_at": run.created,
            "model_usage": usage,
        },
    }
    _add(log, "header.json", header)


def _spec(source: StoredRun, model: str, arm: str) -> dict[str, Any]:
    run = source.run
    plan = run.plan
    replayed = {"replayed": plan.replayed} if plan.replayed else {}
    return {
        "eval_id": digest([run.id, model, arm]),
        "run_id": run.id,
        "created": run.created,
        "task": f"{run.skill} ({source.baseline if arm == 'baseline' else arm})",
        "task_id": digest([run.skill, arm]),
        "task_version": plan.skill.fingerprint,
        "solver": f"upskill/{plan.agent}",
        "tags": [arm],
        "dataset": {
            "name": run.skill,
            "samples": len(source.cases),
            "sample_ids": [sample_id(source, case) for case in source.cases],
            "shuffled": False,
        },
        "model": model,
        "model_generate_config": {
            "temperature": plan.temperature,
            "max_tokens": plan.max_output_tokens,
            "seed": plan.seed,
        },
        "config": {"epochs": plan.rounds_of(model)},
        "packages": {"upskill": __version__},
        "metadata": {
            "arm": arm,
            "skill": run.skill,
            "suite": plan.suite.fingerprint,
            **replayed,
        },
    }


def _scores_of(summaries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The outcome first."""
    passed: dict[str, list[bool]] = {OUTCOME: []}
    for summary in summaries:
        scores: dict[str, Any] = summary["scores"] or {}
        for name, score in scores.items():
            passed.setdefault(name, []).append(score["value"] == "C")
    for name, each in passed.items():
        count = len(each)
        if not count:
            continue
        rate = sum(each) / count
        error = math.sqrt(rate * (1 - rate) / (count - 1)) if count > 1 else 0.0
        metrics = {"accuracy": rate, "stderr": error}
        yield {
            "name": name,
            "scorer": name,
            "scored_samples": count,
            "unscored_samples": len(summaries) - count,
            "metrics": {
                metric: {"name": metric, "value": value} for metric, value in metrics.items()
            },
        }


def _add(log: ZipFile, name: str, value: object) -> None:
    info = ZipInfo(name)  # without a date: the same run gives the same bytes
    info.compress_type = ZIP_DEFLATED
    # Many readers refuse half of a surrogate pair.
    log.writestr(info, json.dumps(value, ensure_ascii=False).encode(errors="replace"))


EXPORT = FolderExport(write)


OUTCOME = "outcome"  # the score that says whether the trial passed
STOPS = {
    "length": "max_tokens",
    "context": "model_length",
    "refusal": "content_filter",
    "repetition": "max_tokens",
}
LIMITS = {"turns": "turn", "tokens": "token", "seconds": "time"}
_PLAIN_ID = re.compile(r"[\w][\w .,:;()+=@#-]{0,150}")
MAX_SUMMARY_TEXT = 1000  # characters of a text in a summary


def sample(source: StoredRun, result: Result) -> dict[str, Any]:
    trial, trace = result.trial, result.trace
    plan = source.run.plan
    case = source.cases.get(trial.case) or StoredCase(id=trial.case, prompt="")
    stop = trace.stop if trace else ""
    limit = getattr(plan.bounds, stop) if stop in LIMITS else None
    judge, traceback = plan.judge, result.traceback or result.error
    used = {trial.model: usage(result.usage)}
    if judge and result.judging.total_tokens:
        add_usage(used, judge.name, usage(result.judging))
    metadata: dict[str, Any] = {
        "case": trial.case,
        "arm": trial.arm,
        "seed": trial.seed,
        "held_out": case.held_out,
        "seen": case.id not in source.run.plan.fresh,
        "tags": list(case.tags),
        "cause": result.cause,
        "activated": result.activated,
        "leak": result.leak,
        **case.metadata,
    }
    metadata = {name: value for name, value in metadata.items() if value not in (None, "", [])}
    return {
        "id": sample_id(source, trial.case),
        "epoch": trial.seed - plan.seed + 1,
        "input": case.prompt,
        "target": case.reference or case.expected_output,
        "messages": [*_prompt_messages(source, result, case), *(_messages(trace) if trace else ())],
        "output": _output(result),
        "scores": _scores(result) if result.passed is not None else None,
        "metadata": metadata,
        "store": {},
        "events": [],
        "attachments": {},
        "model_usage": used,
        "total_time": result.seconds,
        "working_time": result.seconds,
        "uuid": result.key,
        "error": {"message": result.error, "traceback": traceback, "traceback_ansi": traceback}
        if result.passed is None
        else None,
        "limit": {"type": LIMITS[stop], "limit": limit} if limit else None,
    }


def sample_id(source: StoredRun, case: str) -> str:
    """A case id that is safe as a file name in the log."""
    if _PLAIN_ID.fullmatch(case):
        return case
    return file_name(case, 1 + list(source.cases).index(case) if case in source.cases else 0)


def summarize(written: Mapping[str, Any]) -> dict[str, Any]:
    full: dict[str, Any] = written["scores"] or {}
    scores = {
        name: {**score, "answer": _cut(score["answer"]), "explanation": _cut(score["explanation"])}
        for name, score in full.items()
    }
    copied = ("id", "epoch", "metadata", "model_usage", "total_time", "working_time", "uuid")
    return {
        **{name: written[name] for name in copied},
        "input": _cut(written["input"]),
        "target": _cut(written["target"]),
        "scores": scores or None,
        "error": written["error"] and written["error"]["message"],
        "limit": written["limit"] and written["limit"]["type"],
        "message_count": len(written["messages"]),
        "completed": True,
    }


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SUMMARY_TEXT else f"{text[:MAX_SUMMARY_TEXT]}..."


def usage(used: Usage) -> dict[str, Any]:
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "input_tokens_cache_read": used.cached_tokens,
        "reasoning_tokens": used.reasoning_tokens,
        "total_cost": used.cost_usd,
    }


def add_usage(total: dict[str, dict[str, Any]], model: str, used: Mapping[str, Any]) -> None:
    """Add to a model's usage; a sum with an unknown price is unknown."""
    before = total.get(model)
    if before is None:
        total[model] = dict(used)
        return
    sums = ((name, value, before[name]) for name, value in used.items())
    total[model] = {
        name: None if None in (value, earlier) else earlier + value for name, value, earlier in sums
    }


def _prompt_messages(
    source: StoredRun, result: Result, case: StoredCase
) -> Iterator[dict[str, Any]]:
    plan = source.run.plan
    if plan.agent == "chat" and result.trial.arm == "skill":
        yield {"role": "system", "content": plan.skill.body}
    files = [f"{name}:\n```\n{text}\n```" for name, text in case.files.items()]
    in_prompt = files if plan.agent == "chat" else []
    yield {"role": "user", "content": "\n\n".join([*in_prompt, case.prompt]), "source": "input"}


def _messages(trace: Trace) -> Iterator[dict[str, Any]]:
    """Thoughts belong to the next message or call; a result follows its call."""
    thoughts: list[dict[str, Any]] = []
    for number, step in enumerate(trace.steps, start=1):
        if step.kind == "thinking":
            thoughts.append({"type": "reasoning", "reasoning": step.text})
        elif step.kind == "tool":
            call = {
                "id": f"call-{number}",
                "function": step.tool,
                "arguments": dict(step.arguments),
                "type": "function",
            }
            yield _assistant(thoughts, "", trace.model) | {"tool_calls": [call]}
            error = (
                {"type": "unknown", "message": step.output[:MAX_SUMMARY_TEXT]}
                if step.status == "error"
                else None
            )
            result = {
                "role": "tool",
                "content": step.output,
                "tool_call_id": call["id"],
                "function": step.tool,
            }
            yield result | ({"error": error} if error else {})
            thoughts = []
        elif step.kind == "assistant":
            yield _assistant(thoughts, step.text, trace.model)
            thoughts = []
        else:
            yield {"role": step.kind, "content": step.text}
    if thoughts:
        yield _assistant(thoughts, "", trace.model)


def _assistant(thoughts: list[dict[str, Any]], text: str, model: str) -> dict[str, Any]:
    content = [*thoughts, {"type": "text", "text": text}] if thoughts else text
    return {"role": "assistant", "content": content, "source": "generate", "model": model}


def _output(result: Result) -> dict[str, Any]:
    trace = result.trace
    if trace is None:
        return {"model": result.trial.model, "choices": [], "completion": ""}
    message = _assistant([], trace.answer, trace.model)
    return {
        "model": trace.model or result.trial.model,
        "choices": [{"message": message, "stop_reason": STOPS.get(trace.stop, "stop")}],
        "completion": trace.answer,
        "usage": usage(result.usage),
        "time": result.seconds,
    }


def _scores(result: Result) -> dict[str, Any]:
    answer = result.trace.answer if result.trace else ""
    reasons = "; ".join(
        each.reason for each in result.findings if each.decides and each.passed is not True
    )
    scores = {OUTCOME: _score(result.passed is True, answer, reasons or "every check passed")}
    for finding in result.findings:
        name, number = finding.check, 2
        while name in scores:
            name, number = f"{finding.check} {number}", number + 1
        scores[name] = _score(finding.passed, answer, finding.reason) | {
            "metadata": {"decides": finding.decides}
        }
    return scores


def _score(passed: bool, answer: str, why: str) -> dict[str, Any]:
    return {"value": "C" if passed else "I", "answer": answer, "explanation": why}
