"""Which of millions of keys are surely not there, in a few megabytes: a Bloom filter."""

from __future__ import annotations

import hashlib

_WIDTH = 25  # bits of a place
_PLACES = 4  # of each key: with a million keys, one in 6,000 that are not there seems to be


class KeyFilter:
    """Answers `key in filter` with False for keys that were never added, and with True for all others and a few."""

    def __init__(self) -> None:
        self._bits = bytearray(2**_WIDTH // 8)

    def add(self, key: str) -> None:
        for place in _places(key):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, key: str) -> bool:
        return all(self._bits[place >> 3] >> (place & 7) & 1 for place in _places(key))


def _places(key: str) -> list[int]:
    number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest())
    return [number >> shift & 2**_WIDTH - 1 for shift in range(0, _WIDTH * _PLACES, _WIDTH)]
