"""Notes: what became of a file of another tool, counted, with the names of the cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from upskill.plain import counted, printable

MOST_LINES = 8  # of warnings about one file
MOST_NAMES = 3  # that are listed before an ellipsis


class Notes:
    """Filled while a file is read. `format` is empty where it was a suite of ours all along."""

    def __init__(self) -> None:
        self.format = ""
        self.title = ""
        self.found = 0  # cases in the file
        self.kept = 0
        self.carried: Counter[str] = Counter()  # our checks, by name
        self.changes: dict[str, list[str]] = {}
        self.omissions: dict[str, list[str]] = {}
        self.cases_left_out: dict[str, list[str]] = {}
        self.fields: Counter[str] = Counter()  # that have no meaning here, and are kept as metadata

    def carry(self, checks: Iterable[str]) -> None:
        self.carried.update(checks)

    def change(self, what: str, case: str = "") -> None:
        self.changes.setdefault(what, []).append(case)

    def leave_out(self, what: str, why: str, case: str = "") -> None:
        self.omissions.setdefault(f"{what}: {why}", []).append(case)

    def leave_out_case(self, why: str, case: str) -> None:
        self.cases_left_out.setdefault(why, []).append(case)

    def keep(self, fields: Iterable[str]) -> None:
        self.fields.update(list(fields))

    @property
    def summary(self) -> str:
        """Carried over, in one line."""
        checks = ", ".join(f"{number} {name}" for name, number in self.carried.most_common())
        whole = counted(self.found, "case") if self.kept == self.found else f"{self.kept} of {self.found} cases"
        return f"{whole} with {counted(self.carried.total(), 'check')} ({checks})"

    def changed(self) -> Iterator[str]:
        for what, cases in self.changes.items():
            yield printable(what + _in(cases))

    def left_out(self) -> Iterator[str]:
        for what, cases in self.omissions.items():
            yield printable(what + _in(cases))
        for why, cases in self.cases_left_out.items():
            names = ", ".join(cases[:MOST_NAMES]) + (", …" if len(cases) > MOST_NAMES else "")
            yield printable(f"{names}: {why}" if len(cases) == 1 else f"{len(cases)} cases ({names}): {why}")

    @property
    def metadata(self) -> str:
        """The one note about fields that mean nothing here; empty where there are none."""
        if not self.fields:
            return ""
        names = ", ".join(f"{name} ({number})" if number > 1 else name for name, number in self.fields.most_common())
        return printable(f"kept as metadata, and not used: {names}")

    def warnings(self, where: str) -> Iterator[str]:
        """What somebody who only reads the file has to know."""
        if self.metadata:
            yield f"{where}: {self.metadata}"
        for title, told in (("left out", self.left_out()), ("changed", self.changed())):
            lines = list(told)
            for line in lines[:MOST_LINES]:
                yield f"{where}: {title}: {line}"
            if len(lines) > MOST_LINES:
                yield f"{where}: {title}: {len(lines) - MOST_LINES} things more; `upskill import {where}` lists them"


def _in(cases: list[str]) -> str:
    names = list(dict.fromkeys(case for case in cases if case))
    if not names:
        return f" ({len(cases)} times)" if len(cases) > 1 else ""
    shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    return f" ({len(cases)} times: {shown})" if len(cases) > 1 else f" ({shown})"
