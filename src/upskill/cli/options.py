"""What most commands share: flags made from options classes, asking before money is spent, students, stored runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from upskill.agents import Bounds
from upskill.cli.console import DownloadProgress, note
from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.models.keys import find_keys
from upskill.models.ledger import Ceilings
from upskill.options import Option, option, options_of
from upskill.plain import counted
from upskill.runs import options as run_options
from upskill.runs.events import Events
from upskill.runs.stores import Store, find_store
from upskill.settings import Settings

if TYPE_CHECKING:
    from upskill.runs.estimate import CostEstimate

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

runs_dir_option = click.option(
    "-d", "--runs-dir", "runs_dir", metavar="DIR", help="Where runs are kept (default ./runs)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress and no notes; only the result.")
judge_option = click.option("--judge-model", metavar="MODEL", help="The model that grades cases with `judge` checks.")
offline_option = click.option("--offline", is_flag=True, help="Download nothing.")
max_cost_option = click.option(
    "--max-cost", type=click.FloatRange(0), metavar="USD", help="Stop before this much is spent."
)
yes_option = click.option(
    "-y", "--yes", is_flag=True, help="Do not ask before spending more than the settings' confirm_above."
)
SPENDING: list[Decorator] = [
    max_cost_option,
    click.option("--max-tokens", type=click.IntRange(0), metavar="N", help="Stop at this many tokens."),
    click.option("--max-calls", type=click.IntRange(0), metavar="N", help="Stop at this many calls."),
    yes_option,
]
concurrency_option = click.option(
    "--concurrency", type=click.IntRange(1), metavar="N", help="Calls at a time for each model (default 8)."
)
CALLING: list[Decorator] = [
    concurrency_option,
    click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="For one call."),
]
KEEPING: list[Decorator] = [
    click.option("--runs-dir", metavar="DIR", help="Where runs are kept (default ./runs)."),
    click.option("--log-runs/--no-log-runs", default=True, help="Keep runs in the store (default) or forget them."),
]
SAYING: list[Decorator] = [json_option, quiet_option]


@dataclass(kw_only=True)
class CommonOptions:
    """What the person said with `SPENDING`, `CALLING`, `KEEPING` and `SAYING`, in whichever command."""

    max_cost: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    yes: bool = False
    concurrency: int | None = None
    timeout: float | None = None
    offline: bool = False
    runs_dir: str | None = None
    log_runs: bool = True
    as_json: bool = False
    quiet: bool = False
    settings: Settings = field(default_factory=Settings.load)

    @property
    def silent(self) -> bool:
        return self.quiet or self.as_json

    def tell(self, line: str) -> None:
        if not self.silent:
            note(line)

    @property
    def runs_folder(self) -> Path:
        return Path(self.runs_dir or self.settings.runs_dir)

    @property
    def store_place(self) -> str | None:
        """Where to open the store; None, which is memory, with --no-log-runs."""
        return (self.runs_dir or self.settings.runs_dir) if self.log_runs else None

    @property
    def found_with(self) -> str:
        """What a command that looks at a run needs besides its id."""
        return f" --runs-dir {shlex.quote(self.runs_dir)}" if self.runs_dir else ""

    @property
    def ceilings(self) -> Ceilings:
        return Ceilings(self.max_cost, self.max_tokens, self.max_calls)


@dataclass(kw_only=True)
class OutputOptions:
    """How a command talks to the person who runs it."""

    yes: bool = option(
        "-y", "--yes", default=False, help="Do not ask before spending more than confirm_above of the settings."
    )
    as_json: bool = option("--json", default=False, help="Print one JSON document and nothing else.")
    quiet: bool = option("-q", "--quiet", default=False, help="No progress and no notes; only the result.")

    @property
    def silent(self) -> bool:
        return self.quiet or self.as_json

    def tell(self, line: str) -> None:
        if not self.silent:
            note(line)


@dataclass(kw_only=True)
class CommandOptions(run_options.CommonOptions, OutputOptions):
    """Options of every command that calls models."""

    def model_context(self, events: Events | None = None) -> ModelContext:
        """The same, with a bar on the terminal for what is downloaded."""
        context = super().model_context(events or Events(message=self.tell))
        return replace(context, progress=DownloadProgress(quiet=self.silent))

    @property
    def show_flags(self) -> str:
        """What `upskill show` needs besides the id of a run."""
        return f" --runs-dir {shlex.quote(self.runs_dir)}" if self.runs_dir else ""


def confirm_cost(common: CommonOptions | CommandOptions, expected: CostEstimate, said: str = "") -> None:
    """Say what is expected to be spent before it is, and ask where that may be much and a person can answer."""
    if common.max_cost is not None:
        expected.check_prices()
    high = expected.cost_usd[1]
    if not expected.calls or (high == 0 and not expected.unknown):
        return
    common.tell(f"Estimate: {said or expected.words}.")
    most = high if common.max_cost is None else min(high, common.max_cost)
    if most > common.settings.confirm_above and not common.yes and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm("Go ahead?", abort=True, err=True)


def acting(who: str, bounds: Bounds) -> list[Decorator]:
    """The options of a command in which somebody acts: where, and how far they may go."""
    return [
        click.option(
            "--sandbox",
            default="",
            metavar="KIND",
            help="Where commands are run: bubblewrap, container (docker or podman), landlock, seatbelt or none "
            "(default: the first that proves itself here; `upskill sandbox` tells which).",
        ),
        click.option(
            "--max-turns", type=click.IntRange(1), metavar="N", help=f"Turns of {who} (default {bounds.turns})."
        ),
        click.option("--trial-tokens", type=click.IntRange(1), metavar="N", help=f"Tokens of {who}."),
        click.option(
            "--trial-timeout",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help=f"Time of {who} (default {bounds.seconds:.0f}).",
        ),
    ]


def with_options(options: list[Decorator]) -> Decorator:
    """A command with all of these, listed in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for add in reversed(options):
            function = add(function)
        return function

    return decorate


def click_options(cls: type[Any], *names: str) -> Decorator:
    """A command with the flags of this options class, or of those of its fields that are named."""
    found = [_click_option(*each) for each in options_of(cls) if not names or each[0] in names]
    return with_options(found)


def _click_option(name: str, option: Option, kind: Any, default: Any) -> Decorator:
    given: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "show_default": option.show_default}
    limits: dict[str, Any] = {"min": option.minimum, "max": option.maximum}
    if kind is bool:
        given |= {"default": default, "is_flag": True, "metavar": None}
    elif get_origin(kind) is tuple:
        given |= {"multiple": True}
    elif get_origin(kind) is Literal:
        given |= {"default": default, "type": click.Choice(get_args(kind)), "metavar": None}
    elif option.count:
        given |= {"count": True, "metavar": None}
    elif kind is int:
        given |= {"default": default, "type": click.IntRange(**limits) if any(map(_is_set, limits.values())) else int}
    elif kind is float:
        given |= {"default": default, "type": click.FloatRange(**limits, min_open=option.above_minimum)}
    else:
        given |= {"default": default}
    return click.option(*option.flags, name, **given)


def _is_set(limit: float | None) -> bool:
    return limit is not None


def open_existing_store(place: str) -> Store:
    """The store at this place; UsageError where there is none. Looking at runs never creates a store."""
    if store := find_store(place):
        return store
    if not Path(place).is_dir():
        raise UsageError(f"{place}: no such folder", "Say where runs are kept with --runs-dir.")
    if older := sum(1 for _ in Path(place).glob("*/run_*/run_metadata.json")):
        raise UsageError(
            f"{place}: has {counted(older, 'run')} logged as upstream does, one folder each, and none in a store",
            "Those have no pairs that a lift could be computed from; `upskill eval SKILL` runs them anew.",
        )
    raise UsageError(f"{place}: no runs are kept here", "`upskill eval SKILL` makes one.")


def model_context(
    settings: Settings,
    *,
    quiet: bool = False,
    offline: bool = False,
    timeout: float | None = None,
    connections: int = 64,
) -> ModelContext:
    return ModelContext(
        keys=find_keys(),
        offline=offline,
        timeout=timeout or settings.timeout,
        connections=connections,
        tell=(lambda _: None) if quiet else note,
        progress=DownloadProgress(quiet=quiet),
        prices={name: price.model_dump(exclude_none=True) for name, price in settings.prices.items()},
    )


def choose_students(named: tuple[str, ...], settings: Settings, *, quiet: bool, option: str = "-m") -> tuple[str, ...]:
    return run_options.choose_students(named, settings, (lambda _: None) if quiet else note, option)
