"""`plot`: what Hugging Face's upskill also calls `runs`."""

from __future__ import annotations

import click

from upskill.cli.commands.runs import command as runs
from upskill.cli.help import Command
from upskill.errors import UsageError


class _Plot(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-"):
            raise UsageError(
                f"`upskill plot` lists the runs. To draw one: upskill export {args[0]} --format svg"
            )
        return super().parse_args(ctx, args)


command = _Plot("plot", params=[*runs.params], callback=runs.callback, help=runs.help)
