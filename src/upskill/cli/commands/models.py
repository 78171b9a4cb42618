from __future__ import annotations

import asyncio
from typing import Any

import click
from rich.text import Text

from upskill.cli.console import note, show, show_json
from upskill.cli.help import Group
from upskill.cli.options import CommandOptions, json_option, quiet_option
from upskill.errors import UsageError
from upskill.models.addresses import ALIASES, COMMANDS
from upskill.models.embedded.capacity import measured_speed
from upskill.models.embedded.local_models import (
    DEFAULT_LOCAL_MODEL,
    LOCAL_MODELS,
    LocalModel,
    find_local_model,
)
from upskill.models.embedded.weight_files import bytes_on_disk, weights_path, weights_state
from upskill.models.endpoints import ENDPOINTS
from upskill.reports.layout import FittedTable, Paragraph
from upskill.reports.report import Column

COLUMNS = (
    Column("Name", "code"),
    Column("Download", "count"),
    Column("Memory", "count", spare=True),
    Column("License", "code", spare=True),
    Column("State", "code"),
    Column("Speed", "count"),
    Column("Good for", "code"),
)


@click.group("models", cls=Group, invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the embedded models with size, license and state.

    \b
    upskill models                    the list
    upskill models show NAME          details of one
    upskill models pull NAME          download its weights
    upskill models rm NAME            remove them
    """
    if context.invoked_subcommand is not None:
        return
    if as_json:
        show_json([_facts(row) for row in LOCAL_MODELS.values()])
        return
    rows: list[list[Text]] = []
    for row in LOCAL_MODELS.values():
        speed = measured_speed(row.file)
        cells = (
            f"local:{row.name}",
            _size(row.size),
            _size(row.memory()),
            row.license,
            _state(row),
            f"{speed.write:,.0f}/s" if speed else "",
            row.advice,
        )
        rows.append(list(map(Text, cells)))
    table = FittedTable(COLUMNS, rows, indent=0)
    lines = (
        "Memory: for one server with a full context. More servers share its weights.",
        "Speed: tokens written per second on this machine, once measured.",
        f"Model cards: {', '.join(row.card for row in list(LOCAL_MODELS.values())[:3])}.",
        "Details: upskill models show NAME.",
        f"local is {DEFAULT_LOCAL_MODEL}; local:/path/to/model.gguf uses any other file.",
        f"Servers: {', '.join(f'{name}:MODEL' for name in ('anthropic', *ENDPOINTS))}.",
        f"Command-line agents: {', '.join(COMMANDS)}.",
        f"Short names: {', '.join(f'{alias} = {name}' for alias, name in ALIASES.items())}.",
    )
    show(table, Text(""), *(Paragraph(line, indent=0, hanging=2) for line in lines))


def _state(row: LocalModel) -> str:
    """A broken entry must not hide the others; `show` says what is wrong with it."""
    try:
        return weights_state(row)
    except UsageError:
        return "unreadable"


@command.command("show")
@click.argument("name")
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Show everything about the embedded model NAME: where it comes from, what it needs, what it can do."""
    row = _find(name)
    if as_json:
        show_json(_facts(row))
        return
    state, here, speed = weights_state(row), bytes_on_disk(row), measured_speed(row.file)
    unfinished = f", {_size(here)} already downloaded" if state == "absent" and here else ""
    lines = {
        "Name": f"local:{row.name}",
        "State": state + unfinished,
        "Can": row.can,
        "Cannot": row.cannot,
        "File": f"{row.size / 1e6:,.0f} MB, {'to be ' if state == 'absent' else ''}stored as {weights_path(row)}",
        "Download": f"{row.size / 1e6:,.0f} MB from {row.source}",
        "Memory": f"about {_size(row.memory())} per server, with a context of {row.context:,} tokens",
        "Speed": f"reads {speed.read:,.0f} and writes {speed.write:,.0f} tokens per second on this machine"
        if speed
        else "not measured on this machine yet",
        "License": f"{row.license}, see {row.card}",
        "SHA-256": row.sha256 or "as stated on the hub",
    }
    for label, text in lines.items():
        click.echo(f"{label:<9} {text}")


@command.command("pull")
@click.argument("name")
@quiet_option
def pull_command(name: str, quiet: bool) -> None:
    """Download the weights of the embedded model NAME into the cache folder.

    An interrupted download continues where it left off.
    """
    from upskill.models.embedded.weights import pull_weights  # noqa: PLC0415 - loads aiohttp

    row = _find(name)
    if weights_state(row) == "ready":
        note(f"{row.name} is already downloaded.")
    else:
        asyncio.run(pull_weights(row, CommandOptions(quiet=quiet).model_context()))
    click.echo(weights_path(row))


@command.command("rm")
@click.argument("name")
def remove_command(name: str) -> None:
    """Remove the weights of the embedded model NAME from the cache folder, complete or not."""
    from upskill.models.embedded.weights import remove_weights  # noqa: PLC0415 - loads aiohttp

    row = _find(name)
    path = weights_path(row)
    target = path.readlink() if path.is_symlink() else None
    freed = asyncio.run(remove_weights(row))
    if target is not None:
        click.echo(f"Removed the link {path}. The file it points to was kept: {target}")
    elif freed:
        click.echo(f"Removed {row.name} from {path.parent}: {_size(freed)} freed.")
    else:
        click.echo(f"{row.name} is not downloaded: nothing to remove in {path.parent}.")


def _find(name: str) -> LocalModel:
    if not name.strip():
        raise UsageError("no model given", "`upskill models` lists the names.")
    return find_local_model("" if name == "local" else name.removeprefix("local:"))


def _facts(row: LocalModel) -> dict[str, Any]:
    speed = measured_speed(row.file)
    names = ("name", "size", "context", "license", "card", "source", "sha256", "can", "cannot")
    return {name: getattr(row, name) for name in names} | {
        "state": _state(row),
        "path": str(weights_path(row)),
        "on_disk": bytes_on_disk(row),
        "download_size": row.size,
        "memory": row.memory(),
        "speed": {"read": speed.read, "write": speed.write} if speed else None,
    }


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 999.5e6 else f"{count / 1e6:,.0f} MB"
