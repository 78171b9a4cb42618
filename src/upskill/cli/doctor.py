"""`upskill doctor`: which models, keys, sandboxes and stores work here, and how to fix the rest."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click
from rich.markup import escape
from rich.table import Table

from upskill.cli.console import show, show_json
from upskill.cli.help import Command
from upskill.cli.options import json_option
from upskill.errors import UpskillError
from upskill.installation import add_extra
from upskill.models.endpoints import ENDPOINTS
from upskill.models.keys import read_keys
from upskill.settings import Settings
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.version import __version__

State = Literal["ok", "missing", "broken"]
Row = tuple[str, State, str]


@click.command("doctor", cls=Command)
@json_option
def command(as_json: bool) -> None:
    """Check which models, keys, sandboxes and stores work here, and say how to fix the rest."""
    rows = list(_look())
    if as_json:
        show_json([{"what": what, "state": state, "detail": detail} for what, state, detail in rows])
    else:
        colours = {"ok": "green", "missing": "yellow", "broken": "red"}
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        table.add_column(overflow="fold")
        for what, state, detail in rows:
            table.add_row(what, f"[{colours[state]}]{state}[/{colours[state]}]", escape(detail))
        show(table)
    if any(state == "broken" for _, state, _ in rows):
        raise click.exceptions.Exit(2)


def _look() -> Iterator[Row]:
    yield "upskill", "ok", f"{__version__} on Python {sys.version.split()[0]}"
    settings = Settings()
    try:
        settings = Settings.load()
        yield "settings", "ok", settings.source or "defaults (no upskill.config.yaml)"
    except UpskillError as error:
        yield "settings", "broken", f"{error.message} {error.hint}"
    yield _store(settings)
    yield from _local()
    yield _sandbox()
    keys = read_keys(os.environ, Path(".env"))
    yield _key("anthropic", ("ANTHROPIC_API_KEY",), keys)
    for name, row in ENDPOINTS.items():
        if row.key_required:
            yield _key(name, row.key_variables, keys)
        else:
            place = next((keys[variable] for variable in row.url_variables if keys.get(variable)), row.base_url)
            detail = f"{place} (contacted when used)" if place else f"set {row.url_variables[0]} or use --base-url"
            yield f"server {name}", "ok" if place else "missing", detail
    yield from _agents()
    yield from _extras()


def _store(settings: Settings) -> Row:
    from upskill.runs.stores import find_store, open_store  # noqa: PLC0415

    try:
        if found := find_store(settings.runs_dir):
            with found as store:
                return "store", "ok", f"{store.location} ({store.count_runs()} runs)"
        folder = Path(settings.runs_dir)
        near = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
        with tempfile.TemporaryDirectory(dir=near) as trial, open_store(trial):
            return "store", "ok", f"{folder} can be written"
    except (UpskillError, OSError) as error:
        return "store", "broken", f"{error}; choose another folder with --runs-dir"


def _sandbox() -> Row:
    from upskill.sandboxes import choose_sandbox  # noqa: PLC0415

    try:
        chosen = asyncio.run(choose_sandbox())
    except UpskillError as error:
        return "sandbox", "missing", f"{error.message} {error.hint}"
    return "sandbox", "ok", chosen.label


def _agents() -> Iterator[Row]:
    for spec in (spec for spec in AGENT_SPECS.values() if spec.program):
        found = shutil.which(spec.program)
        companion, install = spec.companion
        if found and companion and shutil.which(companion) is None:
            found += f" (as a student that acts it also needs {install})"
        missing = f"{spec.program} is not on PATH: {spec.install}, then {spec.log_in}"
        yield f"agent {spec.name}", "ok" if found else "missing", found or missing


def _extras() -> Iterator[Row]:
    for what, package, extra in (
        ("bridge pydantic-ai", "pydantic_ai", "providers"),
        ("MCP servers", "mcp", "mcp"),
        ("PDF, HTML, Word", "pypdf", "documents"),
    ):
        found = importlib.util.find_spec(package) is not None
        yield what, "ok" if found else "missing", package if found else add_extra(extra)


def _local() -> Iterator[Row]:
    from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS  # noqa: PLC0415
    from upskill.models.embedded.weights import weights_path, weights_state  # noqa: PLC0415

    if importlib.util.find_spec("xllamacpp") is None:
        yield "local runtime", "missing", add_extra("local")
    else:
        yield "local runtime", "ok", "xllamacpp"
    for name, row in LOCAL_MODELS.items():
        here = weights_state(row)
        if here == "ready":
            yield f"local:{name}", "ok", str(weights_path(row))
        elif here == "damaged":
            yield f"local:{name}", "broken", f"{weights_path(row)} is damaged: upskill models pull {name}"
        elif name == DEFAULT_LOCAL_MODEL:
            yield f"local:{name}", "missing", f"downloaded at first use, or now with upskill models pull {name}"


def _key(name: str, variables: tuple[str, ...], keys: dict[str, str]) -> Row:
    found = next((variable for variable in variables if keys.get(variable)), None)
    return f"key {name}", "ok" if found else "missing", f"{found} is set" if found else f"set {variables[0]}"
