from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from upskill.cli.console import note, show, show_json
from upskill.cli.help import Group
from upskill.cli.options import json_option
from upskill.errors import UsageError
from upskill.plain import counted
from upskill.reports.answers import render_step
from upskill.traces import Step
from upskill.traces.formats import describe_skipped, read_trace
from upskill.traces.redaction.redact import redact, redact_trace
from upskill.traces.sessions import SESSION_AGENTS, find_sessions, find_trace

if TYPE_CHECKING:
    from rich.console import RenderableType

    from upskill.traces.redaction.redact import Redaction

USAGE = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd")


class ShowFirst(Group):
    """`upskill trace FILE` means `upskill trace show FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and args[0] not in self.commands and not args[0].startswith("-")
        return super().parse_args(ctx, ["show", *args] if named else args)


@click.group("trace", cls=ShowFirst)
def command() -> None:
    """List the agent sessions on this machine, or show one as a timeline."""


@command.command("list")
@click.option(
    "-a",
    "--agent",
    metavar="AGENT",
    default="",
    help=f"Only this agent: {', '.join(SESSION_AGENTS)}.",
)
@click.option(
    "-n",
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=15,
    show_default=True,
    help="How many to list.",
)
@json_option
def list_command(agent: str, limit: int, as_json: bool) -> None:
    """List recent sessions of the agents on this machine, latest first."""
    sessions = find_sessions(agent)
    rows: list[dict[str, Any]] = []
    for session in sessions[:limit]:
        try:
            trace = read_trace(session.path)
        except UsageError as error:
            note(f"Skipped: {error.message}")
            continue
        rows.append(
            {
                "agent": session.agent,
                "when": datetime.fromtimestamp(session.changed, UTC).isoformat(timespec="seconds"),
                "folder": redact(trace.cwd),
                "goal": redact(" ".join(trace.goal.split())),
                "calls": len(trace.calls),
                "session": session.name,
                "path": str(session.path),
            }
        )
    if as_json:
        show_json(rows)
        return
    if not rows:
        looked = ", ".join(spec.title for spec in SESSION_AGENTS.values())
        note(f"No sessions found. Looked for sessions of {looked}.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Agent", "When", "Calls", "Folder", "Goal"):
        table.add_column(name, no_wrap=True, justify="right" if name == "Calls" else "left")
    for row in rows:
        when, folder = row["when"][:16].replace("T", " "), row["folder"]
        folder = folder if len(folder) <= 30 else "…" + folder[-29:]
        goal = row["goal"] if len(row["goal"]) <= 48 else row["goal"][:47] + "…"
        table.add_row(*map(escape, (row["agent"], when, str(row["calls"]), folder, goal)))
    show(table)
    if len(sessions) > len(rows):
        note(f"{len(sessions) - len(rows)} older ones not shown. Use --limit to show more.")


@command.command("show")
@click.argument("source", metavar="PATH|AGENT:last")
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    default="",
    help="Read it in this format instead of detecting it.",
)
@click.option(
    "--full", is_flag=True, help="Every line of every step (default: the first few of each)."
)
@json_option
def show_command(source: str, format_: str, full: bool, as_json: bool) -> None:
    """Show what happened in a session, step by step, with secrets redacted."""
    redaction = redact_trace(read_trace(find_trace(source), format_))
    if as_json:
        show_json(to_dict(redaction))
    else:
        show(*_timeline(redaction, max_lines=None if full else 6))
    for warning in redaction.trace.warnings:
        note(f"Warning: {warning}")
    if redaction.trace.skipped:
        note(f"Skipped: {describe_skipped(redaction.trace.skipped, most=20)}.")
    note(redaction.summary[0].upper() + redaction.summary[1:] + ".")


def to_dict(redaction: Redaction) -> dict[str, Any]:
    """Steps count from 1."""
    trace = redaction.trace
    return {
        "agent": trace.agent,
        "source": trace.source,
        "session": trace.session,
        "folder": trace.cwd,
        "started": trace.started,
        "model": trace.model,
        "goal": trace.goal,
        "usage": {name: getattr(trace.usage, name) for name in USAGE},
        "stop": trace.stop,
        "malformed_lines": trace.malformed,
        "warnings": list(trace.warnings),
        "skipped": dict(trace.skipped),
        "redacted": dict(redaction.counts),
        "steps": [_plain_step(number, step) for number, step in enumerate(trace.steps, start=1)],
    }


def _plain_step(number: int, step: Step) -> dict[str, Any]:
    row: dict[str, Any] = {"step": number, "kind": step.kind}
    if step.kind == "tool":
        row |= {
            "tool": step.tool,
            "arguments": step.arguments,
            "output": step.output,
            "status": step.status,
        }
        row |= {"seconds": step.seconds} if step.seconds is not None else {}
    else:
        row["text"] = step.text
    return row | {name: value for name, value in (("at", step.at), ("agent", step.agent)) if value}


def _timeline(redaction: Redaction, max_lines: int | None) -> Iterator[RenderableType]:
    trace = redaction.trace
    usage = trace.usage
    cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
    tokens = (
        f", {usage.input_tokens:,} + {usage.output_tokens:,} tokens"
        if usage.input_tokens + usage.output_tokens
        else ""
    )
    about = [
        ("agent", " ".join(filter(None, [trace.agent, trace.model]))),
        ("folder", trace.cwd),
        ("started", trace.started),
        (
            "source",
            trace.source if len(trace.source) <= 100 else str(Path("…") / Path(trace.source).name),
        ),
        ("used", f"{counted(len(trace.calls), 'tool call')}{tokens}{cost}"),
    ]
    yield from (Text(f"{name:<8} {value}", style="dim") for name, value in about if value)
    yield Text("")
    for number, step in enumerate(trace.steps, start=1):
        yield render_step(number, step, max_lines=max_lines)
