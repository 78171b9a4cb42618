"""A Question is put to a teacher and answered with JSON that has to hold up: what does not is asked for again.

The model is told what was wrong with its answer, at most twice; a third answer that does not hold up is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from upskill.errors import UpskillError
from upskill.models import Message, Model, Reply, Request
from upskill.plain import as_mapping

REPAIRS = 2
T = TypeVar("T")


class InvalidAnswer(UpskillError):
    """An answer that cannot be used; the message is what the model is told."""


class NoUsableAnswer(UpskillError):
    """A model did not come up with an answer that can be used, however often it was asked."""


@dataclass(frozen=True, slots=True)
class StructuredRequest:
    what: str  # that is asked for, for people
    system: str
    user: str
    schema: Mapping[str, Any]
    max_output_tokens: int
    seed: int | None = None


async def ask(
    model: Model, request: StructuredRequest, read: Callable[[dict[str, Any], bool], T], *, repairs: int = REPAIRS
) -> T:
    """What `read` makes of the answer. It raises Unfit, and is told whether this was the last attempt."""
    messages = (Message("system", request.system), Message("user", request.user))
    for left in range(repairs, -1, -1):
        reply = await model.reply(
            Request(messages, request.max_output_tokens, seed=request.seed, schema=request.schema)
        )
        try:
            return read(_object_in(reply), left == 0)
        except InvalidAnswer as unfit:
            if not left:
                raise NoUsableAnswer(
                    f"{request.what}: no answer could be used after {repairs + 1} attempts; the last one: {unfit}",
                    "Name a stronger model.",
                ) from unfit
            again = f"This answer cannot be used: {unfit.message}\nReply with the whole JSON object again, mended."
            messages = (*messages, Message("assistant", reply.text or "(nothing)"), Message("user", again))
    raise AssertionError("not reached")


_FENCE = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n```\s*$", re.DOTALL)


def _object_in(reply: Reply) -> dict[str, Any]:
    if reply.stop == "length":
        raise InvalidAnswer("it was cut off because it was too long; say the same in fewer words")
    text = reply.text
    if fenced := _FENCE.match(text):
        text = fenced[1]
    try:
        said = as_mapping(json.loads(text))
    except ValueError as error:
        raise InvalidAnswer(f"it is not JSON: {error}") from error
    if said is None:
        raise InvalidAnswer("it is not a JSON object")
    return said
