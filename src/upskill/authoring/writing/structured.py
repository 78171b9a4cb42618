"""Ask a model for JSON, and send back what is wrong with its answer.

An answer that cannot be used goes back until it can. One that has flaws goes back once; then it is used as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from upskill.errors import Paused, UpskillError, UsageError
from upskill.models import Message, Model, Reply, Request
from upskill.models.cache import CachedModel, track_requests
from upskill.models.handoff import WrongAnswer
from upskill.models.parsing import parse_json_answer
from upskill.outputs import open_private
from upskill.plain import as_mapping, describe_json_error, dict_or_empty, list_or_empty

REPAIRS = 2
SENT_BACK = ".sent-back.md"  # ends the name of the file beside an answer by hand that has its flaws
T = TypeVar("T")
Tell = Callable[[str], None]
Read = Callable[[dict[str, Any]], Awaitable[tuple[T, list[str]]]]


def no_message(_: str) -> None:
    """The default `tell`: nobody is listening."""


class InvalidAnswer(UpskillError):
    """An answer that cannot be used. The model gets the message."""


class NoUsableAnswer(UpskillError):
    """A model gave no answer that can be used, however often it was asked."""


@dataclass(frozen=True, slots=True)
class StructuredRequest:
    purpose: str  # for people: "writing the skill"
    system: str
    user: str
    schema: Mapping[str, Any]
    max_output_tokens: int
    title: str  # round and role, as `2-answers`: files of a hand-off begin with it
    seed: int | None = None


async def ask(
    model: Model,
    request: StructuredRequest,
    read: Read[T],
    *,
    repairs: int = REPAIRS,
    required: bool = True,
) -> T:
    """What `read` makes of the answer: it returns the result and its flaws, or raises InvalidAnswer.

    Where an answer is required, those that nobody can use are forgotten: the same command would only get them again.
    """
    with track_requests() as requests:
        try:
            return await _ask(model, request, read, repairs)
        except NoUsableAnswer:
            if required and isinstance(model, CachedModel) and model.mode != "replay":
                for each in requests:
                    await model.replies.forget_reply(each.key)
            raise


async def _ask(model: Model, request: StructuredRequest, read: Read[T], repairs: int) -> T:
    messages = (Message("system", request.system), Message("user", request.user))
    schema = {"title": request.title, **request.schema}
    flawed: list[T] = []
    why = ""
    for left in range(repairs, -1, -1):
        reply = await model.reply(
            Request(messages, request.max_output_tokens, seed=request.seed, schema=schema)
        )
        try:
            result, flaws = await read(_read_object(reply))
        except InvalidAnswer as invalid:
            why = invalid.message
            if reply.file:  # whoever wrote it fixes it there
                raise WrongAnswer(reply.file, why) from None
        else:
            if not flaws or flawed or not left:
                return result
            flawed.append(result)
            why = "; ".join(flaws)
            if reply.file:
                _send_back_once(reply.file, why)
                return result
        again = f"This answer cannot be used: {why}\nReply with the whole JSON object again, fixed."
        messages = (
            *messages,
            Message("assistant", reply.text or "(nothing)"),
            Message("user", again),
        )
    if flawed:
        return flawed[0]
    raise NoUsableAnswer(
        f"{request.purpose}: no usable answer after {repairs + 1} attempts. The last one: {why}",
        "Choose a stronger model.",
    )


def _send_back_once(file: str, why: str) -> None:
    note = Path(file.rpartition(".answer.")[0] + SENT_BACK)
    if not note.exists():
        with open_private(note) as stream:
            stream.write(f"{why}\n")
        raise UsageError(
            f"{file}: this answer is sent back, once: {why}",
            "Fix the file, or leave it as it is. Then run the same command again.",
        )


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of all, at once. What waits for answers by hand is named in one Paused."""
    done = await asyncio.gather(*work, return_exceptions=True)
    waiting = [each for each in done if isinstance(each, Paused)]
    for each in done:
        if isinstance(each, BaseException) and each not in waiting:
            raise each
    if waiting:
        raise Paused(file for each in waiting for file in each.files)
    return done


def _read_object(reply: Reply) -> dict[str, Any]:
    if reply.stop in ("length", "context"):
        raise InvalidAnswer("it was cut off because it was too long; say it in fewer words")
    if reply.stop == "repetition":
        raise InvalidAnswer("it was cut off because it repeated itself; say everything once")
    try:
        answer = as_mapping(parse_json_answer(reply.text))
    except ValueError as error:
        raise InvalidAnswer(f"it is not JSON: {describe_json_error(error)}") from error
    if answer is None:
        raise InvalidAnswer("it is not a JSON object")
    return answer


def text_schema(max_length: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": max_length}


def list_schema(
    items: Mapping[str, Any], max_items: int, min_items: int | None = None
) -> dict[str, Any]:
    fewest = {} if min_items is None else {"minItems": min_items}
    return {"type": "array", "items": items, **fewest, "maxItems": max_items}


def read_items(value: object) -> list[dict[str, Any]]:
    return [dict_or_empty(item) for item in list_or_empty(value)]


def read_ids(value: object) -> list[str]:
    return [str(item).strip() for item in list_or_empty(value) if str(item).strip()]
