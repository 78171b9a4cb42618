"""A Part is some cases of a suite, which somebody chose: enough to try an edit, and no verdict on the skill."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from upskill.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from upskill.suites.suite import Suite


@dataclass(frozen=True, slots=True)
class Part:
    """How the cases of a suite were chosen."""

    of: int  # cases that the suite has in all
    chosen: str  # the flags that chose, as a person writes them
    by_outcome: bool = False  # they were chosen for how they ended before


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Which cases somebody wants: those that fit every condition, and of these the first few."""

    ids: Sequence[str] = ()  # or patterns: `build-*`
    tags: Sequence[str] = ()  # any of them
    failing: Collection[str] | None = None  # the ids of cases that failed before
    limit: int | None = None

    def choose(self, suite: Suite) -> Suite:
        """The cases that fit, with the split that they have in the whole suite; UsageError where none does."""
        self._check_names(suite)
        chosen = [
            case
            for case in suite.cases
            if (not self.ids or any(_fits(case.id, wanted) for wanted in self.ids))
            and (not self.tags or set(self.tags) & set(case.tags))
            and (self.failing is None or case.id in self.failing)
        ][: self.limit]
        if not chosen:
            raise UsageError(f"{suite.source}: no case fits {self.words}", "Leave some of it out.")
        if len(chosen) == len(suite.cases):
            return suite
        part = Part(len(suite.cases), self.words, by_outcome=self.failing is not None)
        return replace(suite, cases=tuple(chosen), part=part)

    @property
    def words(self) -> str:
        """The flags, as a person writes them."""
        parts = [f"--case {wanted}" for wanted in self.ids] + [f"--tag {tag}" for tag in self.tags]
        parts += ["--failed"] if self.failing is not None else []
        parts += [f"--limit {self.limit}"] if self.limit is not None else []
        return " ".join(parts)

    def _check_names(self, suite: Suite) -> None:
        for wanted in self.ids:
            if not any(_fits(case.id, wanted) for case in suite.cases):
                hint = did_you_mean(wanted, list(suite.by_id), otherwise="Patterns such as 'build-*' fit several.")
                raise UsageError(f"{suite.source}: no case is called {wanted!r}", hint)
        tags = sorted({tag for case in suite.cases for tag in case.tags})
        if unknown := next((tag for tag in self.tags if tag not in tags), None):
            hint = did_you_mean(unknown, tags) if tags else "None of its cases has a tag."
            raise UsageError(f"{suite.source}: no case has the tag {unknown!r}", hint)


def _fits(case: str, wanted: str) -> bool:
    return case == wanted or fnmatchcase(case, wanted)
