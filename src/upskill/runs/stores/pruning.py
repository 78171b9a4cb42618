"""Pruning a store: which runs and replies are no longer wanted, and deleting them. Looks stay: they were had."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from upskill.errors import UsageError
from upskill.runs.stores import Run, RunStore, Store
from upskill.runs.stores.sql import SqlStore

KEYS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Pruned:
    runs: int = 0
    results: int = 0
    replies: int = 0
    busy: tuple[str, ...] = ()  # runs that somebody is working on, and so were left alone


def choose_runs(
    store: RunStore, skill: str | None = None, *, older_than: timedelta | None = None, keep: int | None = None
) -> list[Run]:
    """Runs of this skill, or of any, that are older than this and not among the latest so many of their skill."""
    latest = datetime.now(UTC) - (older_than or timedelta())
    seen: dict[str, int] = defaultdict(int)
    chosen: list[Run] = []
    for run in store.runs(skill, newest_first=True):
        seen[run.skill] += 1
        is_old = older_than is None or datetime.fromisoformat(run.created) < latest
        if is_old and (keep is None or seen[run.skill] > keep):
            chosen.append(run)
    return chosen[::-1]


def prune_runs(store: RunStore, runs: Iterable[Run]) -> Pruned:
    """Delete these runs with their results, but for those that somebody is working on."""
    deleted = results = 0
    busy: list[str] = []
    for run in runs:
        try:
            with store.claim(run):
                now = store.run(run.id)
                store.delete_run(run)
        except UsageError:
            busy.append(run.id)
            continue
        deleted += 1
        results += now.passed + now.failed + now.errored
    return Pruned(deleted, results, busy=tuple(busy))


def unused_replies(store: Store, without: Iterable[Run] = ()) -> Iterator[str]:
    """Keys of replies of students that no run uses, once these runs are gone.

    What teachers, test writers and judges were asked is kept: it shows what they knew. So is what may have been used by
    a run from before upskill noted it.
    """
    assert isinstance(store, SqlStore)
    gone = {run.number for run in without}
    used: set[str] = set()
    unknown: set[str] = set()  # models
    for run, model, text in store.select("SELECT run, model, detail FROM results"):
        if run in gone:
            continue
        detail: dict[str, Any] = json.loads(text)
        used.update(asked[0] for asked in detail.get("asked", ()))
        if "asked" not in detail:
            unknown.add(model)
    for key, model in store.select("SELECT key, model FROM replies WHERE role IS NULL"):
        if key not in used and model not in unknown:
            yield key


def prune_replies(store: Store, keys: Iterable[str]) -> int:
    assert isinstance(store, SqlStore)
    found, deleted = iter(keys), 0
    while some := list(islice(found, KEYS_AT_ONCE)):
        with store.transaction() as db:
            db.execute(f"DELETE FROM replies WHERE key IN ({', '.join('?' * len(some))})", some)  # noqa: S608
        deleted += len(some)
    return deleted


def any_busy(store: RunStore) -> list[str]:
    """The runs that somebody is working on."""
    return [run.id for run in store.runs() if store.is_claimed(run)]
