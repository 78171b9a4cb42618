from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from upskill.cli.help import Command
from upskill.installation import DISTRIBUTION
from upskill.models.addresses import ALIASES
from upskill.models.addresses import COMMANDS as AGENT_COMMANDS
from upskill.models.endpoints import ENDPOINTS
from upskill.runs.stores import find_store
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.skills.agent_specs import REAL_AGENTS
from upskill.skills.install import TARGETS
from upskill.suites import Suite

if TYPE_CHECKING:
    from upskill.runs.planning.stored_plan import StoredCase
    from upskill.suites import Case

VARIABLE = "_UPSKILL_COMPLETE"  # click derives it from the command's name
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_SECOND_NAME = {
    # Otherwise bash splits words at `local:`.
    "bash": f"complete -o nosort -F _upskill_completion {DISTRIBUTION}\nCOMP_WORDBREAKS=${{COMP_WORDBREAKS//:}}",
    "zsh": f"compdef _upskill_completion {DISTRIBUTION}",
    "fish": f"complete --command {DISTRIBUTION} --wraps upskill",
}


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(tuple(_SECOND_NAME)))
def command(shell: str) -> None:
    """Print a script that completes commands, options, models, agents, runs, cases and tags in SHELL.

    \b
    eval "$(upskill completion bash)"                               in ~/.bashrc
    eval "$(upskill completion zsh)"                                in ~/.zshrc
    upskill completion fish > ~/.config/fish/completions/upskill.fish
    """
    group, completion = click.get_current_context().find_root().command, get_completion_class(shell)
    assert completion is not None
    click.echo(f"# Completes upskill in {shell}. Run it when the shell starts.")
    click.echo(completion(group, {}, "upskill", VARIABLE).source().rstrip())
    click.echo(_SECOND_NAME[shell])


# Completions must never print an error: the person is in the middle of a line.


def _completer(values: Callable[[click.Context], Iterable[str]]) -> Completer:
    def complete(
        context: click.Context, _: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            known = dict.fromkeys(values(context))
        except Exception:  # a damaged store, a suite that is being edited
            return []
        return [CompletionItem(value) for value in known if value.startswith(incomplete)]

    return complete


def _models(_: click.Context) -> Iterable[str]:
    from upskill.models.embedded.local_models import LOCAL_MODELS  # noqa: PLC0415

    embedded = (f"local:{name}" for name in LOCAL_MODELS)
    return (
        "local",
        *embedded,
        *ALIASES,
        *AGENT_COMMANDS,
        "anthropic:",
        *(f"{name}:" for name in ENDPOINTS),
    )


def _runs(context: click.Context) -> Iterable[str]:
    yield "last"
    if store := find_store(context.params.get("store") or Settings.load().store):
        with store:
            yield from [run.id for run in islice(store.runs(newest_first=True, listed=True), 50)]


def _known_cases(context: click.Context) -> Sequence[Case | StoredCase]:
    """From the run or the suite earlier on the line."""
    values = context.params
    arguments = {
        each.name or "" for each in context.command.params if isinstance(each, click.Argument)
    }
    # While an option's value is being typed, click has not parsed the line yet.
    first = next(
        (str(values[name]) for name in arguments if values.get(name)), next(iter(context.args), "")
    )
    if "run" in arguments:
        store = find_store(values.get("store") or Settings.load().store)
        if store is None:
            return []
        with store:
            return store.run(first).plan.suite.cases
    suite = Suite.load(values["tests"]) if values.get("tests") else Suite.of(Skill.load(first))
    return suite.cases if suite else []


complete_models, complete_runs = _completer(_models), _completer(_runs)
complete_targets = _completer(lambda _: TARGETS)
complete_agents = _completer(
    lambda _: ("chat", "tools", *REAL_AGENTS.replace("COMMAND", "").split(", "))
)
complete_cases = _completer(lambda context: (case.id for case in _known_cases(context)))
complete_tags = _completer(
    lambda context: (tag for case in _known_cases(context) for tag in case.tags)
)

_BY_FLAG: dict[str, Completer] = {
    **dict.fromkeys(
        ("--model", "--student", "--judge", "--teacher", "--test-writer"), complete_models
    ),
    **dict.fromkeys(("--agent", "--teacher-agent"), complete_agents),
    "--to": complete_targets,
    "--case": complete_cases,
    "--tag": complete_tags,
}


def completer(flags: Sequence[str]) -> Completer | None:
    return next((_BY_FLAG[flag] for flag in flags if flag in _BY_FLAG), None)
