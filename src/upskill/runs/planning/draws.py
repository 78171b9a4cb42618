"""Draws: how often a student answers each case, at which temperature, and what makes an answer a new draw.

A round is one draw of every case in every arm. An exact student gives the same answer however often it is asked: it
answers each case once. That is known of scripts and of greedy embedded models that only chat, and a probe finds servers
that answer from a cache (`runs.running.probe`). Agents that act are never exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from upskill.models import Address
from upskill.plain import counted, digest_text

REPEATS = 3  # draws a case, unless --repeats says otherwise
TEMPERATURE = 0.7  # of students that sample
WITHOUT_TEMPERATURE = ("command", "handoff")  # providers whose models take none
CHATTING = ("chat", "tools")  # agents of ours, which set a temperature
SEED_BITS = 31  # that servers take


@dataclass(frozen=True, slots=True)
class DrawRules:
    """How one student of a plan answers."""

    address: Address
    agent: str = "chat"
    stated_temperature: float | None = None  # by --set temperature=N
    from_cache: bool = False  # the probe has found that its server answers from a cache

    @property
    def takes_temperature(self) -> bool:
        return self.agent in CHATTING and self.address.provider not in WITHOUT_TEMPERATURE

    @property
    def temperature(self) -> float | None:
        if not self.takes_temperature:
            return None
        if self.stated_temperature is not None:
            return self.stated_temperature
        is_greedy = self.address.provider == "local" and self.agent == "chat"
        return 0.0 if is_greedy or self.address.provider == "scripted" else TEMPERATURE

    @property
    def is_deterministic(self) -> bool:
        """The same prompt gets the same answer."""
        if self.address.provider == "local":
            return self.temperature == 0.0
        return self.address.provider == "scripted" or self.from_cache

    @property
    def is_exact(self) -> bool:
        return self.agent == "chat" and self.is_deterministic

    @property
    def needs_probe(self) -> bool:
        known = ("scripted", "local", "handoff")
        return self.agent == "chat" and self.address.provider not in known

    def rounds(self, repeats: int) -> int:
        return 1 if self.is_exact else repeats

    def describe(self, repeats: int) -> str:
        if self.is_exact:
            why = " (its server answers from a cache)" if self.from_cache else ""
            return f"exact: one draw a case{why}"
        draws = f"{counted(repeats, 'draw')} a case"
        if self.temperature is None:
            return f"{draws}; {self.address.name} takes no temperature"
        return f"{draws} at temperature {self.temperature:g}"


def seed_of(round_: int, salt: str, arm: str = "") -> int:
    """The seed of a request. With another round, text beside it or part of a suite, no stored reply fits."""
    return int(digest_text(f"{round_} {arm} {salt}")[:16], 16) % 2**SEED_BITS
