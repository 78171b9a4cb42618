"""Keys of trials: what stands before the seed is written and hashed once, as keys are asked for often."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _hashlib import HASH

MOST_BEGUN = 4_000  # models, cases and arms of which the beginning is kept


class BegunKeys:
    """A key is the digest of a JSON list: the settings, the arm, the model, the case, the seed, and what a case adds.

    `questions` has, by model and case, what stands before the seed and after it.
    """

    def __init__(
        self, settings: str, arms: Mapping[str, str], questions: Mapping[tuple[str, str], tuple[str, str]]
    ) -> None:
        self.parts = settings, arms, questions
        self._begun = lru_cache(maxsize=MOST_BEGUN)(self._begin)

    def __reduce__(self) -> tuple[Any, ...]:
        return BegunKeys, self.parts  # a hash that was begun cannot travel

    def key(self, model: str, case: str, arm: str, seed: int) -> str:
        begun, after = self._begun(model, case, arm)
        whole = begun.copy()
        whole.update(b"%d%b" % (seed, after))
        return whole.hexdigest()[:16]

    def _begin(self, model: str, case: str, arm: str) -> tuple[HASH, bytes]:
        settings, arms, questions = self.parts
        before, after = questions[model, case]
        return sha256(f"[{settings},{arms[arm]},{before},".encode(errors="surrogatepass")), f"{after}]".encode()
