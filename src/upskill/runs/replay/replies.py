"""Writes a cassette from a stored run, to replay it elsewhere (`upskill export --replies`)."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from upskill.agents import AGENTS, ExternalAgent
from upskill.errors import UsageError
from upskill.models import Address, Reply, ToolCall
from upskill.models.addresses import identity_of
from upskill.models.cassette import FORMAT, VERSION, read_reply
from upskill.outputs import whole_file
from upskill.plain import counted, fields_of
from upskill.runs.planning.plan import Result
from upskill.runs.stores import Run, Store

PATHS = (
    "scripted",
    "handoff",
    "local",
)  # providers whose models may be files of somebody's machine
OPAQUE = (
    "signature",
    "data",
    "encrypted_content",
    "id",
    "type",
)  # in thinking, what only its provider can read


@dataclass
class Exported:
    """What went into a cassette."""

    trials: int = 0
    replies: int = 0
    redacted: Counter[str] = field(default_factory=Counter[str])  # kinds of secrets
    redacted_cases: dict[str, None] = field(default_factory=dict[str, None])
    missing: int = 0  # scored trials whose replies are not stored


def export_replies(store: Store, run: Run, path: str | Path) -> Exported:
    """Write every reply that led to a result. The same run gives the same bytes."""
    if run.plan.replay:
        raise UsageError(
            f"{run.id}: this run is itself a replay", "Share the file it was replayed from."
        )
    if isinstance(AGENTS.load(run.plan.agent)(), ExternalAgent):
        raise UsageError(
            f"{run.id}: {run.plan.agent}'s requests to its model are not stored, so there is nothing to export",
            "The built-in agents (chat, tools) store them.",
        )
    done = Exported()
    with (
        whole_file(path, private=True) as file,
        gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,
    ):
        writer = _Writer(packed, run, store, done)
        writer.write(_header(run, writer.models, writer.names))
        for result in store.results(run):
            writer.add(result)
        writer.write({"end": {"trials": done.trials, "replies": done.replies}})
        if done.missing:
            raise UsageError(
                f"{run.id}: no stored replies found for {counted(done.missing, 'trial')}",
                "Runs with cache=false keep no replies. Run it again without that, in another --store.",
            )
        if not done.trials:
            raise UsageError(f"{run.id}: no trials yet, so no replies")
    return done


def _header(run: Run, models: Sequence[Address], called: Sequence[str]) -> dict[str, Any]:
    plan = run.plan
    judge = plan.judge and plan.judge.name
    names = run.models
    from_cache = [
        name for model, name in zip(models, called, strict=True) if model.name in plan.from_cache
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "run": run.id,
        "created": run.created,
        "skill": plan.skill.name,
        "visible_hash": plan.skill.visible_hash,
        "models": [model_row(*pair) for pair in zip(models, called, strict=True)],
        "students": len(names),
        "judge": None if not judge else names.index(judge) if judge in names else len(names),
        **{
            name: getattr(plan, name)
            for name in ("agent", "arms", "runs", "seed", "temperature", "max_output_tokens")
        },
        "limit_is_stated": plan.limit_is_stated,
        **({"salt": plan.salt} if len(plan.exact) < len(names) else {}),
        **({"from_cache": from_cache} if from_cache else {}),
        "bounds": asdict(plan.bounds),
    }


def model_row(address: Address, name: str) -> dict[str, Any]:
    """Leaves out what belongs to the machine that asked: the path of a file, the URL of a server."""
    row = {
        "name": name,
        "provider": address.provider,
        "model": Path(address.model).name if _is_path(address) else address.model,
        "endpoint": address.endpoint,
        "effort": address.effort,
    }
    return row | ({"identity": identity_of(address)} if address.provider == "local" else {})


def _is_path(address: Address) -> bool:
    return address.provider in PATHS and ("/" in address.model or "\\" in address.model)


def recorded_names(addresses: Sequence[Address]) -> list[str]:
    """Distinct names for the file, without the folders of model files."""
    uses: dict[str, int] = {}
    names: list[str] = []
    for address in addresses:
        name = address.name
        if _is_path(address):
            name = name.replace(address.model, Path(address.model).name)
        uses[name] = uses.get(name, 0) + 1
        names.append(name if uses[name] == 1 else f"{name} ({uses[name]})")
    return names


class _Writer:
    def __init__(self, packed: gzip.GzipFile, run: Run, store: Store, done: Exported) -> None:
        self.text = io.TextIOWrapper(packed, encoding="utf-8", newline="\n", write_through=True)
        self.store = store
        self.done = done
        plan = run.plan
        names = run.models
        judge = plan.judge
        self.models = [*plan.models, *([judge] if judge and judge.name not in names else [])]
        self.names = recorded_names(self.models)
        self.numbers = {model.name: number for number, model in enumerate(self.models)}
        self.judge = judge.name if judge else ""
        self.case = ""
        self.written: set[tuple[int, str]] = set()  # of one case: trials come case by case
        self.acts = plan.agent != "chat"

    def write(self, line: Mapping[str, Any]) -> None:
        self.text.write(json.dumps(line, separators=(",", ":"), default=fields_of) + "\n")

    def add(self, result: Result) -> None:
        trial = result.trial
        student = self.numbers[trial.model]
        if trial.case != self.case:
            self.case = trial.case
            self.written.clear()
        replies: dict[tuple[int, str], Reply] = {}
        counts: Counter[str] = Counter()
        is_missing = not result.asked
        for request_hash in result.asked:
            number = self.numbers[self.judge] if request_hash.role else student
            text = self.store.reply(request_hash.key)
            if text is None:
                is_missing = True
                continue
            replies[number, request_hash.request] = scrub(read_reply(text), counts)
        if is_missing and result.passed is not None:
            self.done.missing += 1
            return
        row: dict[str, Any] = {
            "model": student,
            "case": trial.case,
            "arm": trial.arm,
            "seed": trial.seed,
        }
        row |= {"asked": [request_hash.request for request_hash in result.asked]}
        row |= {"key": result.key} if self.acts else {}
        row |= {"error": _scrub_text(result.error, Counter())} if result.passed is None else {}
        row |= {"redacted": True} if counts else {}
        self.write({"trial": row})
        self.done.trials += 1
        self.done.redacted += counts
        if counts:
            self.done.redacted_cases[trial.case] = None
        for (number, request), reply in replies.items():
            if (number, request) not in self.written:
                self.written.add((number, request))
                self.done.replies += 1
                if reply.model == self.models[number].name:
                    reply = replace(reply, model=self.names[number])  # noqa: PLW2901
                # The file that somebody wrote it into is of no use elsewhere.
                known = {
                    name: value
                    for name, value in fields_of(reply).items()
                    if value and name != "file"
                }
                row = {"by": number, "request": request, "text": "", **known, "usage": reply.usage}
                self.write({"reply": row})


def scrub(reply: Reply, counts: Counter[str]) -> Reply:
    """The reply without secrets; what was found is added to `counts`."""
    return replace(
        reply,
        text=_scrub_text(reply.text, counts),
        thoughts=_scrub_text(reply.thoughts, counts),
        stop_details=_scrub_text(reply.stop_details, counts),
        calls=tuple(
            ToolCall(call.id, call.name, _scrub_value(call.arguments, counts))
            for call in reply.calls
        ),
        thinking=tuple(_scrub_value(part, counts) for part in reply.thinking),
    )


def _scrub_text(text: str, counts: Counter[str]) -> str:
    from upskill.traces.redaction.redact import redact  # noqa: PLC0415 - compiles many patterns

    return redact(text, counts)


def _scrub_value(value: Mapping[str, Any], counts: Counter[str]) -> dict[str, Any]:
    from upskill.traces.redaction.redact import Redactor  # noqa: PLC0415

    redactor = Redactor(counts)
    opaque = {name: item for name, item in value.items() if name in OPAQUE}
    return (
        redactor.value({name: item for name, item in value.items() if name not in OPAQUE}) | opaque
    )
