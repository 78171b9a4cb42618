"""Which of millions of keys are surely not there, in a few megabytes: a Bloom filter."""

from __future__ import annotations

_BYTES = 2**22
_BYTE = _BYTES - 1


class KeyFilter:
    """Answers `key in filter` with False for keys that were never added, and with True for all others and a few: with a
    million keys, one in 1,600 that are not there."""

    # Three bits for each key, found by parts of the hash that Python keeps with every text: a trial asks twice.

    def __init__(self) -> None:
        self._bits = bytearray(_BYTES)

    def add(self, key: str) -> None:
        bits = self._bits
        number = hash(key)
        bits[number >> 3 & _BYTE] |= 1 << (number & 7)
        bits[number >> 22 & _BYTE] |= 1 << (number >> 19 & 7)
        bits[number >> 41 & _BYTE] |= 1 << (number >> 38 & 7)

    def __contains__(self, key: str) -> bool:
        bits = self._bits
        number = hash(key)
        return bool(
            bits[number >> 3 & _BYTE] & 1 << (number & 7)
            and bits[number >> 22 & _BYTE] & 1 << (number >> 19 & 7)
            and bits[number >> 41 & _BYTE] & 1 << (number >> 38 & 7)
        )
