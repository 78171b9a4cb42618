"""A cassette: a file of recorded replies, to replay a run on any machine.

Gzipped JSON lines: what was run, then every trial followed by its replies, then how many there were. Requests are
hashes only. It may come from anyone, so everything in it is checked.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

from upskill.errors import UsageError, did_you_mean
from upskill.inputs import open_input
from upskill.models import Address, Reply, Stop, ToolCall
from upskill.plain import as_list, as_mapping, counted, load_json
from upskill.traces import Usage

FORMAT, VERSION = "upskill-replies", 1
MAX_BYTES = 2_000_000_000  # of the file
MAX_UNPACKED = 4_000_000_000
MAX_LINE = 64_000_000
_UNUSABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
MAX_NAMED = 5  # cases in one message
MAX_RUNS = 100_000
MAX_TRIALS = 1_000_000
MAX_NAME = 500  # characters, of a model
MAX_NUMBER = 1e12  # a number that nothing real reaches

_TABLE = "CREATE TABLE replies (model INTEGER, request TEXT, reply TEXT, line INTEGER, PRIMARY KEY (model, request))"
_REPLY = "SELECT reply, line FROM replies WHERE model = ? AND request = ?"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a cassette knows of one trial."""

    key: str
    error: str  # why there is no result; empty if it was scored
    redacted: bool  # secrets were taken out of something that was answered in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the recorded run was made."""

    run: str  # its id
    created: str
    skill: str
    visible_hash: str  # of what students see of the skill
    agent: str
    arms: tuple[str, ...]
    runs: int
    seed: int
    temperature: float | None
    max_output_tokens: int
    limit_is_stated: bool
    bounds: Mapping[str, Any]  # of an agent that acts
    salt: str = ""  # part of the seeds of students that sample
    from_cache: tuple[str, ...] = ()  # models whose servers answered from a cache


class _HashedFile:
    """A stream whose bytes are hashed as they are read."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.hash.update(data)
        return data


class Cassette:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._db = sqlite3.connect("", check_same_thread=False)  # gone when it is closed
        self._db.execute(_TABLE)
        self._trials: dict[tuple[int, str, str, int], Recorded] = {}  # by model, case, arm and seed
        self._content = hashlib.sha256()
        self._ended = False
        self.replies = 0
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    @property
    def digest(self) -> str:
        """Of what it says, however it is packed."""
        return self._content.hexdigest()[:16]

    def _unreadable(self, why: str) -> UsageError:
        return UsageError(
            f"{self.path}: cannot be read as a replies file: {why}",
            "`upskill export RUN --replies FILE` writes one. If this file is damaged, download it again.",
        )

    # Reading it.

    def _read(self) -> None:
        lines = self._lines()
        try:
            first = next(lines, None)
            if first is None or first.get("format") != FORMAT:
                raise ValueError("the first line is not a header")
            if first.get("version") != VERSION:
                raise UsageError(
                    f"{self.path}: format version {first.get('version')!r} is not supported; expected {VERSION}",
                    "Update upskill.",
                )
            self._read_header(first)
            for number, line in enumerate(lines, start=2):
                try:
                    self._read_line(line, number)
                except (*_UNUSABLE, sqlite3.Error) as error:
                    raise ValueError(
                        f"line {number} is invalid ({type(error).__name__}: {error})"
                    ) from error
        except _UNUSABLE as error:
            raise self._unreadable(str(error)) from error
        except (OSError, EOFError, zlib.error) as error:
            raise self._unreadable(f"it is damaged or cut off ({error})") from error
        if not self._ended:
            raise self._unreadable("the last line is missing")

    def _lines(self) -> Iterator[dict[str, Any]]:
        unpacked = 0
        with open_input(self.path, most=MAX_BYTES) as file:
            self._written = os.fstat(file.fileno()).st_mtime
            packed = _HashedFile(file)
            stream = gzip.GzipFile(fileobj=cast("BinaryIO", packed))
            while text := stream.readline(MAX_LINE + 1):
                unpacked += len(text)
                if len(text) > MAX_LINE or unpacked > MAX_UNPACKED:
                    raise ValueError(
                        f"it unpacks to more than {MAX_UNPACKED // 10**9} GB, or a line is too long"
                    )
                self._content.update(text)
                line = as_mapping(load_json(text))
                if line is None:
                    raise ValueError("a line is not an object")
                yield line
            self.sha256 = packed.hash.hexdigest()

    def _read_header(self, line: Mapping[str, Any]) -> None:
        self.addresses = tuple(_address(row) for row in line["models"])
        judge = line["judge"]
        self.judge = None if judge is None else self.addresses[self._model(judge)]
        self.students = self.addresses[: self._model(line["students"] - 1) + 1]
        if len({address.name for address in self.addresses}) < len(self.addresses):
            raise ValueError("two models have the same name")
        self.settings = settings = Settings(
            **{
                field.name: line[field.name]
                for field in fields(Settings)
                if field.name in line or field.default is MISSING
            }
        )
        _integer(settings.seed)
        if not 1 <= _integer(settings.runs) <= MAX_RUNS or _integer(settings.max_output_tokens) < 1:
            raise ValueError("the number of repeats or the output limit is out of range")
        if settings.temperature is not None:
            _number(settings.temperature)
        if as_mapping(settings.bounds) is None:
            raise ValueError("the limits are not an object")
        for value in (
            settings.run,
            settings.created,
            settings.skill,
            settings.visible_hash,
            settings.agent,
            settings.salt,
            *settings.from_cache,
        ):
            _text(value)
        for arm in settings.arms:
            _text(arm)

    @property
    def date(self) -> tuple[str, bool]:
        """The day it was recorded, by its own account, and True; else that of the file, and False."""
        try:
            return datetime.fromisoformat(self.settings.created).date().isoformat(), True
        except ValueError:
            return datetime.fromtimestamp(self._written, UTC).date().isoformat(), False

    def _read_line(self, line: dict[str, Any], number: int) -> None:
        if self._ended:
            raise ValueError("data after the last line")
        if trial := as_mapping(line.get("trial")):
            identity = (
                self._model(trial["model"]),
                _text(trial["case"]),
                _text(trial["arm"]),
                _integer(trial["seed"]),
            )
            if identity in self._trials or len(self._trials) >= MAX_TRIALS:
                raise ValueError(f"a duplicate trial, or more than {MAX_TRIALS:,} trials")
            key, error = _text(trial.get("key", "")), _text(trial.get("error", ""))
            self._trials[identity] = Recorded(key, error, bool(trial.get("redacted", False)))
        elif reply := as_mapping(line.get("reply")):
            model, request = self._model(reply["by"]), _text(reply["request"])
            read_recorded(reply)  # whatever is wrong with it is said now
            row = (model, json.dumps(request), json.dumps(reply, sort_keys=True))  # for surrogates
            known = self._db.execute(_REPLY, row[:2]).fetchone()
            if known is None:
                self._db.execute("INSERT INTO replies VALUES (?, ?, ?, ?)", (*row, number))
            elif known[0] != row[2]:  # the same reply may be there for several cases
                raise ValueError(f"line {known[1]} has a different reply to the same request")
            self.replies += 1
        elif end := as_mapping(line.get("end")):
            self._ended = True
            for kind, count in (("trials", len(self._trials)), ("replies", self.replies)):
                if count != end[kind]:
                    raise ValueError(f"expected {end[kind]} {kind}, found {count}")
        else:
            raise ValueError("it is neither a trial nor a reply")

    def _model(self, value: object) -> int:
        number = _integer(value)
        if not 0 <= number < len(self.addresses):
            raise ValueError(f"there is no model {number}")
        return number

    # Looking things up.

    def address(self, name: str) -> Address:
        names = [address.name for address in self.addresses]
        if name not in names:
            has = f"It contains {', '.join(names)}."
            near = did_you_mean(name, names) if len(names) > 1 else ""
            raise UsageError(
                f"{self.path}: no replies from {name}", near if near.startswith("Did") else has
            )
        return self.addresses[names.index(name)]

    def reply(self, address: Address, request: str) -> Reply | None:
        model = [each.name for each in self.addresses].index(address.name)
        row = self._db.execute(_REPLY, (model, json.dumps(request))).fetchone()
        return read_recorded(json.loads(row[0])) if row else None

    def trial(self, model: str, case: str, arm: str, seed: int) -> Recorded | None:
        number = [each.name for each in self.students].index(model)
        return self._trials.get((number, case, arm, seed))

    def seeds(self, case: str) -> list[int]:
        return sorted({seed for _, each, _, seed in self._trials if each == case})

    @property
    def trials(self) -> int:
        return len(self._trials)

    @property
    def cases(self) -> set[str]:
        return {case for _, case, _, _ in self._trials}

    @property
    def size(self) -> str:
        replies = "1 reply" if self.replies == 1 else f"{self.replies:,} replies"
        return f"{replies} of {counted(len(self._trials), 'trial')}"

    @property
    def warnings(self) -> list[str]:
        cases = sorted({case for (_, case, _, _), trial in self._trials.items() if trial.redacted})
        if not cases:
            return []
        named = ", ".join(cases[:MAX_NAMED]) + (", …" if len(cases) > MAX_NAMED else "")
        where = f"{counted(len(cases), 'case')} ({named})"
        return [f"secrets were removed from recorded answers to {where}, so grades may differ"]

    def close(self) -> None:
        self._db.close()


def read_recorded(row: Mapping[str, Any]) -> Reply:
    """The reply in a line of a cassette; TypeError or ValueError if it is invalid."""
    usage = dict(row["usage"])
    for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"):
        if not 0 <= _integer(usage.get(name, 0)) <= MAX_NUMBER:
            raise ValueError(f"{name} is out of range")
    if usage.get("cost_usd") is not None:
        _number(usage["cost_usd"])
    if row.get("stop", "end") not in get_args(Stop):
        raise ValueError(f"{row.get('stop')!r} is not a stop reason")
    texts = {
        name: _text(row.get(name, "")) for name in ("text", "thoughts", "model", "stop_details")
    }
    calls = as_list(row.get("calls", []))
    thinking = as_list(row.get("thinking", []))
    if (
        calls is None
        or thinking is None
        or not all(as_mapping(each) is not None for each in (*calls, *thinking))
    ):
        raise ValueError("the calls or thoughts are not a list of objects")
    for call in calls:
        ToolCall(_text(call["id"]), _text(call["name"]), {})
        if as_mapping(call["arguments"]) is None:
            raise ValueError("the arguments of a tool call must be an object")
    plain = {
        "usage": usage,
        "calls": calls,
        "thinking": thinking,
        "stop": row.get("stop", "end"),
        **texts,
    }
    seconds, attempts = _number(row.get("seconds", 0.0)), _integer(row.get("attempts", 1))
    return read_reply(json.dumps(plain | {"seconds": seconds, "attempts": attempts}))


def _address(row: Mapping[str, Any]) -> Address:
    name = _text(row["name"])
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise ValueError(f"{name!r:.60} is not a model name")
    return Address(
        **{name: _text(row[name]) for name in ("name", "provider", "model", "endpoint", "effort")}
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a string")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        raise TypeError(f"{value!r:.60} is not an integer")
    return value


def _number(value: object) -> float:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value <= MAX_NUMBER
    ):
        raise TypeError(f"{value!r:.60} is not a number in range")
    return value


def read_reply(text: str) -> Reply:
    fields: dict[str, Any] = json.loads(text)
    fields["usage"] = Usage(**fields["usage"])
    fields["calls"] = tuple(ToolCall(**call) for call in fields["calls"])
    fields["thinking"] = tuple(fields["thinking"])
    return Reply(**fields)
