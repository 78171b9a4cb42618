"""Trials in compressed blocks: the page opens one when it needs it, and the file stays small."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from upskill.reports.html.data import LONGEST_TEXT, to_json_bytes, trial_to_page
from upskill.runs.plan import Result

BLOCK = 150_000  # bytes of JSON after which a block is closed
# Bytes of all blocks together that are fine however few trials there are, and bytes that each trial may add. Where the
# texts of a run come to more, they are cut shorter.
FREE, EACH = 600_000, 600
LIMITS = (LONGEST_TEXT, 6_000, 2_000, 700, 250)  # characters of one text, tried in turn
COLUMNS = (
    *("case", "model", "arm", "seed", "outcome", "cause", "input_tokens", "output_tokens", "cost_usd", "seconds"),
    *("activated", "turns", "calls"),
)


class Blocks:
    """Every trial of a run as compressed text, and the columns that filters need."""

    def __init__(self, results: Callable[[], Iterable[Result]], trials: int) -> None:
        budget = max(FREE, EACH * trials)
        for limit in LIMITS:
            self.limit, self.texts, self.sizes = limit, list[str](), list[int]()
            self.columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
            used = 0
            for block in self._blocks(results(), limit):
                self.texts.append(block)
                used += len(block)
                if used > budget and limit != LIMITS[-1]:
                    break
            else:
                return

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


def compress(data: bytes) -> str:
    """As a browser's DecompressionStream reads it, in letters that HTML leaves alone."""
    return b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")
