"""Help pages: the examples first, then the options that most people need, then all others by what they are about.

A flag means the same in every command, so one table says which group it belongs to (`GROUPS`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import click

from upskill.errors import UpskillError

MANY = 12  # options; with fewer, a list is easier to read than groups

# command -> the options that it shows first
COMMON: dict[str, tuple[str, ...]] = {
    "eval": ("--model", "--tests", "--runs", "--require", "--json"),
    "benchmark": ("--model", "--tests", "--runs", "--require", "--json"),
    "generate": ("--from", "--model", "--eval-model", "--output", "--no-eval"),
    "teach": ("--model", "--files", "--check", "--eval-model", "--output"),
    "tests": ("--model", "--cases", "--add", "--edit", "--from"),
    "trigger": ("--model", "--queries", "--with-skills", "--improve", "--teacher"),
}

GROUPS: dict[str, tuple[str, ...]] = {
    "What the skill is made from": (
        "--example",
        "--tool",
        "--from",
        "--feedback",
        "--files",
        "--check",
        "--only-record",
    ),
    "Teacher": ("--teacher", "--handoff", "--tokens", "--file-tokens"),
    "Improving": ("--improve", "--attempts", "--candidates", "--refiner", "--write"),
    "Students": (
        *("--model", "--base-url", "--eval-model", "--eval-base-url", "--temperature", "--max-output-tokens"),
        *("--batch", "--no-eval"),
    ),
    "Cases": (
        *("--tests", "--cases", "--add", "--edit", "--case", "--tag", "--failed", "--limit", "--watch"),
        *("--strict-suite", "--queries", "--count", "--query-model", "--test-gen-model", "--judge-model"),
    ),
    "Agents": (
        *("--agent", "--eval-agent", "--with-skills", "--sandbox", "--gpu", "--max-turns", "--trial-tokens"),
        "--trial-timeout",
    ),
    "Statistics": (
        *("--runs", "--seed", "--until-decided", "--scope", "--margin", "--preregister", "--no-baseline"),
        *("--controls", "--against", "--target", "--require"),
    ),
    "Spending": ("--max-cost", "--max-tokens", "--max-calls", "--making-cost", "--yes"),
    "Running": (
        *("--fresh", "--resume", "--no-cache", "--replay", "--offline", "--concurrency", "--servers"),
        *("--timeout", "--executor", "--ray-address", "--trial-cpus", "--trial-gpus", "--trial-memory"),
    ),
    "Output": (
        *("--output", "--force", "--report", "--junit", "--markdown", "--json", "--quiet", "--verbose"),
        *("--store", "--log-runs", "--help"),
    ),
}


class Command(click.Command):
    """A command whose help teaches, and whose errors never hint at an option that it does not have."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        first, *rest = re.split(r"\n\s*\n", inspect.cleandoc(self.help or ""))
        examples = [part for part in rest if part.startswith("\b")]
        for part in [first, *examples, *(part for part in rest if part not in examples)]:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(part)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [each for each in self.get_params(ctx) if isinstance(each, click.Option) and not each.hidden]
        for title, options in _grouped(self.name or "", shown):
            with formatter.section(title):
                formatter.write_dl([_row(each, ctx) for each in options])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A flag with a value that may be left out takes what follows it, unless that can only be an argument."""
        lone = {
            flag: each.flag_value
            for each in self.params
            if isinstance(each, click.Option)
            for flag in each.opts
            if not each.is_flag and isinstance(each.flag_value, str)
        }
        following = [*args, ""][1:]
        alone = [arg in lone and _is_skill(after) for arg, after in zip(args, following, strict=True)]
        given = [f"{arg}={lone[arg]}" if bare else arg for arg, bare in zip(args, alone, strict=True)]
        return super().parse_args(ctx, given)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UpskillError as error:
            error.hint = fitting_hint(
                error.hint, {flag for each in self.params for flag in (*each.opts, *each.secondary_opts)}
            )
            raise


class Group(click.Group):
    """A command with commands of its own, such as `trace list`."""

    command_class = Command

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        Command.format_help_text(cast("Command", self), ctx, formatter)


def _is_skill(text: str) -> bool:
    return bool(text) and (Path(text).is_dir() or Path(text).name == "SKILL.md")


def fitting_hint(hint: str, flags: set[str]) -> str:
    """A hint without the sentences that name options this command does not have; other commands may be named."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", hint)
    return " ".join(each for each in sentences if _named_flags(each) <= flags)


def _named_flags(sentence: str) -> set[str]:
    here = re.sub(r"`[^`]*`", "", sentence)  # a whole command line speaks for itself
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", here))


def _grouped(command: str, options: Sequence[click.Option]) -> Iterator[tuple[str, list[click.Option]]]:
    if len(options) <= MANY:
        yield "Options", list(options)
        return
    left = {_long_flag(each): each for each in options}
    groups = {"Most used": COMMON.get(command, ()), **GROUPS}
    for title, flags in groups.items():
        if found := [left.pop(flag) for flag in flags if flag in left]:
            yield title, found
    if left:
        yield "Other options", list(left.values())


def _long_flag(option: click.Option) -> str:
    return next((flag for flag in option.opts if flag.startswith("--")), option.opts[0])


def _row(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    """As click would write it, with a range in words and only where a person could miss it."""
    record = option.get_help_record(ctx)
    assert record is not None
    extra = option.get_help_extra(ctx)
    said = [f"default: {extra['default'].removesuffix('.0')}"] if "default" in extra else []
    low, high = getattr(option.type, "min", None), getattr(option.type, "max", None)
    if low is not None and high is not None and high <= 100:  # more is no limit that anybody would miss
        said.append(f"{low:g} to {high:g}")
    if "required" in extra:
        said.append("required")
    return record[0], (option.help or "") + (f"  [{'; '.join(said)}]" if said else "")
