"""Help pages: examples, then the options most people need, then the rest by group (`GROUPS`, the same everywhere)."""

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
    "eval": ("--student", "--tests", "--repeats", "--require", "--json", "--set"),
    "benchmark": ("--student", "--tests", "--repeats", "--require", "--json", "--set"),
    "generate": ("--from", "--teacher", "--student", "--output", "--no-eval"),
    "teach": ("--teacher", "--files", "--check", "--student", "--output"),
    "tests": ("--student", "--cases", "--add", "--edit", "--from", "--score", "--fix", "--repeats"),
    "distill": ("--student", "--tolerance", "--budget", "--repeats", "--write", "--report"),
    "matrix": ("--student", "--catalog", "--with-skills", "--repeats", "--report"),
    "challenge": (
        "--student",
        "--challenger",
        "--proposals",
        "--repeats",
        "--output",
    ),
    "trigger": ("--student", "--queries", "--with-skills", "--improve", "--teacher"),
}

GROUPS: dict[str, tuple[str, ...]] = {
    "Material": (
        "--example",
        "--tool",
        "--from",
        "--feedback",
        "--files",
        "--check",
        "--only-record",
    ),
    "Teacher": (
        "--teacher",
        "--challenger",
        "--teacher-agent",
        "--handoff",
        "--ask",
        "--tokens",
        "--file-tokens",
    ),
    "Improving": (
        *(
            "--improve",
            "--attempts",
            "--refiner",
            "--budget",
            "--rewrite",
            "--write",
        ),
    ),
    "Students": (
        *(
            "--student",
            "--base-url",
            "--agent",
            "--catalog",
            "--with-skills",
            "--sandbox",
            "--batch",
            "--no-eval",
        ),
    ),
    "Cases": (
        *(
            "--tests",
            "--cases",
            "--add",
            "--hard",
            "--edit",
            "--case",
            "--tag",
            "--failed",
            "--limit",
            "--watch",
            "--all-cases",
        ),
        *(
            "--queries",
            "--count",
            "--test-writer",
            "--score",
            "--fix",
            "--proposals",
        ),
        "--judge",
    ),
    "Statistics": (
        *(
            "--repeats",
            "--seed",
            "--until-decided",
            "--no-baseline",
            "--controls",
            "--against",
        ),
        *("--require", "--tolerance", "--strict"),
    ),
    "Running": (
        "--plan",
        "--max-cost",
        "--yes",
        "--redraw",
        "--fresh",
        "--replay",
        "--concurrency",
        "--executor",
        "--set",
    ),
    "Output": (
        "--output",
        "--force",
        "--report",
        "--receipt",
        "--json",
        "--quiet",
        "--verbose",
        "--store",
        "--help",
    ),
}

# Upstream's flags, which are still accepted. Its names of the model stand for the long form of `-m`.
MODEL_FLAGS = ("--model", "--m")
OLD_FLAGS = {
    "--runs": "--repeats",
    "--runs-dir": "--store",
    "--dir": "--store",
    "--eval-model": "--student",
    "--eval-base-url": "--base-url",
    "--test-gen-model": "--test-writer",
}
# Flags that only some versions of upstream have, and those that upskill had: what to use here.
_JOBS = "upskill does not use Hugging Face Jobs. `--executor ray` runs trials on a cluster."
_PROVIDER = "Write the provider before the model, as in `-m openai:MODEL`."
UNKNOWN_FLAGS = {
    "--artifact-repo": "`--store` says where runs are kept: a folder, or a postgresql:// URL.",
    "--candidates": "One draft is written, and `--attempts N` revises it N times.",
    "--eval-provider": _PROVIDER,
    "--jobs-flavor": _JOBS,
    "--jobs-namespace": _JOBS,
    "--jobs-secrets": _JOBS,
    "--jobs-timeout": _JOBS,
    "--max-parallel": "`--concurrency` limits how many calls run at a time.",
    "--no-wait": _JOBS,
    "--provider": _PROVIDER,
    "--target": "`--attempts N` says how often the skill is revised; it ends where every shown case passes.",
    "--wait": _JOBS,
}


class Command(click.Command):
    """A command whose help teaches, and whose errors never hint at an option that it lacks."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        first, *others = re.split(r"\n\s*\n", inspect.cleandoc(self.help or ""))
        examples_first = sorted(others, key=lambda part: not part.startswith("\b"))
        for part in (first, *examples_first):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(part)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        visible = [
            each
            for each in self.get_params(ctx)
            if isinstance(each, click.Option) and not each.hidden
        ]
        for title, options in _grouped(self.name or "", visible):
            with formatter.section(title):
                formatter.write_dl([_row(each, ctx) for each in options])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, self._complete_bare_flags(self._rename_old_flags(args)))
        except click.NoSuchOption as error:
            if error.option_name in UNKNOWN_FLAGS:
                advice = UNKNOWN_FLAGS[error.option_name]
                raise click.UsageError(f"there is no {error.option_name}. {advice}") from error
            if error.option_name == "--fresh" and "--redraw" in self._flags:
                raise click.UsageError("--fresh is now --redraw", ctx) from error
            from upskill.settings import Settings  # noqa: PLC0415 - pydantic comes with it

            key = error.option_name.lstrip("-").replace("-", "_")
            if key in Settings.model_fields and "--set" in self._flags:
                raise click.UsageError(
                    f"{error.option_name} is a setting: use --set {key}=VALUE", ctx
                ) from error
            raise
        if ctx.params.get("executor") == "jobs":
            raise click.UsageError(f"there is no --executor jobs. {_JOBS}")
        return rest

    @property
    def _flags(self) -> set[str]:
        return {flag for each in self.params for flag in (*each.opts, *each.secondary_opts)}

    def _rename_old_flags(self, args: list[str]) -> list[str]:
        main = next((each.opts[-1] for each in self.params if "-m" in each.opts), "--model")
        renamed = {
            old: new
            for old, new in {**OLD_FLAGS, **dict.fromkeys(MODEL_FLAGS, main)}.items()
            if old not in self._flags and new in self._flags
        }
        end = args.index("--") if "--" in args else len(args)
        split = [arg.partition("=") for arg in args[:end]]
        return ["".join((renamed.get(flag, flag), *value)) for flag, *value in split] + args[end:]

    def _complete_bare_flags(self, args: list[str]) -> list[str]:
        """A flag whose value is optional takes the next word, unless that can only be an argument."""
        bare = {
            flag: each.flag_value
            for each in self.params
            if isinstance(each, click.Option)
            and not each.is_flag
            and isinstance(each.flag_value, str)
            for flag in each.opts
        }
        following = [*args, ""][1:]

        def is_skill(path: Path) -> bool:
            return path.is_dir() or path.name == "SKILL.md"

        return [
            f"{arg}={bare[arg]}" if arg in bare and after and is_skill(Path(after)) else arg
            for arg, after in zip(args, following, strict=True)
        ]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UpskillError as error:
            error.hint = fitting_hint(error.hint, self._flags)
            raise


class Group(click.Group):
    command_class = Command

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        Command.format_help_text(cast("Command", self), ctx, formatter)


def fitting_hint(hint: str, flags: set[str]) -> str:
    """Drop sentences that name options this command lacks; other commands may be named."""
    fitting: list[str] = []
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`])", hint):
        prose = re.sub(r"`[^`]*`", "", sentence)  # a whole command line speaks for itself
        if flags.issuperset(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", prose)):
            fitting.append(sentence)
    return " ".join(fitting)


def _grouped(
    command: str, options: Sequence[click.Option]
) -> Iterator[tuple[str, list[click.Option]]]:
    if len(options) <= MANY:
        yield "Options", list(options)
        return
    left = {
        next((flag for flag in each.opts if flag.startswith("--")), each.opts[0]): each
        for each in options
    }
    groups = {"Most used": COMMON.get(command, ()), **GROUPS}
    for title, flags in groups.items():
        if of_group := [left.pop(flag) for flag in flags if flag in left]:
            yield title, of_group
    if left:
        yield "Other options", list(left.values())


def _row(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    """As click would write it, with a range in words and only where a person could miss it."""
    record = option.get_help_record(ctx)
    assert record is not None
    extra = option.get_help_extra(ctx)
    notes = (
        [f"default: {extra['default'].strip('()').removesuffix('.0')}"]
        if "default" in extra
        else []
    )
    low, high = getattr(option.type, "min", None), getattr(option.type, "max", None)
    if (
        low is not None and high is not None and high <= 100
    ):  # more is no limit that anybody would miss
        notes.append(f"{low:g} to {high:g}")
    if "required" in extra:
        notes.append("required")
    return record[0], (option.help or "") + (f"  [{'; '.join(notes)}]" if notes else "")
