from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from upskill.cli.commands.completion import complete_runs
from upskill.cli.console import note
from upskill.cli.help import Command
from upskill.cli.options import (
    find_project_store,
    find_run,
    open_existing_store,
    say_nothing_yet,
    store_option,
)
from upskill.runs.stores import Store

YIELDING = 15  # lower priority: a run in progress comes first


@click.command("view", cls=Command)
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="The port to listen on; 0 picks a free one (default 8321, or a free one if taken).",
)
@click.option("--no-browser", is_flag=True, help="Print the address; do not open a browser.")
@store_option
def command(run: str | None, port: int | None, no_browser: bool, store: str | None) -> None:
    """View stored runs in a browser, live while they run: verdicts, cases, answers, comparisons.

    RUN opens the page of that run. The pages are served only on this machine, under an address that nobody can guess.
    Marks on answers (right, wrong, odd) are stored with the run. Ctrl-C stops it.

    \b
    upskill view                 all runs
    upskill view last            the last one
    upskill view --no-browser    on another machine, with the port forwarded
    """
    found = open_existing_store(store) if run else find_project_store(store)
    if found is None:
        say_nothing_yet(
            "no run is stored here",
            "`upskill eval SKILL` creates one, and `upskill view` shows it.",
        )
        return
    with found as opened:
        first = find_run(opened, run).id if run else ""
        asyncio.run(_serve(opened, port, first, browser=not no_browser and _has_browser()))


async def _serve(store: Store, port: int | None, run: str, *, browser: bool) -> None:
    from upskill.reports.live import LivePage, serving  # noqa: PLC0415 - aiohttp comes with it

    page, ended = LivePage(store), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with serving(page, port) as open_port:
        address = page.address(open_port, run)
        click.echo(address)
        note("Open it in a browser on this machine; Ctrl-C stops it.")
        with _page_that_leads_to(address) as start:
            if browser:
                import webbrowser  # noqa: PLC0415

                await asyncio.to_thread(webbrowser.open, start.as_uri())
            if hasattr(os, "nice"):
                os.nice(YIELDING)
            await ended.wait()
    note("Ended.")


@contextmanager
def _page_that_leads_to(address: str) -> Generator[Path]:
    """A file that only you can read: everybody can see the command lines of browsers, and the address has a token."""
    with tempfile.NamedTemporaryFile("w", prefix="upskill-view-", suffix=".html") as file:
        file.write(f'<meta http-equiv="refresh" content="0; url={address}">\n')
        file.flush()
        yield Path(file.name)


def _has_browser() -> bool:
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY") or not sys.stdout.isatty():
        return False
    if sys.platform == "darwin":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
