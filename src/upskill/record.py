"""A record: a dataclass with slots whose fields are set once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A frozen dataclass, as type checkers see it: they refuse to let anything set a field again.

    Python itself does not hold that back, which makes a record four times as fast to make and the class cheaper to
    define. A trial makes thirty of them, and starting up defines a hundred.
    """
    if cls.__doc__ is None:
        cls.__doc__ = ""  # or `dataclass` would write out the signature, at the price of the rest
    return dataclass(slots=True, unsafe_hash=True)(cls)
