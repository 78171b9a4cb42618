"""Trials in compressed blocks: the page opens one when it needs it, and the file stays small."""

from __future__ import annotations

import gzip
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from upskill.reports.html.data import LONGEST_TEXT, to_json_bytes, trial_to_page
from upskill.runs.planning.plan import Result

BLOCK = 150_000  # bytes of JSON after which a block is closed
SHORTEST_TEXT = 60  # characters that are left of a text however many trials there are
CLOSE = 1.06  # a longest text that fits and one, so many times as long, that does not are close enough
COLUMNS = (
    *("case", "model", "arm", "seed", "outcome", "cause", "input_tokens", "output_tokens", "cost_usd", "seconds"),
    *("activated", "turns", "calls"),
)


class Blocks:
    """Every trial of a run as compressed text, and the columns that filters need."""

    def __init__(self, results: Callable[[], Iterable[Result]], room: int) -> None:
        """With texts as long as they can be for everything to take no more bytes than there is room for."""
        self._results, self._room = results, room
        longest_that_fits(self._make, SHORTEST_TEXT, LONGEST_TEXT)

    def _make(self, limit: int) -> bool:
        """Whether all trials fit with texts of this length."""
        self.limit, self.texts, self.sizes = limit, list[str](), list[int]()
        self.columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.size = 0
        for block in self._blocks(self._results(), limit):
            self.texts.append(block)
            self.size += len(block)
            if self.size > self._room and limit != SHORTEST_TEXT:
                return False
        self.packed_index = compress(to_json_bytes(self.index))
        self.size += len(self.packed_index)
        return self.size <= self._room

    @property
    def index(self) -> dict[str, Any]:
        """What the page has to know of all trials: their columns, and how many lie in each block."""
        columns: dict[str, Any] = {}
        for name, values in self.columns.items():
            if name in ("case", "model", "arm", "outcome", "cause"):
                names = list(dict.fromkeys(values))
                places = {value: place for place, value in enumerate(names)}
                columns[name] = {"names": names, "values": [places[value] for value in values]}
            else:
                columns[name] = {"values": values}
        return {"columns": columns, "blocks": self.sizes, "limit": self.limit}

    def _blocks(self, results: Iterable[Result], limit: int) -> Iterator[str]:
        rows: list[bytes] = []
        size = 0
        for result in results:
            trial = trial_to_page(result, limit)
            for name in COLUMNS:
                self.columns[name].append(trial.pop(name))
            rows.append(to_json_bytes(trial))
            size += len(rows[-1])
            if size >= BLOCK:
                yield self._close(rows)
                rows, size = [], 0
        if rows:
            yield self._close(rows)

    def _close(self, rows: list[bytes]) -> str:
        self.sizes.append(len(rows))
        return compress(b"[" + b",".join(rows) + b"]")


def longest_that_fits(make: Callable[[int], bool], shortest: int, longest: int) -> None:
    """Make something with texts as long as fit; the last that was made is the one to use. Where not even the shortest
    fit, it is made with those."""
    if make(longest):
        return
    made = None
    while longest > CLOSE * shortest:
        middle = round(math.sqrt(shortest * longest))
        made = middle
        if make(middle):
            shortest = middle
        else:
            longest = middle
    if made != shortest:
        make(shortest)


def compress(data: bytes) -> str:
    """As a browser's DecompressionStream reads it, in letters that HTML leaves alone."""
    return b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")
