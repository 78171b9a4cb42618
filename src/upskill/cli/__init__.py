"""The command line: one thin file per command in `commands` (`COMMANDS`), imported only when that command runs.

`options` makes flags from options classes and finds stored runs; `eval_options` has those of eval and benchmark;
`library` is what ci and experiments share; `last_verdicts` reads the last verdicts of a skill; `forecast` says what
`eval --plan` found; `help` lays out help pages; `console` prints; `progress` shows slow
work; `watch` waits for saved files; `log` sets up logging for `-v`.

Only this part prints and exits. Standard output is the result; notes and progress go to standard error.
Exit codes: 0 done, 1 a requirement does not hold, 2 usage error, 3 too many trials errored, a bug in upskill ended a
trial, the run is invalid, or results could not be stored, 70 a bug in upskill outside a trial, 130 interrupted.
"""

from __future__ import annotations

import codecs
import errno
import os
import signal
import sys
import unicodedata
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Any, TextIO, cast

import click

from upskill.version import __version__

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# The one-line help of every command; its file in `commands` has the same name.
COMMANDS = {
    "init": "Start a skill, with tests that already run.",
    "generate": "Write a skill from a task, traces or documents, and prove it.",
    "teach": "Have a teacher do a task, and turn its work into a skill.",
    "import": "Convert another tool's test cases into a suite.",
    "tests": "Write, extend or edit a skill's test cases.",
    "versions": "List the versions of a skill, or compare two.",
    "eval": "Run a student with and without a skill and compare the two.",
    "ci": "Check the skills that a branch changed, for CI.",
    "distill": "Find the shortest version of a skill that is not worse.",
    "challenge": "Look for requests where a skill misleads the model.",
    "trigger": "Measure whether a skill activates when it should, and only then.",
    "matrix": "Find skills that take each other's requests.",
    "show": "Show a run: every trial with its prompt, answer and findings.",
    "report": "Write a run as one HTML page that opens anywhere.",
    "compare": "Show which cases changed between two runs, with both answers.",
    "export": "Export a run for other tools, or its replies for other machines.",
    "view": "View stored runs in a browser, live while they run.",
    "runs": "List the stored runs, as bars or as a table of skills and models.",
    "store": "Delete stored runs that you no longer need.",
    "verify": "Check a skill's receipt, without a model.",
    "validate": "Check skills against the Agent Skills specification.",
    "install": "Install a skill where an agent looks for it.",
    "pack": "Pack skills as archives, or as a plugin.",
    "trace": "List the agent sessions on this machine, or show one.",
    "models": "List the embedded models, or download one.",
    "doctor": "Check what works on this machine, and how to fix the rest.",
    "completion": "Print a script that completes commands in your shell.",
}
# Names that Hugging Face's upskill published. They work, but `upskill --help` does not list them.
HIDDEN = ("benchmark", "list", "plot")
# Commands that upskill had, and `delete`, which is in unreleased versions of Hugging Face's upskill.
REMOVED = {
    "delete": "there is no `delete`. Delete the skill's folder; `upskill store prune` deletes old runs.",
    "feedback": "`feedback` was removed. Review answers in `upskill view`; `generate --feedback` reads the reviews.",
    "mcp": "`mcp` was removed. Agents can run upskill in a shell; skills/upskill tells them which commands to use.",
    "plan": "`plan` was removed. `eval SKILL --plan` says what a run can decide; a table of cases is in the docs.",
    "push": "`push` was removed. Publish with `gh skill` or `npx skills`; `upskill pack` writes archives and plugins.",
    "recheck": "`recheck` was removed. `upskill ci --all -m MODEL` says which skills a model still needs.",
    "store check": "`store check` was removed. Commands name a damaged store when they read it.",
    "store copy": "`store copy` was removed. A new store starts empty; earlier runs stay where they are.",
}


def _set_up_logging(context: click.Context, _: click.Parameter, count: int) -> int:
    verbosity = max(
        count, context.meta.get("upskill.verbosity", 0)
    )  # `upskill -v eval` and `upskill eval -v`
    context.meta["upskill.verbosity"] = verbosity
    level = os.environ.get("UPSKILL_LOG", "")
    if verbosity or level or "upskill.cli.log" in sys.modules:
        from upskill.cli.log import set_up_logging  # noqa: PLC0415 - logging, only for those who read it

        set_up_logging(verbosity, level)
    return count


def _add_verbose(command: click.Command) -> None:
    """Give a command and its subcommands `-v` for logging; a command's own `-v` logs too."""
    line = "Log to standard error; -vv also logs requests and replies. Secrets are redacted."
    for each in (command, *getattr(command, "commands", {}).values()):
        own = next((param for param in each.params if param.name == "verbose"), None)
        if own is None:
            own = click.Option(
                ["-v", "--verbose"], count=True, expose_value=False, is_eager=True, help=line
            )
            each.params.append(own)
        own.callback = _set_up_logging


class Commands(click.Group):
    """Knows every command by name and line of help, and imports it only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        file = "import_" if cmd_name == "import" else cmd_name  # a Python keyword
        command: click.Command = import_module(f"upskill.cli.commands.{file}").command
        _add_verbose(command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and not name.startswith("-") and not self.get_command(ctx, name):
            from upskill.errors import did_you_mean  # noqa: PLC0415 - only when something is wrong

            unknown = f"no command named {name!r}. {did_you_mean(name, COMMANDS)}"
            raise click.UsageError(REMOVED.get(name, unknown))
        if removed := REMOVED.get(" ".join(args[:2])):  # a command of a group
            raise click.UsageError(removed)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (
            BrokenPipeError
        ):  # `upskill … | head`; click itself would end with 1, which means something else here
            _silence(sys.stdout)
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


START_PAGE = """\
upskill teaches cheap models what expensive models know, as an Agent Skill, and measures whether it worked.

  upskill init my-skill              start a skill, with tests that already run
  upskill eval my-skill              does it help? the embedded model needs no key
  upskill show last                  what was asked and answered
  upskill generate --from SESSION    write a skill from an agent's session, and prove it
  upskill doctor                     what works on this machine

  upskill --help lists every command, upskill COMMAND --help explains one."""


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="upskill")
@click.pass_context
def upskill(context: click.Context) -> None:
    """Teach cheap models what expensive models know, as an Agent Skill, and measure whether it worked.

    \b
    upskill generate "TASK" --from SESSION -m opus  write a skill and prove it
    upskill eval SKILL                              does it help? (no key)
    upskill show last                               what was asked and answered
    upskill install SKILL --to claude-code          use it
    """
    if context.invoked_subcommand is None:
        click.echo(START_PAGE)


_add_verbose(upskill)


def main() -> None:
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:  # the parent process closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as we run
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=_encoding(cast("TextIO", stream)), errors="transliterate")
    # Otherwise pydantic looks through every installed package for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for name in ("SIGTERM", "SIGHUP"):  # they end it as Ctrl-C does; `nohup` ignores the latter
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _interrupt)
    try:
        code = upskill.main(standalone_mode=False, prog_name="upskill")
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.message)
        code = 0
    except click.ClickException as error:
        _say(error.format_message())
        if isinstance(error, click.UsageError) and error.ctx:
            click.echo(f"  See `{error.ctx.command_path} --help`.", err=True)
        code = 2
    except (KeyboardInterrupt, click.Abort) as error:
        notes: list[str] = getattr(error.__cause__ or error, "__notes__", [])
        _say("\n".join(notes) or "interrupted")
        code = 130
    except Exception as error:
        code = _explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


def _encoding(stream: TextIO) -> str:
    """UTF-8, unless the locale or the stream asks for ASCII."""
    locale = (
        os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    )  # Python itself takes C for UTF-8
    is_ascii = (stream.isatty() and locale in ("C", "POSIX")) or codecs.lookup(
        stream.encoding
    ).name == "ascii"
    return ASCII if is_ascii else stream.encoding


# ASCII for the characters in our own tables, bars and sentences.
_ASCII = str.maketrans(
    {
        **dict.fromkeys("─━═╌┄–—−‐‑", "-"),
        **dict.fromkeys("│┃║╎┆┊", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╯╰╞╡╪┏┓┗┛┣┫┳┻╋┡┩", "+"),
        **dict.fromkeys("█▇▆▅▓▉▊▋", "#"),
        **dict.fromkeys("▄▃▂▁▒▌▍▎▏▪■", "="),
        **dict.fromkeys("░·▫□", "."),
        **dict.fromkeys("•●◆", "*"),
        **dict.fromkeys("‘’‚", "'"),
        **dict.fromkeys("“”„«»", '"'),
        "✓": "+",
        "✗": "x",
        "×": "x",
        "…": "...",
        "→": "->",
        "←": "<-",
        "≥": ">=",
        "≤": "<=",
        "≠": "!=",
        "±": "+/-",
    }
)


def _transliterate(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding lacks by ASCII, or by `?`, which is never part of a number."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_ASCII)
    plain = "".join(
        char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char)
    )
    return "".join(char if char.isascii() else "?" for char in plain), error.end


codecs.register_error("transliterate", _transliterate)
# Called "ascii", click would take it for a mistake and write UTF-8.
ASCII = "plain_ascii"
_FIELDS = (
    "encode",
    "decode",
    "streamreader",
    "streamwriter",
    "incrementalencoder",
    "incrementaldecoder",
)
codecs.register(
    lambda name: (
        codecs.CodecInfo(
            **{field: getattr(codecs.lookup("ascii"), field) for field in _FIELDS}, name=ASCII
        )
        if name == ASCII
        else None
    )
)


def _explain(error: Exception) -> int:
    from upskill.cli.console import note  # noqa: PLC0415
    from upskill.errors import Paused, UpskillError, UsageError  # noqa: PLC0415

    if os.environ.get("UPSKILL_DEBUG"):
        sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
        _say(f"{error.filename or 'standard output'}: cannot be written: {error.strerror}")
        _silence(sys.stdout)
        return 2
    if isinstance(error, UpskillError):
        _say(error.message)
        if error.hint:
            note(f"  {error.hint}")
        return 0 if isinstance(error, Paused) else 2 if isinstance(error, UsageError) else 3
    _say(f"this is a bug in upskill: {type(error).__name__}: {error}")
    click.echo(
        "  Run it again with UPSKILL_DEBUG=1 and report the traceback in upskill's issue tracker.",
        err=True,
    )
    return 70


def _silence(stream: TextIO) -> None:
    """Write nothing more to it, not even when Python flushes it at exit."""
    with suppress(OSError, ValueError):  # in a test, it has no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(message: str) -> None:
    from upskill.cli.console import note  # noqa: PLC0415

    note(f"upskill: {message}")
