"""The smaller tables of a store: looks at runs, batches at providers, and candidates for better skills."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from upskill.runs.stores.database import Database, repeatable
from upskill.runs.stores.rows import (
    LOOK_COLUMNS,
    Batch,
    Candidate,
    Look,
    escape_surrogates,
    files_to_json,
    optional_bool,
    timestamp,
    to_json,
)
from upskill.skills import Skill
from upskill.suites import Suite

_LOOK_COLUMNS = ", ".join(LOOK_COLUMNS)
_ADD_LOOK = f"INSERT INTO looks ({_LOOK_COLUMNS}) VALUES ({', '.join('?' * len(LOOK_COLUMNS))}) ON CONFLICT DO NOTHING"  # noqa: S608


class SqlLooks(Database):
    @repeatable
    def add_look(self, look: Look) -> Look:
        values = [getattr(look, name) for name in LOOK_COLUMNS]
        for name in ("cases", "verdict"):
            values[LOOK_COLUMNS.index(name)] = to_json(dict(getattr(look, name)))
        with self._transaction() as db:
            db.execute(_ADD_LOOK, values)
        where = "run = ? AND model = ? AND margin = ? AND scope = ? AND trials = ?"
        return _look(self._rows(_looks_query(where), *look.identity)[0])

    def looks_at(self, run: str) -> list[Look]:
        return list(map(_look, self._rows(_looks_query("run = ?"), run)))

    def latest_looks(self, skill: str, count: int) -> list[Look]:
        latest = "number IN (SELECT number FROM looks WHERE skill = ? ORDER BY number DESC LIMIT ?)"
        return list(map(_look, self._rows(_looks_query(latest), skill, count)))[::-1]

    def looks(self, skill: str, suite: Suite | None = None) -> Iterator[Look]:
        found = map(_look, self._stream(_looks_query("skill = ?"), skill))
        return (look for look in found if suite is None or look.cases.keys() & suite.by_id.keys())


def _looks_query(where: str) -> str:
    return f"SELECT {_LOOK_COLUMNS}, number FROM looks WHERE {where} ORDER BY number"  # noqa: S608


def _look(row: tuple[Any, ...]) -> Look:
    columns = dict(zip((*LOOK_COLUMNS, "number"), row, strict=True))
    return Look(**columns | {name: json.loads(columns[name]) for name in ("cases", "verdict")})


class SqlBatches(Database):
    def pending_batches(self, url: str) -> list[Batch]:
        rows = self._rows(
            "SELECT token, model, url, id, submitted, keys FROM batches WHERE state != 'ended' AND url = ?"
            " ORDER BY submitted, token",
            url,
        )
        return [Batch(*row, keys=tuple(json.loads(keys))) for *row, keys in rows]

    @repeatable
    def begin_batch(self, run: str, model: str, url: str, keys: Iterable[str]) -> Batch:
        batch = Batch(uuid4().hex, model, url, "", timestamp(), tuple(keys))
        with self._transaction() as db:
            db.execute(
                "INSERT INTO batches (token, run, model, url, id, submitted, state, keys) VALUES (?,?,?,?,?,?,?,?)",
                (batch.token, run, model, url, "", batch.submitted, "submitting", to_json(batch.keys)),
            )
        return batch

    @repeatable
    def confirm_batch(self, batch: Batch, provider_id: str) -> Batch:
        with self._transaction() as db:
            db.execute("UPDATE batches SET id = ?, state = 'open' WHERE token = ?", (provider_id, batch.token))
        return replace(batch, id=provider_id)

    @repeatable
    def settle_batch(self, batch: Batch, keys: Iterable[str] | None = None) -> None:
        with self._transaction() as db:
            row = db.execute("SELECT keys FROM batches WHERE token = ?", (batch.token,)).fetchone()
            settled = set(keys) if keys is not None else None
            left = [key for key in json.loads(row[0]) if settled is not None and key not in settled] if row else []
            state = ", state = 'ended'" if not left else ""
            db.execute(f"UPDATE batches SET keys = ?{state} WHERE token = ?", (to_json(left), batch.token))  # noqa: S608


class SqlCandidates(Database):
    @repeatable
    def add_candidate(
        self,
        search: str,
        skill: Skill,
        parent: int | None,
        accepted: bool | None,
        note: str,
        verdict: Mapping[str, Any],
    ) -> Candidate:
        identity = (search, skill.visible_hash)
        row = (*identity, skill.name, parent, timestamp(), files_to_json(skill.files))
        with self._transaction() as db:
            db.execute(
                "INSERT INTO candidates (search, fingerprint, skill, parent, created, files, accepted, note, verdict)"
                " VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (search, fingerprint) DO UPDATE SET"
                " accepted = excluded.accepted, note = excluded.note, verdict = excluded.verdict",
                (*row, accepted, escape_surrogates(note), to_json(verdict)),
            )
        return _candidate(self._rows(_candidates_query("search = ? AND fingerprint = ?"), *identity)[0])

    def skills_with_candidates(self) -> dict[str, int]:
        return dict(self._rows("SELECT skill, count(*) FROM candidates GROUP BY skill ORDER BY skill"))

    def candidates(self, skill: str) -> Iterator[Candidate]:
        return map(_candidate, self._stream(_candidates_query("skill = ?"), skill))


def _candidates_query(where: str) -> str:
    return (
        "SELECT number, search, skill, fingerprint, parent, created, accepted, note, verdict, files"  # noqa: S608
        f" FROM candidates WHERE {where} ORDER BY number"
    )


def _candidate(row: tuple[Any, ...]) -> Candidate:
    *first, accepted, note, verdict, files = row
    return Candidate(*first, accepted=optional_bool(accepted), note=note, verdict=json.loads(verdict), files=files)
