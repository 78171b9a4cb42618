"""Options are dataclass fields that also define their command-line flags.

The library takes an options class as a value; the command line makes flags from it.

    @dataclass(kw_only=True)
    class EvalOptions:
        repeats: int = option("--repeats", default=1, help="How often each case is run.", metavar="N", minimum=1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

KEY = "option"  # of a field's metadata


@dataclass(frozen=True, slots=True)
class Option:
    """The command-line form of one field."""

    flags: tuple[str, ...]
    help: str
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    show_default: bool | str = (
        False  # a string: the class's attribute with the default, if the field's own is None
    )
    count: bool = False  # the value is how often the flag appears
    hidden: bool = False  # still accepted, but not in the help
    bare: str = ""  # what the flag means without a value; empty: it needs one


def option(*flags: str, default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - click's own word
    """A dataclass field with these flags; `more` are the other fields of `Option`.

    A `bool` becomes a flag (`--on/--off` in one string has both forms), a tuple an option that may be repeated, and a
    `Literal` a choice. A subclass that gives the field another default keeps the flags.
    """
    return field(default=default, metadata={KEY: Option(flags, help, **more)})


def count_option(*flags: str, default: int, help: str, maximum: int, minimum: int = 1) -> Any:  # noqa: A002
    return option(
        *flags,
        default=default,
        help=help,
        metavar="N",
        minimum=minimum,
        maximum=maximum,
        show_default=True,
    )


def options_of(cls: type[Any]) -> Iterator[tuple[str, Option, Any, Any]]:
    """Every field that has flags: its name, option, type and default. A class's own come before those it inherits."""
    hints = get_type_hints(cls)
    by_name = {each.name: each for each in fields(cls) if each.init}
    declared: dict[str, Option] = {}
    for base in cls.__mro__:
        for name, each in getattr(base, "__dataclass_fields__", {}).items():
            if name in by_name and KEY in each.metadata:
                declared.setdefault(name, each.metadata[KEY])
    for base in cls.__mro__:
        for name in vars(base).get("__annotations__", {}):
            if name in declared:
                is_union = get_origin(hints[name]) in (Union, UnionType)
                kinds = (
                    [kind for kind in get_args(hints[name]) if kind is not NoneType]
                    if is_union
                    else [hints[name]]
                )
                option = declared.pop(name)
                if isinstance(option.show_default, str):
                    option = replace(option, show_default=str(getattr(cls, option.show_default)))
                yield name, option, kinds[0], by_name[name].default
