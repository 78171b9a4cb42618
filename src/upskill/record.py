"""A record: a dataclass with slots whose fields are set once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
def record(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """A frozen dataclass, as type checkers see it: they refuse to let anything set a field again.

    Python itself does not hold that back, which makes a record four times as fast to make. `dataclass` would write and
    compile a method for each thing that a class can do, and here does so for `__init__` alone. A trial makes thirty
    records, and starting up defines a hundred.
    """
    return _made(cls, kw_only) if cls is not None else lambda cls: _made(cls, kw_only)


def _made(cls: type[T], kw_only: bool) -> type[T]:
    if cls.__doc__ is None:
        cls.__doc__ = ""  # or `dataclass` would write out the signature, at the price of the rest
    made: Any = dataclass(slots=True, eq=False, repr=False, kw_only=kw_only)(cls)
    all_fields = fields(made)
    compared = _values(*(one.name for one in all_fields if one.compare))
    hashed = _values(*(one.name for one in all_fields if (one.compare if one.hash is None else one.hash)))
    shown = [one.name for one in all_fields if one.repr]
    names = [one.name for one in all_fields]
    whole = _values(*names)

    def equals(self: Any, other: object) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    @recursive_repr()
    def show(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def make_hash(self: Any) -> int:
        return hash(hashed(self))

    def reduce(self: Any) -> tuple[Any, ...]:
        """For another process, at half the price of what Python does by itself."""
        return self.__class__, whole(self) if len(names) > 1 else tuple(getattr(self, name) for name in names)

    own = made.__dict__
    if not any(one.kw_only for one in all_fields):
        made.__reduce__ = reduce
    made.__repr__ = own.get("__repr__") or show
    if "__eq__" not in own:
        made.__eq__ = equals
        made.__hash__ = own.get("__hash__") or make_hash
    return made


def _values(*names: str) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else type  # nothing sets records of one class without fields apart
