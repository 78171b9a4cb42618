from __future__ import annotations

import os

import click

from upskill.cli.help import Command
from upskill.errors import UsageError
from upskill.installation import add_extra


@click.command("mcp", cls=Command)
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False))
def command(folder: str) -> None:
    """Serve validate, eval, show and report to an agent, over MCP on standard input and output.

    \b
    claude mcp add upskill -- upskill mcp     in Claude Code, for this project
    upskill mcp ~/src/my-skills               any other agent starts this command

    The agent can only name paths inside FOLDER (default: the current folder). It cannot change settings, choose another
    store or turn the sandbox off. Above the setting confirm_above, it has to name the most that may be spent.
    """
    os.chdir(folder)
    try:
        from upskill.cli.mcp_server import serve  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "`upskill mcp` needs the package mcp (2 or newer), which is not installed"
        raise UsageError(message, f"Run `{add_extra('mcp')}`.") from error
    serve()
