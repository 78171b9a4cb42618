"""`upskill sandbox`: run a command exactly as a trial would, or say which sandbox works here."""

from __future__ import annotations

import asyncio
import codecs
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from upskill.cli.console import note, show_json
from upskill.cli.help import Command
from upskill.cli.options import FiniteRange, json_option
from upskill.errors import UsageError
from upskill.inputs import MAX_INPUT_BYTES, read_input
from upskill.sandboxes import (
    SANDBOXES,
    CommandResult,
    Limits,
    OnOutput,
    SandboxChoice,
    Setup,
    Stream,
    choose_sandbox,
    printable,
)
from upskill.sandboxes.files import copy_in
from upskill.sandboxes.gpu import check_gpu

SECONDS = FiniteRange(min=0, min_open=True)
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
DEFAULTS = Limits()


def _bytes(_: click.Context, __: click.Parameter, written: str) -> int:
    """A number of bytes: 100000, 64K, 512M, 2G."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", written.strip(), re.IGNORECASE)
    if not found or not int(found[1]):
        raise click.BadParameter(f"{written!r} is not a size; write 100000, 64K, 512M or 2G")
    return int(found[1]) * UNITS[found[2].upper()]


def _size(name: str, default: str, line: str) -> Callable[[Any], Any]:
    return click.option(name, metavar="SIZE", default=default, show_default=True, callback=_bytes, help=line)


@click.command("sandbox", cls=Command, context_settings={"ignore_unknown_options": False})
@click.argument("command_line", metavar="[-- COMMAND [ARGS]...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--kind", metavar="NAME", help=f"Which sandbox: {', '.join(SANDBOXES.table)} (default: the first that works)."
)
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder whose files are copied into the workspace. It is never written to.",
)
@click.option("--stdin", "given", metavar="FILE", help="A file for its standard input; - passes ours on.")
@click.option("--wall", type=SECONDS, default=DEFAULTS.wall, show_default=True, metavar="SECONDS", help="Time limit.")
@click.option(
    "--cpu",
    type=SECONDS,
    default=DEFAULTS.cpu,
    show_default=True,
    metavar="SECONDS",
    help="Processor time of all its processes.",
)
@_size("--memory", "1G", "Memory of all its processes.")
@click.option(
    "--processes",
    type=click.IntRange(min=4),
    default=DEFAULTS.processes,
    show_default=True,
    metavar="N",
    help="How many processes and threads it may have.",
)
@_size("--file-size", "256M", "Size of its largest file.")
@_size("--disk", "512M", "Size of all its files together.")
@_size("--output", "1M", "How much it may print.")
@click.option("--gpu", is_flag=True, help="Show it the NVIDIA GPU.")
@json_option
def command(
    command_line: tuple[str, ...],
    kind: str | None,
    workspace: Path | None,
    given: str | None,
    wall: float,
    cpu: float,
    memory: int,
    processes: int,
    file_size: int,
    disk: int,
    output: int,
    gpu: bool,
    as_json: bool,
) -> None:
    """Run COMMAND in a sandbox, exactly as a trial would, and end with its exit code.

    It has no network, no home folder and none of your environment, and starts in an empty workspace. A command that
    exceeds a limit ends with exit code 137, and a line says which. Without COMMAND, show which sandbox works here.
    """
    limits = Limits(
        wall=wall, cpu=cpu, memory=memory, processes=processes, file_size=file_size, disk=disk, output=output
    )
    chosen = asyncio.run(choose_sandbox(kind))
    if gpu:
        check_gpu(chosen.backend)
    if chosen.warning:
        note(f"upskill: {chosen.warning}")
    if not command_line:
        _show(chosen, as_json=as_json)
        return
    stdin = b"" if given is None else sys.stdin.buffer.read(MAX_INPUT_BYTES) if given == "-" else read_input(given)
    setup = Setup(limits=limits, gpu=gpu)
    done = asyncio.run(_run(chosen, command_line, workspace, stdin, setup, quiet=as_json))
    if as_json:
        show_json({"sandbox": chosen.record(), **asdict(done)})
    elif done.killed_why:
        note(f"upskill: the command was ended: it {done.killed_why}")
    raise click.exceptions.Exit(done.code)


async def _run(
    chosen: SandboxChoice, argv: tuple[str, ...], workspace: Path | None, stdin: bytes, setup: Setup, *, quiet: bool
) -> CommandResult:
    async with await chosen.backend.open(setup) as sandbox:
        if workspace is not None:
            try:
                left_out = await copy_in(sandbox, workspace)
            except OSError as error:
                raise UsageError(
                    f"{workspace}: cannot be copied into the sandbox: {error.strerror}", "Give it room with --disk."
                ) from error
            if left_out:
                note(f"upskill: not copied, as links are not followed: {', '.join(left_out[:5])}")
        return await sandbox.run(list(argv), stdin=stdin, on_output=None if quiet else _output_printer())


def _output_printer() -> OnOutput:
    """Prints what the command writes, as it is; on a terminal without control characters."""
    streams = {"output": sys.stdout, "error": sys.stderr}
    decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in streams}

    def write(stream: Stream, data: bytes) -> None:
        target = streams[stream]
        if target.isatty():
            target.write(printable(decoders[stream].decode(data)))
        else:
            target.buffer.write(data)
        target.flush()

    return write


def _show(chosen: SandboxChoice, *, as_json: bool) -> None:
    if as_json:
        show_json(chosen.record())
        return
    click.echo(f"{chosen.name}: {chosen.label}")
    for each in chosen.passed:
        click.echo(f"  {each}")
    for name, why in chosen.refused.items():
        click.echo(f"not {name}: {why.removeprefix(name + ': ')}")
