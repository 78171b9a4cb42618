"""`inspect`: logs that inspect_ai reads and `inspect view` opens, one per model and arm.

A case is a sample, a seed an epoch, a check a score; `outcome` needs all of them. A log is a zip file of JSON.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from upskill.plain import digest
from upskill.reports.exports import Export, StoredRun, file_name
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredCase
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.version import __version__

VERSION = 2  # of the format
OUTCOME = "outcome"  # the score that says whether the trial passed
STOPS = {
    "length": "max_tokens",
    "context": "model_length",
    "refusal": "content_filter",
    "repetition": "max_tokens",
}
LIMITS = {"turns": "turn", "tokens": "token", "seconds": "time"}
MAX_SUMMARY_TEXT = 1000  # characters of a text in a summary
_PLAIN_ID = re.compile(r"[\w][\w .,:;()+=@#-]{0,150}")

Json = dict[str, Any]


def write(source: StoredRun, folder: Path) -> None:
    created = datetime.fromisoformat(source.run.created)
    for number, model in enumerate(source.run.models, start=1):
        for arm in source.run.plan.arms:
            names = file_name(f"{source.run.skill}-{arm}"), file_name(model, number)
            # An underscore parts the parts of a name.
            task, name = (name.replace("_", "-") for name in names)
            path = folder / f"{created:%Y-%m-%dT%H-%M-%S}-00-00_{task}_{name}.eval"
            with ZipFile(path, "w", ZIP_DEFLATED) as log:
                _write_log(log, source, model, arm)


EXPORT = Export(write)


def _write_log(log: ZipFile, source: StoredRun, model: str, arm: str) -> None:
    run = source.run
    start: Json = {"version": VERSION, "eval": _spec(source, model, arm), "plan": {}}
    _add(log, "_journal/start.json", start)
    usage: dict[str, Usage] = {}
    passed: dict[str, list[bool]] = {}
    summaries: list[Json] = []
    for result in source.results(model, arm):
        sample = _sample(source, result)
        for name, used in _usage_of(source, result).items():
            usage[name] = usage[name] + used if name in usage else used
        scores: Json = sample["scores"] or {}
        for name, score in scores.items():
            passed.setdefault(name, []).append(score["value"] == "C")
        _add(log, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
        summaries.append(_summary(sample))
    _add(log, "summaries.json", summaries)
    planned = len(run.plan.suite.cases) * run.plan.rounds_of(model)
    rates: list[Json] = []
    for name, each in passed.items():
        accuracy = {"name": "accuracy", "value": sum(each) / len(each)}
        rates.append({"name": name, "scorer": name, "metrics": {"accuracy": accuracy}})
    header: Json = {
        **start,
        "status": "success" if len(summaries) == planned else "cancelled",
        "results": {
            "total_samples": planned,
            "completed_samples": sum(summary["error"] is None for summary in summaries),
            # None before the end: the logs of two arms would reveal how they differ so far.
            "scores": [] if model in source.unfinished else rates,
        },
        "stats": {"model_usage": {name: _usage(used) for name, used in usage.items()}},
    }
    _add(log, "header.json", header)


def _add(log: ZipFile, name: str, value: object) -> None:
    info = ZipInfo(name)  # without a date: the same run gives the same bytes
    info.compress_type = ZIP_DEFLATED
    # Many readers refuse half of a surrogate pair.
    log.writestr(info, json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _spec(source: StoredRun, model: str, arm: str) -> Json:
    run = source.run
    plan = run.plan
    return {
        "eval_id": digest([run.id, model, arm]),
        "run_id": run.id,
        "created": run.created,
        "task": f"{run.skill} ({plan.labels[arm]})",
        "task_version": plan.skill.fingerprint,
        "solver": f"upskill/{plan.agent}",
        "dataset": {
            "name": run.skill,
            "samples": len(plan.suite.cases),
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
            "replayed": plan.replayed,
        },
    }


# One sample
# ------------------------------------------------------------------------------------------------


def _sample(source: StoredRun, result: Result) -> Json:
    trial, trace, plan = result.trial, result.trace, source.run.plan
    case = plan.suite.by_id.get(trial.case) or StoredCase(id=trial.case, prompt="")
    answer = trace.answer if trace else ""
    answered_by = trace.model if trace else trial.model
    stop = trace.stop if trace else ""
    limit = getattr(plan.bounds, stop) if stop in LIMITS else None
    error = {
        "message": result.error,
        "traceback": result.traceback,
        "traceback_ansi": result.traceback,
    }
    choice = {
        "message": {"role": "assistant", "content": answer},
        "stop_reason": STOPS.get(stop, "stop"),
    }
    return {
        "id": _sample_id(source, trial.case),
        "epoch": trial.seed - plan.seed + 1,
        "input": case.prompt,
        "target": case.reference or case.expected_output,
        "messages": [*_prompt(source, result, case), *_messages(trace)],
        "output": {
            "model": answered_by,
            "choices": [choice],
            "completion": answer,
            "usage": _usage(result.usage),
            "time": result.seconds,
        },
        "scores": None if result.passed is None else dict(_scores(result)),
        "metadata": {
            "case": trial.case,
            "arm": trial.arm,
            "seed": trial.seed,
            "held_out": case.held_out,
            "seen": case.id not in plan.fresh,
            "tags": case.tags,
            "cause": result.cause,
            "activated": result.activated,
            "leak": result.leak,
            **case.metadata,
        },
        "model_usage": {name: _usage(used) for name, used in _usage_of(source, result).items()},
        "total_time": result.seconds,
        "uuid": result.key,
        "error": error if result.passed is None else None,
        "limit": {"type": LIMITS[stop], "limit": limit} if limit else None,
    }


def _summary(sample: Json) -> Json:
    scores: Json = sample["scores"] or {}
    return {
        **{name: sample[name] for name in ("id", "epoch", "uuid", "total_time", "model_usage")},
        **{name: sample[name][:MAX_SUMMARY_TEXT] for name in ("input", "target")},
        "scores": {name: {"value": score["value"]} for name, score in scores.items()},
        "error": sample["error"] and sample["error"]["message"],
        "limit": sample["limit"] and sample["limit"]["type"],
        "message_count": len(sample["messages"]),
        "completed": True,
    }


def _sample_id(source: StoredRun, case: str) -> str:
    """A case id that is safe as a file name in the log."""
    if _PLAIN_ID.fullmatch(case):
        return case
    ids = list(source.run.plan.suite.by_id)
    return file_name(case, 1 + ids.index(case) if case in ids else 0)


def _usage_of(source: StoredRun, result: Result) -> dict[str, Usage]:
    """By model; a judge has its own."""
    judge = source.run.plan.judge
    used = {result.trial.model: result.usage}
    if judge and result.judging.total_tokens:
        used[judge.name] = used.get(judge.name, NO_USAGE) + result.judging
    return used


def _usage(used: Usage) -> Json:
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "input_tokens_cache_read": used.cached_tokens,
        "reasoning_tokens": used.reasoning_tokens,
        "total_cost": used.cost_usd,
    }


def _scores(result: Result) -> Iterator[tuple[str, Json]]:
    """The outcome, then each check; those of the same name are numbered."""
    why = [each.reason for each in result.findings if each.decides and not each.passed]
    yield OUTCOME, _score(result.passed, "; ".join(why) or "every check passed")
    uses = Counter([OUTCOME])
    for finding in result.findings:
        uses[finding.check] += 1
        number = uses[finding.check]
        name = f"{finding.check} {number}" if number > 1 else finding.check
        yield (
            name,
            {**_score(finding.passed, finding.reason), "metadata": {"decides": finding.decides}},
        )


def _score(passed: bool | None, why: str) -> Json:
    return {"value": "C" if passed else "I", "explanation": why}


def _prompt(source: StoredRun, result: Result, case: StoredCase) -> Iterator[Json]:
    plan = source.run.plan
    parts: list[str] = []
    if plan.agent == "chat":
        parts += [f"{name}:\n```\n{text}\n```" for name, text in case.files.items()]
        if result.trial.arm == "skill":
            yield {"role": "system", "content": plan.skill.body}
    yield {"role": "user", "content": "\n\n".join([*parts, case.prompt])}


def _messages(trace: Trace | None) -> Iterator[Json]:
    """A step is a message; the result of a tool is another."""
    for number, step in enumerate(trace.steps if trace else (), start=1):
        if step.kind == "thinking":
            thought = {"type": "reasoning", "reasoning": step.text}
            yield {"role": "assistant", "content": [thought]}
        elif step.kind == "tool":
            call: Json = {"id": f"call-{number}", "function": step.tool}
            call["arguments"] = dict(step.arguments)
            yield {"role": "assistant", "content": "", "tool_calls": [call]}
            error = {"type": "unknown", "message": step.output[:MAX_SUMMARY_TEXT]}
            yield {
                "role": "tool",
                "content": step.output,
                "tool_call_id": call["id"],
                "function": step.tool,
                "error": error if step.status == "error" else None,
            }
        else:
            yield {"role": step.kind, "content": step.text}
