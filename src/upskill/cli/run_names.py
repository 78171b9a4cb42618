"""Stored runs by the names that people type: an id, the start of one, `last`, `last~2`, `last:held-out`, `last:fit`."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice

from upskill.cli.options import open_existing_store
from upskill.errors import UsageError
from upskill.plain import counted
from upskill.runs.stores import Run, Store

_COUNTED_BACK = re.compile(r"last~(\d{1,9})")


@contextmanager
def open_run(location: str | None, name: str) -> Generator[tuple[Store, Run]]:
    """The store there (or of the settings), and its run of this name."""
    with open_existing_store(location) as store:
        yield store, find_run(store, name)


def find_run(store: Store, name: str) -> Run:
    """`last~1` is the run before the last. `last:held-out` is the latest run on held-out cases alone, `last:fit` that
    of the same skill on train cases."""
    if back := _COUNTED_BACK.fullmatch(name):
        if run := next(islice(store.runs(newest_first=True), int(back[1]), None), None):
            return run
        raise UsageError(
            f"no run is {name}: the store has {counted(store.count_runs(), 'run')}", "`upskill runs` lists them."
        )
    if name not in ("last:held-out", "last:fit"):
        return store.run(name)
    skill = None
    for run in store.runs(newest_first=True):
        held_out = {case.held_out for case in run.plan.suite.cases}
        if name == "last:held-out" and held_out == {True}:
            return run
        if held_out == {True}:
            skill = skill or run.plan.skill.visible_hash
        elif held_out == {False} and skill in (None, run.plan.skill.visible_hash):
            return run
    raise UsageError(f"no run is {name}", "`upskill generate` makes one; `upskill runs` lists all there are.")
