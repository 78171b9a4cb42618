from __future__ import annotations

import asyncio
import codecs
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click
from rich.markup import escape
from rich.text import Text

from upskill.cli.console import console, note, show, show_json
from upskill.cli.help import Command
from upskill.cli.options import json_option
from upskill.errors import MissingTool, UpskillError, UsageError, did_you_mean
from upskill.inputs import MAX_INPUT_BYTES, read_input
from upskill.installation import add_extra
from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from upskill.models.embedded.weight_files import weights_path, weights_state
from upskill.models.endpoints import ENDPOINTS, first_set
from upskill.models.keys import find_keys
from upskill.models.servers import Server, find_servers
from upskill.plain import counted
from upskill.runs.stores import find_store, is_url, open_store, without_password
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
from upskill.sandboxes.gpu import check_gpu, find_toolchain, kernels_lack
from upskill.settings import Settings
from upskill.skills.agent_specs import ACP_PROGRAMS, AGENT_SPECS
from upskill.version import __version__

FIRST_THAT_WORKS = "-"  # the value of a bare --sandbox
LIMITS = ("wall", "cpu", "processes", "memory", "file_size", "disk", "output")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

EXTRAS = (
    ("bridge pydantic-ai", "pydantic_ai", "providers"),
    ("PDF, HTML, Word", "pypdf", "documents"),
    ("PostgreSQL store", "psycopg", "postgres"),
    ("trials on Ray", "ray", "ray"),
)
State = Literal["ok", "missing", "broken"]
MARKS: dict[State, str] = {
    "ok": "[green]✓[/green]",
    "missing": "[yellow]–[/yellow]",
    "broken": "[red]✗[/red]",
}
CAN_I_RUN, INSTALL, MODELS = "Can I run", "This install", "Models on this machine"
KEYS, AGENTS, PARTS = "Keys", "Agents", "Extra parts"
ACP = "agent acp:COMMAND"


@dataclass(frozen=True)
class Row:
    group: str
    what: str
    state: State
    detail: str
    fix: str = ""  # the command to run or the variable to set
    then: str = ""  # a further one-time step


@click.command("doctor", cls=Command)
@click.argument("command_line", metavar="[-- COMMAND [ARGS]...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--sandbox",
    metavar="[KIND]",
    is_flag=False,
    flag_value=FIRST_THAT_WORKS,
    help=f"Show what a sandbox blocks: {', '.join(SANDBOXES.table)} (default: the first that works here).",
)
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder whose files are copied into the workspace. It is never changed.",
)
@click.option(
    "--stdin", "stdin_file", metavar="FILE", help="A file for its standard input; - uses yours."
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="LIMIT=VALUE",
    help="Override a trial's limit: wall=300 (seconds), cpu=60, memory=2G, processes=64, file_size=1G, disk=2G, "
    "output=10M; repeatable.",
)
@click.option("--gpu", is_flag=True, help="Give it access to the NVIDIA GPU.")
@json_option
def command(
    command_line: tuple[str, ...],
    sandbox: str | None,
    workspace: Path | None,
    stdin_file: str | None,
    allowed: tuple[str, ...],
    gpu: bool,
    as_json: bool,
) -> None:
    """Check what works here (a student, a teacher, an agent, a sandbox, a GPU), and say how to fix the rest.

    Servers on this machine (Ollama, LM Studio, vLLM, llama.cpp) are asked for their models; nothing else is contacted.
    Exit code 2 if something is broken.

    With COMMAND, run it in a sandbox exactly as a trial would, and exit with its exit code. It gets an empty workspace,
    and no access to the network, your home folder or your environment variables. If it exceeds a limit, the exit code
    is 137 and a line names the limit.

    \b
    upskill doctor                       what works here
    upskill doctor --sandbox             which sandbox is used, and why
    upskill doctor -- python3 -m pytest  run a command as a trial would
    """
    if sandbox is None and not command_line:
        rows = list(_look())
        if as_json:
            show_json([asdict(row) for row in rows])
        else:
            show(*_draw(rows))
        raise click.exceptions.Exit(2 if any(row.state == "broken" for row in rows) else 0)
    limits = _parse_limits(allowed)
    chosen = asyncio.run(choose_sandbox(None if sandbox == FIRST_THAT_WORKS else sandbox))
    if gpu:
        check_gpu(chosen.backend)
    if chosen.warning:
        note(f"upskill: {chosen.warning}")
    if not command_line and as_json:
        show_json(chosen.record())
        return
    if not command_line:
        click.echo(f"{chosen.name}: {chosen.label}")
        for each in chosen.passed:
            click.echo(f"  {each}")
        for name, why in chosen.refused.items():
            click.echo(f"not {name}: {why.removeprefix(name + ': ')}")
        return
    stdin = b""
    if stdin_file is not None:
        stdin = (
            sys.stdin.buffer.read(MAX_INPUT_BYTES) if stdin_file == "-" else read_input(stdin_file)
        )
    setup = Setup(limits=limits, gpu=gpu)
    done = asyncio.run(_run_command(chosen, command_line, workspace, stdin, setup, quiet=as_json))
    if as_json:
        show_json({"sandbox": chosen.record(), **asdict(done)})
    elif done.killed_why:
        note(f"upskill: the command was killed: it {done.killed_why}")
    raise click.exceptions.Exit(done.code)


def _parse_limits(allowed: tuple[str, ...]) -> Limits:
    values: dict[str, Any] = {}
    for text in allowed:
        name, _, value = text.partition("=")
        if name not in LIMITS:
            raise UsageError(f"--allow {text}: no limit named {name!r}", did_you_mean(name, LIMITS))
        is_seconds = name in ("wall", "cpu")
        form = r"(\d+(?:\.\d+)?)()" if is_seconds else r"(\d+)\s*([KMGT]?)(?:i?B)?"
        parsed = re.fullmatch(form, value.strip(), re.IGNORECASE)
        number = float(parsed[1]) * UNITS[parsed[2].upper()] if parsed else 0
        if not number:
            hint = (
                "Pass seconds, such as 0.5."
                if is_seconds
                else "Pass a number such as 100000, 64K, 512M or 2G."
            )
            raise UsageError(f"--allow {text}: {value!r} is not a valid limit", hint)
        values[name] = number if is_seconds else int(number)
    return Limits(**values)


async def _run_command(
    chosen: SandboxChoice,
    argv: tuple[str, ...],
    workspace: Path | None,
    stdin: bytes,
    setup: Setup,
    *,
    quiet: bool,
) -> CommandResult:
    async with await chosen.backend.open(setup) as sandbox:
        if workspace is not None:
            try:
                left_out = await copy_in(sandbox, workspace)
            except OSError as error:
                raise UsageError(
                    f"{workspace} cannot be copied into the sandbox: {error.strerror}",
                    "Make room with --allow disk=SIZE.",
                ) from error
            if left_out:
                note(
                    f"upskill: not copied, because links are not followed: {', '.join(left_out[:5])}"
                )
        return await sandbox.run(
            list(argv), stdin=stdin, on_output=None if quiet else _output_printer()
        )


def _output_printer() -> OnOutput:
    """Prints what the command writes; on a terminal, without control characters."""
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


def _draw(rows: Sequence[Row]) -> Iterator[Text]:
    width = max(len(row.what) for row in rows)
    for number, group in enumerate(dict.fromkeys(row.group for row in rows)):
        if number:
            yield Text("")
        yield Text(group, style="bold")
        of_group = [row for row in rows if row.group == group]
        missing_keys = [row.fix for row in of_group if group == KEYS and row.state == "missing"]
        for row in of_group:
            if row.group != KEYS or row.state != "missing":
                detail = ": ".join(filter(None, (row.detail, row.fix)))
                yield _line(row.state, f"{row.what:<{width}}  {printable(detail)}", width)
        if missing_keys:
            which = "no other key" if len(missing_keys) < len(of_group) else "no key"
            names = ", ".join(fix.removeprefix("set ") for fix in missing_keys)
            yield _line("missing", f"{which:<{width}}  set {names}", width)


def _line(state: State, text: str, width: int) -> Text:
    """Wrapped below its second column, or further left if a word would not fit there: paths stay whole."""
    room, column = console().width, width + 6
    hanging = column if max(map(len, text[width:].split()), default=0) <= room - column else 6
    wrapped = textwrap.wrap(
        f"    {text}",
        room,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    line = Text.from_markup(
        f"  {MARKS[state]} {escape(chr(10).join(wrapped)[4:])}", overflow="ignore"
    )
    line.no_wrap = True
    return line


def _look() -> Iterator[Row]:
    keys = find_keys()
    local, sandbox, agents = list(_local()), _sandbox(), list(_agents())
    servers = find_servers(keys)
    variables: dict[str, tuple[str, ...]] = {"anthropic": ("ANTHROPIC_API_KEY",)}
    variables |= {name: row.key_variables for name, row in ENDPOINTS.items() if row.key_required}
    key_rows: list[Row] = []
    for name, names in variables.items():
        if known := next((variable for variable in names if keys.get(variable)), None):
            key_rows.append(Row(KEYS, f"key {name}", "ok", f"{known} is set"))
        else:
            key_rows.append(Row(KEYS, f"key {name}", "missing", "no key", f"set {names[0]}"))
    yield from _answers(local, servers, key_rows, agents, sandbox)
    yield Row(INSTALL, "upskill", "ok", f"{__version__} on Python {sys.version.split()[0]}")
    settings = Settings()
    try:
        settings = Settings.load()
        yield Row(INSTALL, "settings", "ok", settings.source or "defaults (no upskill.config.yaml)")
    except UpskillError as error:
        yield Row(INSTALL, "settings", "broken", error.message, error.hint)
    yield _store(settings)
    yield from local
    yield from _servers(servers, keys)
    yield from key_rows
    yield from agents
    yield from (_package(PARTS, *part) for part in EXTRAS)


def _answers(
    local: list[Row], servers: list[Server], keys: list[Row], agents: list[Row], sandbox: Row
) -> Iterator[Row]:
    runtime, weights = local[0], local[1:]
    embedded = (
        ["local"] if runtime.state == "ok" and any(row.state == "ok" for row in weights) else []
    )
    if runtime.state == "ok" and not embedded:
        embedded = ["local (weights are downloaded first)"]
    served = [f"{server.name}:{server.models[0]}" for server in servers if server.models]
    remote = [f"{row.what.removeprefix('key ')}:MODEL" for row in keys if row.state == "ok"]
    programs = [
        row.what.removeprefix("agent ") for row in agents if row.state == "ok" and row.what != ACP
    ]
    plain = [name for name in programs if AGENT_SPECS[name].model]
    yield _answer("a student", [*embedded, *served, *remote, *plain], "no model", runtime.fix)
    by_hand = "set ANTHROPIC_API_KEY, or use --handoff FOLDER"
    yield _answer("a teacher", [*remote, *plain, *served], "no key, server or agent", by_hand)
    acting = ["tools (upskill's own)"] if sandbox.state == "ok" else []
    acting += [name for name in programs if AGENT_SPECS[name].agent and sandbox.state == "ok"]
    yield _answer("an agent", acting, "an agent needs a sandbox", sandbox.fix)
    yield sandbox
    yield from _gpu(served)


def _answer(what: str, names: list[str], otherwise: str, fix: str) -> Row:
    if names:
        return Row(CAN_I_RUN, what, "ok", f"yes: {', '.join(names)}")
    return Row(CAN_I_RUN, what, "missing", otherwise, fix)


def _gpu(served: list[str]) -> Iterator[Row]:
    name, compiling = _gpu_name(), "compile CUDA kernels"
    if not name:
        yield Row(CAN_I_RUN, "on a GPU", "missing", "no GPU found; embedded models run on the CPU")
    elif served:
        yield Row(CAN_I_RUN, "on a GPU", "ok", f"{name}, through {served[0]}")
    else:
        fix = "ollama serve, or vllm serve MODEL"
        yield Row(CAN_I_RUN, "on a GPU", "missing", f"{name}, but no server uses it", fix)
    try:
        nvcc = find_toolchain().nvcc
        if shutil.which("g++"):
            yield Row(CAN_I_RUN, compiling, "ok", f"yes: {nvcc}")
        else:
            yield Row(
                CAN_I_RUN, compiling, "missing", f"{nvcc} needs g++", "install g++ for all users"
            )
    except MissingTool:
        yield Row(
            CAN_I_RUN, compiling, "missing", "no CUDA compiler (nvcc) found", add_extra("cuda")
        )
    if missing := kernels_lack():
        yield Row(CAN_I_RUN, "run CUDA kernels", "missing", *missing)
    else:
        yield Row(CAN_I_RUN, "run CUDA kernels", "ok", f"yes: {name or 'an NVIDIA GPU'}")


def _gpu_name() -> str:
    if program := shutil.which("nvidia-smi"):
        command = [program, "--query-gpu=name", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else ""
    return "Apple GPU" if sys.platform == "darwin" else ""


def _store(settings: Settings) -> Row:
    try:
        if existing := find_store(settings.store):
            with existing as store:
                return Row(
                    INSTALL,
                    "store",
                    "ok",
                    f"{store.location} ({counted(store.count_runs(), 'run')})",
                )
        if is_url(settings.store):
            return Row(
                INSTALL,
                "store",
                "ok",
                f"{without_password(settings.store)} is reachable and has no runs yet",
            )
        folder = Path(settings.store)
        near = next(
            parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir()
        )
        with tempfile.TemporaryDirectory(dir=near) as trial, open_store(trial):
            return Row(INSTALL, "store", "ok", f"{folder} is writable")
    except (UpskillError, OSError) as error:
        return Row(
            INSTALL, "store", "broken", str(error), "set another `store` in upskill.config.yaml"
        )


def _sandbox() -> Row:
    try:
        chosen = asyncio.run(choose_sandbox())
    except UpskillError as error:
        best = next(
            (line.strip() for line in error.hint.splitlines() if line.startswith("    ")),
            error.hint,
        )
        return Row(CAN_I_RUN, "a sandbox", "missing", error.message, best)
    detail = ": ".join(filter(None, (chosen.label, chosen.reduced)))
    return Row(CAN_I_RUN, "a sandbox", "ok", detail)


def _servers(servers: list[Server], keys: Mapping[str, str]) -> Iterator[Row]:
    by_name = {server.name: server for server in servers}
    for name, row in ENDPOINTS.items():
        if row.key_required:
            continue
        server = by_name.get(name)
        if server is None:
            if url := first_set(keys, row.url_variables):
                yield Row(
                    MODELS,
                    f"server {name}",
                    "ok",
                    f"{url} (on another machine, contacted when used)",
                )
            else:
                fix = f"set {row.url_variables[0]}, or use --base-url URL"
                yield Row(MODELS, f"server {name}", "missing", "no address", fix)
        elif server.models:
            more = f" and {len(server.models) - 3} more" if len(server.models) > 3 else ""
            yield Row(
                MODELS,
                f"server {name}",
                "ok",
                f"{server.url} has {', '.join(server.models[:3])}{more}",
            )
        elif server.is_running or server.problem:
            yield Row(MODELS, f"server {name}", "missing", f"{server.url}: {server.problem}")
        else:
            yield Row(
                MODELS, f"server {name}", "missing", f"not running at {server.url}", row.start
            )


def _agents() -> Iterator[Row]:
    for spec in (spec for spec in AGENT_SPECS.values() if spec.program):
        path = shutil.which(spec.program)
        companion, install = spec.companion
        if path is None:
            detail = f"{spec.program} is not on PATH"
            yield Row(AGENTS, f"agent {spec.name}", "missing", detail, spec.install, spec.log_in)
            continue
        also = (
            f" (to run as a student, it also needs {install})"
            if companion and not shutil.which(companion)
            else ""
        )
        yield Row(AGENTS, f"agent {spec.name}", "ok", path + also)
    if installed := [f"acp:{name}" for name in ACP_PROGRAMS if shutil.which(name)]:
        yield Row(AGENTS, ACP, "ok", ", ".join(installed))
    else:
        yield Row(AGENTS, ACP, "missing", f"none is on PATH: {', '.join(ACP_PROGRAMS)}")


def _package(group: str, what: str, package: str, extra: str) -> Row:
    if importlib.util.find_spec(package) is None:
        return Row(group, what, "missing", "not installed", add_extra(extra))
    return Row(group, what, "ok", package)


def _local() -> Iterator[Row]:
    yield _package(MODELS, "local runtime", "xllamacpp", "local")
    for name, row in LOCAL_MODELS.items():
        here, fix = weights_state(row), f"upskill models pull {name}"
        if here == "ready":
            yield Row(MODELS, f"local:{name}", "ok", str(weights_path(row)))
        elif here == "damaged":
            yield Row(MODELS, f"local:{name}", "broken", f"{weights_path(row)} is damaged", fix)
        elif name == DEFAULT_LOCAL_MODEL:
            yield Row(MODELS, f"local:{name}", "missing", "downloaded on first use, or now", fix)
