"""The split of a suite into train and held-out cases: two of every five, drawn by their ids.

Cases are taken in the order of the file, five at a time, and of each five a hash of the ids draws two (selection
sampling). So 20 cases give 8, every case has the same chance, and a case that is added at the end never moves another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

HELD_OUT_SHARE = 0.4
BLOCK = 5


def split(cases: Iterable[tuple[str, bool | None]]) -> Iterator[bool]:
    """For each case, by its id and the side that it says it is on, whether it is held out.

    Cases that say so are taken at their word; where they are too many or too few, those that follow make up for it, by
    one in every five.
    """
    held_out = placed = quota = left = 0
    for id, said in cases:  # noqa: A001
        if left == 0:
            short = round(HELD_OUT_SHARE * (placed + BLOCK)) - held_out
            quota, left = min(max(short, 1), 3), BLOCK
        side = said if said is not None else _draw(id) * left < quota
        held_out, placed, quota, left = held_out + side, placed + 1, quota - side, left - 1
        yield side


def _draw(id: str) -> float:  # noqa: A002
    """A number from 0 to 1 that only the id decides."""
    return int(hashlib.sha256(id.encode()).hexdigest()[:8], 16) / 2**32
