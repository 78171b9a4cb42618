"""`upskill models`: the embedded models and the names that other models go by."""

from __future__ import annotations

import asyncio

import click
from rich.table import Table

from upskill.cli.console import note, show, show_json
from upskill.cli.options import CommandOptions, json_option, quiet_option
from upskill.models.addresses import ALIASES, COMMANDS
from upskill.models.embedded.local_models import LOCAL_MODELS, find_local_model
from upskill.models.embedded.weights import pull_weights, weights_path, weights_state
from upskill.models.endpoints import ENDPOINTS


@click.group("models", invoke_without_command=True)
@json_option
@click.pass_context
def group(context: click.Context, as_json: bool) -> None:
    """List the embedded models with size, licence and state.

    \b
    upskill models                    the list
    upskill models pull NAME          download the weights of one
    """
    if context.invoked_subcommand is not None:
        return
    if as_json:
        show_json(
            [
                {
                    "name": row.name,
                    "size": row.size,
                    "licence": row.licence,
                    "context": row.context,
                    "source": row.source,
                    "state": weights_state(row),
                    "path": str(weights_path(row)),
                }
                for row in LOCAL_MODELS.values()
            ]
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Name", "Size", "Licence", "Context", "State", "Source", "Good for"):
        table.add_column(column, justify="right" if column in ("Size", "Context") else "left")
    for row in LOCAL_MODELS.values():
        size = f"{row.size / 1e6:,.0f} MB"
        table.add_row(
            f"local:{row.name}", size, row.licence, f"{row.context:,}", weights_state(row), row.source, row.advice
        )
    show(table)
    click.echo()
    click.echo(f"local is {next(iter(LOCAL_MODELS))}; local:/path/to/model.gguf takes any other file.")
    click.echo(f"Servers: {', '.join(f'{name}:MODEL' for name in ('anthropic', *ENDPOINTS))}.")
    click.echo(f"Command-line agents: {', '.join(COMMANDS)}.")
    click.echo(f"Short names: {', '.join(f'{alias} = {name}' for alias, name in ALIASES.items())}.")


@group.command("pull")
@click.argument("name")
@quiet_option
def pull_command(name: str, quiet: bool) -> None:
    """Download the weights of the embedded model NAME into the cache folder."""
    row = find_local_model(name.removeprefix("local:"))
    if weights_state(row) == "ready":
        note(f"{row.name} is already here.")
    else:
        asyncio.run(pull_weights(row, CommandOptions(quiet=quiet).model_context()))
    click.echo(weights_path(row))
