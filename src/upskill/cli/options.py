"""Shared by most commands: flags from options classes, asking before money is spent, finding stored runs."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from upskill.cli.commands.completion import completer
from upskill.cli.console import note, show_report
from upskill.cli.progress import display_of_command, show_transfer
from upskill.errors import UsageError
from upskill.models import ModelContext
from upskill.options import Option, option, options_of
from upskill.plain import counted
from upskill.runs.planning.options import CommonOptions
from upskill.runs.running.events import Events
from upskill.runs.stores import Run, Store, find_store, is_url, without_password
from upskill.settings import Settings

if TYPE_CHECKING:
    from upskill.reports.report import Report
    from upskill.runs.planning.estimate import CostEstimate

OF_RAY = {"ray_address", "trial_cpus", "trial_gpus", "trial_memory"}  # settings
COUNTED_BACK = re.compile(r"last~(\d{1,9})")
NO_LIMITS = {"min": None, "max": None}
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(kw_only=True)
class OutputOptions:
    yes: bool = option(
        "-y",
        "--yes",
        default=False,
        help="Do not ask before spending more than the confirm_above setting.",
    )
    as_json: bool = option(
        "--json", default=False, help="Print one JSON document and nothing else."
    )
    quiet: bool = option(
        "-q", "--quiet", default=False, help="No progress or notes, only the result."
    )

    @property
    def silent(self) -> bool:
        return self.quiet or self.as_json

    def tell(self, line: str) -> None:
        if not self.silent:
            note(line)

    def show(self, report: Report) -> None:
        show_report(report, as_json=self.as_json, quiet=self.quiet)


@dataclass(kw_only=True)
class CommandOptions(CommonOptions, OutputOptions):
    set_values: tuple[str, ...] = option(
        "--set",
        default=(),
        help="Any setting from upskill.config.yaml, such as tolerance=10, max_calls=500 or gpu=true; repeatable. "
        "The reference lists them all, under Settings.",
        metavar="KEY=VALUE",
    )

    def __post_init__(self) -> None:
        if unused := self.settings.unused:
            self.tell(f"{self.settings.source}: not used here: {', '.join(unused)}.")
        if self.set_values:
            self.settings = self.settings.changed(self.set_values)
        keys = {text.partition("=")[0].strip() for text in self.set_values}
        if self.executor != "ray" and (of_ray := keys & OF_RAY):
            raise UsageError(f"{min(of_ray)} only works with --executor ray", "Add --executor ray.")

    def model_context(self, events: Events | None = None) -> ModelContext:
        """The same, with a progress bar for downloads."""
        context = super().model_context(events or Events(message=self.tell))
        return replace(
            context, progress=partial(show_transfer, display_of_command(quiet=self.silent))
        )

    @property
    def show_flags(self) -> str:
        return f" --store {shlex.quote(without_password(self.store))}" if self.store else ""


def confirm_cost(options: CommandOptions, expected: CostEstimate, description: str = "") -> None:
    if options.max_cost is not None:
        expected.check_prices()
    high = expected.cost_usd[1]
    if not expected.calls or (high == 0 and not expected.unknown):
        return
    options.tell(f"Estimate: {description or expected.words}.")
    most = high if options.max_cost is None else min(high, options.max_cost)
    if (
        most > options.settings.confirm_above
        and not options.yes
        and sys.stdin.isatty()
        and sys.stderr.isatty()
    ):
        with display_of_command(quiet=options.silent).asking():
            click.confirm("Go ahead?", abort=True, err=True)


class FiniteRange(click.FloatRange):
    """Refuses NaN, which is neither below nor above a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class GivenText(click.types.StringParamType):
    """A text that may be left out, but not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not (text := super().convert(value, param, ctx)).strip():
            self.fail("it is empty; pass a value or leave the option out.", param, ctx)
        if text.startswith("--"):
            self.fail(f"{text!r} looks like the next option; pass a value before it.", param, ctx)
        return text


def click_options(cls: type[Any], *names: str) -> Decorator:
    """Add the flags of this options class, or of the named fields."""
    options = [_click_option(*each) for each in options_of(cls) if not names or each[0] in names]
    return lambda function: reduce(
        lambda decorated, add: add(decorated), reversed(options), function
    )


def _click_option(name: str, option: Option, kind: Any, default: Any) -> Decorator:
    settings: dict[str, Any] = {
        "help": option.help,
        "metavar": option.metavar,
        "show_default": option.show_default,
        "hidden": option.hidden,
        "shell_complete": completer(option.flags),
    }
    limits: dict[str, Any] = {"min": option.minimum, "max": option.maximum}
    if kind is bool:
        settings |= {"default": default, "is_flag": True, "metavar": None}
    elif get_origin(kind) is tuple:
        settings |= {"multiple": True}
    elif get_origin(kind) is Literal:
        settings |= {"default": default, "type": click.Choice(get_args(kind)), "metavar": None}
    elif option.count:
        settings |= {"count": True, "metavar": None}
    elif kind is int:
        settings |= {
            "default": default,
            "type": int if limits == NO_LIMITS else click.IntRange(**limits),
        }
    elif kind is float:
        settings |= {"default": default, "type": FiniteRange(**limits)}
    else:
        settings |= {"default": default} | ({"type": GivenText()} if default is None else {})
        settings |= {"is_flag": False, "flag_value": option.bare} if option.bare else {}
    return click.option(*option.flags, name, **settings)


def first_given(flags: Mapping[str, object]) -> str:
    return next((flag for flag, value in flags.items() if value), "")


class NothingStored(UsageError):
    """There is no store yet."""


def open_existing_store(location: str | None) -> Store:
    """The store here, or that of the settings; UsageError if there is none. Reading never creates a store."""
    is_named, location = bool(location), location or Settings.load().store
    if store := find_store(location):
        return store
    folder = Path(location)
    if not is_url(location) and folder.exists() and not folder.is_dir():
        raise UsageError(
            f"{location}: not a folder", "Use --store to name the folder that holds your runs."
        )
    if is_named and not is_url(location) and not folder.is_dir():
        raise NothingStored(
            f"{location}: no such folder", "Use --store to name the folder that holds your runs."
        )
    if not is_url(location) and (older := sum(1 for _ in folder.glob("*/run_*/run_metadata.json"))):
        raise UsageError(
            f"{location}: no store, only {counted(older, 'run')} in Hugging Face upskill's format (one folder each)",
            "They have no pairs to compute a lift from; run them again with `upskill eval SKILL`.",
        )
    raise NothingStored(
        f"{without_password(location)}: no runs yet", "Run `upskill eval SKILL` first."
    )


def find_project_store(location: str | None) -> Store | None:
    """None if the project has no store yet. A folder that the person named must exist."""
    try:
        return open_existing_store(location)
    except NothingStored:
        if location and not is_url(location) and not Path(location).is_dir():
            raise
        return None


def say_nothing_yet(what: str, next_step: str) -> None:
    note(f"Nothing yet: {what}.\n  {next_step}")


@contextmanager
def open_run(location: str | None, name: str) -> Generator[tuple[Store, Run]]:
    """For somebody who reads its results."""
    from upskill.runs.results.shown import mark_shown  # noqa: PLC0415 - numpy

    with open_existing_store(location) as store:
        run = find_run(store, name)
        if caveat := mark_shown(store, run):
            note(caveat)
        yield store, run


def find_run(store: Store, name: str) -> Run:
    """By an id, the start of one, `last` or `last~1` (the run before the last). `last:held-out` is the latest run on
    held-out cases alone, `last:train` that of the same skill on train cases; neither is against another skill."""
    if back := COUNTED_BACK.fullmatch(name):
        runs = list(islice(store.runs(newest_first=True, listed=True), int(back[1]) + 1))
        if len(runs) > int(back[1]):
            return runs[-1]
        raise UsageError(
            f"there is no run {name}: the store has {counted(len(runs), 'run')}",
            "`upskill runs` lists them.",
        )
    if name not in ("last:held-out", "last:train"):
        return store.run(name)
    skill = None
    for run in store.runs(newest_first=True):
        side = side_of(run) if not run.plan.reference_skill else ""
        if name == "last:held-out" and side == "held-out":
            return run
        if side == "held-out":
            skill = skill or run.plan.skill.visible_hash
        elif (
            name == "last:train"
            and side == "train"
            and skill in (None, run.plan.skill.visible_hash)
        ):
            return run
    makes = (
        "`upskill generate` with a search makes one"
        if name == "last:held-out"
        else "`upskill generate` makes one"
    )
    raise UsageError(f"there is no run {name} yet", f"{makes}; `upskill runs` lists all runs.")


def side_of(run: Run) -> str:
    """Which cases `generate` ran; empty: all of them, or somebody else chose them."""
    suite, is_search = run.plan.suite, run.plan.purpose == "search"
    sides = {case.held_out for case in suite.cases} if not suite.part else set[bool]()
    return "held-out" if sides == {True} else "train" if sides == {False} and is_search else ""


json_option = click_options(OutputOptions, "as_json")
force_option = click.option(
    "--force", is_flag=True, help="Overwrite a file that upskill did not write."
)
redact_option = click.option(
    "--redact",
    is_flag=True,
    help="Remove secrets, e-mail addresses and home folders from prompts and answers.",
)
quiet_option = click_options(OutputOptions, "quiet")
store_option = click_options(CommonOptions, "store")
