"""States of a server's slot: what it knows after it has read the beginning of a prompt.

How a model rounds depends on which tokens are read together. So that an answer depends on its request alone, not on
what was asked before, on which server or after which interruption, a prompt is always read in the same steps: the
system message (which holds the skill) first, then, in a conversation, each turn that came before. After each step the
state is saved, and every server continues from there. That is also what makes it quick: a skill is read once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

from upskill.models import Request
from upskill.plain import compact, digest_text

MAX_BYTES = 1 << 30  # of saved states in all
PREFIX = "upskill-states-"


def steps_to(request: Request) -> list[Request]:
    """The beginnings of a request's prompt that are read one after the other, each with no answer."""
    messages = request.messages
    ends = [1] if len(messages) > 1 and messages[0].role == "system" else []
    ends += [number for number, message in enumerate(messages) if message.role == "assistant" and number > 1]
    if request.tools or any(message.role == "assistant" for message in messages):  # more turns may follow
        ends.append(len(messages))
    return [replace(request, messages=messages[:end], schema=None, max_output_tokens=0) for end in ends]


def state_name(step: Request) -> str:
    return digest_text(compact([step.messages, step.tools]))


class SavedStates:
    """The saved states of one model, in a temporary folder. The least used go when there are too many."""

    def __init__(self) -> None:
        _remove_leftovers()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._sizes: dict[str, int] = {}  # the least recently used first
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._sizes))

    def being_read(self, name: str) -> asyncio.Lock:
        """Held while a server reads what others wait for."""
        return self._reading.setdefault(name, asyncio.Lock())

    def use(self, name: str) -> None:
        if name in self._sizes:
            self._sizes[name] = self._sizes.pop(name)

    def add(self, name: str) -> None:
        with suppress(FileNotFoundError):  # someone removed it already
            self._sizes[name] = (self.folder / name).stat().st_size
        for oldest in list(self._over_budget()):
            self.forget(oldest)

    def forget(self, name: str) -> None:
        self._sizes.pop(name, None)
        (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _over_budget(self) -> Iterator[str]:
        total = sum(self._sizes.values())
        for name, size in list(self._sizes.items())[:-1]:
            if total <= MAX_BYTES:
                return
            total -= size
            yield name


def _remove_leftovers() -> None:
    """Remove what processes that were killed have left. A state that is missed is only read again."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(ValueError, OSError):
            if not _is_alive(int(folder.name.removeprefix(PREFIX).partition("-")[0])):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        pass
    return True
