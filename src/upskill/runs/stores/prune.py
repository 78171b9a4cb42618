"""Pruning of stores: which runs and replies nobody needs, and deleting them. Looks stay: somebody saw those results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from upskill.errors import UsageError
from upskill.runs.stores import Run, Store
from upskill.runs.stores.database import chunks, marks


@dataclass(frozen=True, slots=True)
class Pruned:
    runs: int
    results: int
    replies: int
    busy: tuple[str, ...]  # runs that somebody is working on, and so were left alone


def choose_runs(
    store: Store,
    skill: str | None = None,
    *,
    older_than: timedelta | None = None,
    keep: int | None = None,
) -> list[Run]:
    """Those older than this and not among the latest so many of their skill."""
    latest = datetime.now(UTC) - (older_than or timedelta())
    counts: dict[str, int] = defaultdict(int)
    chosen: list[Run] = []
    for run in store.runs(skill, newest_first=True):
        counts[run.skill] += 1
        is_old = older_than is None or datetime.fromisoformat(run.created) < latest
        if is_old and (keep is None or counts[run.skill] > keep):
            chosen.append(run)
    return chosen[::-1]


def prune(store: Store, runs: Iterable[Run], reply_keys: Iterable[str]) -> Pruned:
    """Runs that somebody is working on are left alone."""
    deleted = results = replies = 0
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
    for keys in chunks(reply_keys):
        store.database.execute(f"DELETE FROM replies WHERE key IN ({marks(keys)})", *keys)  # noqa: S608
        replies += len(keys)
    store.database.compact()
    return Pruned(deleted, results, replies, tuple(busy))


def unused_replies(store: Store, without: Iterable[Run] = ()) -> Iterator[str]:
    """Keys of students' replies that no remaining run uses."""
    gone = {run.number for run in without}
    used: set[str] = set()
    for run, text in store.database.stream("SELECT run, detail FROM results"):
        if run not in gone:
            detail: dict[str, Any] = json.loads(text)
            used.update(request[0] for request in detail.get("asked", ()))
    for (key,) in store.database.stream("SELECT key FROM replies WHERE role IS NULL"):
        if key not in used:
            yield key
