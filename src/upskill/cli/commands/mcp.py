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
    store or turn the sandbox off. To spend more than the confirm_above setting, it has to set a limit.
    """
    os.chdir(folder)
    try:
        from upskill.cli.mcp_server import serve  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "`upskill mcp` needs the `mcp` package (2 or newer), which is not installed"
        raise UsageError(message, f"Run `{add_extra('mcp')}`.") from error
    serve()
