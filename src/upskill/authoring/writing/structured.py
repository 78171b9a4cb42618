"""Ask a model for JSON, and tell it what is wrong with an answer until it can be used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from upskill.errors import UpskillError
from upskill.models import Message, Model, Reply, Request
from upskill.models.cache import track_requests
from upskill.models.handoff import WrongAnswer
from upskill.models.parsing import parse_json_answer
from upskill.models.pool import Models
from upskill.plain import as_mapping, describe_json_error, list_or_empty

REPAIRS = 2
T = TypeVar("T")


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
    read: Callable[[dict[str, Any], bool], T]
    | Callable[[dict[str, Any], bool], Coroutine[Any, Any, T]],
    *,
    repairs: int = REPAIRS,
) -> T:
    """What `read` makes of the answer. `read` raises InvalidAnswer; its second argument is true on the last attempt."""
    messages = (Message("system", request.system), Message("user", request.user))
    schema = {"title": request.title, **request.schema}
    for left in range(repairs, -1, -1):
        reply = await model.reply(
            Request(messages, request.max_output_tokens, seed=request.seed, schema=schema)
        )
        try:
            result = read(_read_object(reply), left == 0)
            return cast("T", await result if isinstance(result, Coroutine) else result)
        except InvalidAnswer as invalid:
            if reply.file:  # whoever wrote it fixes it there
                raise WrongAnswer(reply.file, invalid.message) from None
            if not left:
                raise NoUsableAnswer(
                    f"{request.purpose}: no usable answer after {repairs + 1} attempts. The last one: {invalid}",
                    "Choose a stronger model.",
                ) from invalid
            again = f"This answer cannot be used: {invalid.message}\nReply with the whole JSON object again, fixed."
            messages = (
                *messages,
                Message("assistant", reply.text or "(nothing)"),
                Message("user", again),
            )
    raise AssertionError("not reached")


@asynccontextmanager
async def forget_unusable_answers(models: Models) -> AsyncGenerator[None]:
    """If no answer was usable, forget them all: the same command would only get them again."""
    with track_requests() as requests:
        try:
            yield
        except UpskillError as error:
            if type(error) in (UpskillError, NoUsableAnswer):
                await models.forget(request.key for request in requests)
            raise


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


def read_ids(value: object) -> list[str]:
    return [str(item).strip() for item in list_or_empty(value) if str(item).strip()]
