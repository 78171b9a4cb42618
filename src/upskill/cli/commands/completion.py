"""`upskill completion`: a script for the shell, and what can be typed after an option.

What a command needs to know for that is imported when the person asks: completing has to be quick.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from upskill.cli.help import Command
from upskill.installation import DISTRIBUTION

if TYPE_CHECKING:
    from upskill.runs.planning.stored_plan import StoredCase
    from upskill.suites import Case

VARIABLE = "_UPSKILL_COMPLETE"  # as click makes it from the command's name
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

# The words of click's own script, but for the line that is typed: bash takes `local:` for a word of its own.
_BASH = """\
_upskill_completion() {
    local IFS=$'\\n' completion type value
    COMPREPLY=()
    for completion in $(env COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null); do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
}
complete -o nosort -F _upskill_completion %(prog_name)s
"""


class Bash(BashComplete):
    source_template: ClassVar[str] = _BASH
    _before_colon = ""  # what bash leaves alone of the word that is typed

    def get_completion_args(self) -> tuple[list[str], str]:
        typed = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
        words = split_arg_string(typed)[1:]
        incomplete = words.pop() if words and not typed[-1].isspace() else ""
        if ":" in os.environ.get("COMP_WORDBREAKS", ""):
            self._before_colon = incomplete[: incomplete.rfind(":") + 1]
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value.removeprefix(self._before_colon)}"


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}
_SECOND_NAME = {
    "bash": f"complete -o nosort -F _upskill_completion {DISTRIBUTION}",
    "zsh": f"compdef _upskill_completion {DISTRIBUTION}",
    "fish": f"complete --command {DISTRIBUTION} --wraps upskill",
}
_WHERE = {
    "bash": "~/.local/share/bash-completion/completions/upskill",
    "zsh": "~/.zfunc/_upskill",
    "fish": "~/.config/fish/completions/upskill.fish",
}


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def command(shell: str) -> None:
    """Print a script that completes commands, options, models, agents, runs, cases and tags in SHELL.

    \b
    eval "$(upskill completion bash)"                               in ~/.bashrc
    eval "$(upskill completion zsh)"                                in ~/.zshrc
    upskill completion fish > ~/.config/fish/completions/upskill.fish
    """
    group = click.get_current_context().find_root().command
    click.echo(f"# Completes upskill in {shell}. Evaluate it when the shell starts, or keep it as {_WHERE[shell]}.")
    click.echo(SHELLS[shell](group, {}, "upskill", VARIABLE).source().rstrip())
    click.echo(_SECOND_NAME[shell])


def register() -> None:
    """Answer bash with `Bash`; the other shells are served well by click."""
    add_completion_class(Bash)


# What can be typed. Nothing here may fail loudly: a person is in the middle of a line.


def _completer(values: Callable[[click.Context], Iterable[str]]) -> Completer:
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = dict.fromkeys(values(context))
        except Exception:  # a damaged store, a suite that is being edited
            return []
        return [CompletionItem(value) for value in found if value.startswith(incomplete)]

    return complete


def _models(_: click.Context) -> Iterable[str]:
    from upskill.models.addresses import ALIASES  # noqa: PLC0415
    from upskill.models.addresses import COMMANDS as AGENT_COMMANDS  # noqa: PLC0415
    from upskill.models.embedded.local_models import LOCAL_MODELS  # noqa: PLC0415
    from upskill.models.endpoints import ENDPOINTS  # noqa: PLC0415

    embedded = (f"local:{name}" for name in LOCAL_MODELS)
    return ("local", *embedded, *ALIASES, *AGENT_COMMANDS, "anthropic:", *(f"{name}:" for name in ENDPOINTS))


def _targets(_: click.Context) -> Iterable[str]:
    from upskill.skills.install import TARGETS  # noqa: PLC0415

    return TARGETS


def _agents(_: click.Context) -> Iterable[str]:
    from upskill.skills.agent_specs import REAL_AGENTS  # noqa: PLC0415

    return ("chat", "tools", *REAL_AGENTS.split(", "))


def _runs(context: click.Context) -> Iterable[str]:
    from itertools import islice  # noqa: PLC0415

    from upskill.runs.stores import find_store  # noqa: PLC0415
    from upskill.settings import Settings  # noqa: PLC0415

    yield "last"
    place = context.params.get("store") or Settings.load().store
    if store := find_store(place):
        with store:
            yield from [run.id for run in islice(store.runs(newest_first=True), 50)]


def _cases(context: click.Context) -> Iterable[str]:
    return (case.id for case in _known_cases(context))


def _tags(context: click.Context) -> Iterable[str]:
    return (tag for case in _known_cases(context) for tag in case.tags)


def _known_cases(context: click.Context) -> Sequence[Case | StoredCase]:
    """Of the run, or of the suite, that stands earlier on the line."""
    from upskill.runs.stores import find_store  # noqa: PLC0415
    from upskill.settings import Settings  # noqa: PLC0415

    given = context.params
    words = {each.name for each in context.command.params if isinstance(each, click.Argument)}
    # With an option whose value is still to be typed, click has not told the words of the line apart yet.
    first = next((str(given[name]) for name in words if given.get(name or "")), context.args[0] if context.args else "")
    if "run" in words:
        store = find_store(given.get("store") or Settings.load().store)
        if store is None:
            return []
        with store:
            return store.run(first).plan.suite.cases
    from upskill.skills import Skill  # noqa: PLC0415
    from upskill.suites import Suite  # noqa: PLC0415

    suite = Suite.load(given["tests"]) if given.get("tests") else Suite.of(Skill.load(first))
    return suite.cases if suite else []


complete_models, complete_targets, complete_agents = map(_completer, (_models, _targets, _agents))
complete_runs, complete_cases, complete_tags = map(_completer, (_runs, _cases, _tags))

_BY_FLAG: dict[str, Completer] = {
    **dict.fromkeys(
        ("--model", "--student", "--judge", "--teacher", "--test-writer", "--test-writer"), complete_models
    ),
    **dict.fromkeys(("--agent", "--teacher-agent"), complete_agents),
    "--to": complete_targets,
    "--case": complete_cases,
    "--tag": complete_tags,
}


def completer(flags: Sequence[str]) -> Completer | None:
    """What can be typed after an option, where we know."""
    return next((_BY_FLAG[flag] for flag in flags if flag in _BY_FLAG), None)
