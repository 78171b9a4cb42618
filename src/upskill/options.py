"""Options are dataclass fields that also say how a person gives them on the command line.

An options class is written once: the library takes it as a value, and the command line makes its flags from it.

    @dataclass(kw_only=True)
    class EvalOptions:
        runs: int = option("--runs", default=1, help="How often each case is run.", metavar="N", minimum=1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

KEY = "option"  # of a field's metadata
MAX_REPEATS = 1_000_000  # of a case: each is planned before the first is run


@dataclass(frozen=True, slots=True)
class Option:
    """How one field is given on the command line."""

    flags: tuple[str, ...]
    help: str
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False  # the minimum itself is refused
    show_default: bool = False
    count: bool = False  # how often the flag is given
    hidden: bool = False  # still taken, but not in the help
    bare: str = ""  # what the flag means without a value; empty: it needs one


def option(*flags: str, default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - click's own word
    """A dataclass field with these flags; `more` are the other fields of `Option`.

    A `bool` becomes a flag (`--on/--off` in one string has both forms), a tuple an option that may be repeated, and a
    `Literal` a choice.
    """
    return field(default=default, metadata={KEY: Option(flags, help, **more)})


def options_of(cls: type[Any]) -> Iterator[tuple[str, Option, Any, Any]]:
    """Every field that has flags: its name, option, type and default. A class's own come before those it inherits."""
    hints = get_type_hints(cls)
    with_flags = {each.name: each for each in fields(cls) if KEY in each.metadata}
    for part in cls.__mro__:
        for name in vars(part).get("__annotations__", {}):
            if name in with_flags:
                each = with_flags.pop(name)
                yield name, each.metadata[KEY], _without_none(hints[name]), each.default


def _without_none(hint: Any) -> Any:
    """The type of what a person writes, which is never None."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return next(kind for kind in get_args(hint) if kind is not type(None))
