"""A registry: names a person may type, each standing for "module:attribute" that is loaded when first used.

Built-ins are rows of a table; other packages add rows through an entry point in the registry's group.
"NAME:ARGUMENT" is what the `with_argument` of a built-in makes of its argument.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import Any

from upskill.errors import UsageError, did_you_mean


class Registry:
    def __init__(self, noun: str, group: str, table: Mapping[str, str]) -> None:
        self.noun = noun
        self.group = group
        self.table = table

    @cached_property
    def rows(self) -> dict[str, str]:
        """Every name with its place. A built-in wins over a package that claims the same name."""
        from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and only for what is no built-in

        plugins = {
            point.name: f"{point.module}:{point.attr}" for point in entry_points(group=self.group)
        }
        return plugins | dict(self.table)

    def __contains__(self, name: str) -> bool:
        return name in self.table or name in self.rows

    def names(self) -> list[str]:
        return sorted(self.rows)

    def load(self, name: str) -> Any:
        target = self.table.get(name) or self.rows.get(name)
        if target is None and (kind := name.partition(":")[0]) in self.table:
            with_argument = getattr(self.load(kind), "with_argument", None)
            if with_argument is not None:
                return with_argument(name.partition(":")[2])
        if target is None:
            raise UsageError(f"no {self.noun} named {name!r}", did_you_mean(name, self.names()))
        module, _, attribute = target.partition(":")
        try:
            return attrgetter(attribute)(sys.modules.get(module) or import_module(module))
        except ImportError as error:
            package = (error.name or module).split(".")[0]
            if package == "upskill":
                raise
            raise UsageError(
                f"the {name!r} {self.noun} needs the {package!r} package, which is not installed",
                f"Run `{sys.executable} -m pip install {package}`.",
            ) from error
        except AttributeError as error:
            if name in self.table:
                raise
            raise UsageError(
                f"cannot load the {name!r} {self.noun} from {target}: {error}"
            ) from error
