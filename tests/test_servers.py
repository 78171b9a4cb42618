"""Responses of servers that people run. Each is recorded, or written after the documentation and says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from conftest import REPOSITORY
from upskill.errors import ModelError
from upskill.models import Message, ModelContext, Reply, Request, Unanswered, throttling
from upskill.models.addresses import resolve
from upskill.models.endpoints import ENDPOINTS
from upskill.models.pool import Models
from upskill.models.servers import find_servers

RESPONSES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "fixtures" / "servers" / "responses.json").read_text(encoding="utf-8")
)
HELLO = Request((Message("user", "Say hello."),), max_output_tokens=100, seed=1)
KEY = "sk-planted-4711-secret"


class Exchange(NamedTuple):
    reply: Reply | ModelError
    bodies: list[dict[str, Any]]
    told: list[str]


@asynccontextmanager
async def replaying(
    responses: list[dict[str, Any]], bodies: list[dict[str, Any]]
) -> AsyncGenerator[str]:
    """A server that gives these responses, one after the other; its base URL."""

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        response = responses[len(bodies) - 1]
        return web.json_response(
            response["body"], status=response["status"], headers=response["headers"]
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1"))


async def ask(name: str, responses: list[dict[str, Any]], request: Request = HELLO) -> Exchange:
    bodies: list[dict[str, Any]] = []
    told: list[str] = []
    row = ENDPOINTS[name]
    async with replaying(responses, bodies) as url:
        keys = {row.url_variables[0]: url, row.key_variables[0]: KEY}
        async with Models(ModelContext(keys=keys, retries=1, tell=told.append)) as models:
            model = await models.get(resolve(f"{name}:any", keys=keys), "teacher")
            try:
                reply: Reply | ModelError = await model.reply(request)
            except ModelError as error:
                reply = error
    return Exchange(reply, bodies, told)


@pytest.mark.parametrize("row", RESPONSES, ids=lambda row: f"{row['server']}: {row['what']}")
async def test_what_a_server_says_is_understood(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "INITIAL_BACKOFF", 0.001)
    exchange = await ask(row["server"], row["responses"])
    reply = exchange.reply
    seen: dict[str, object] = {
        "limits": [body.get("max_tokens") for body in exchange.bodies],
    }
    if isinstance(reply, Unanswered):
        seen |= {"unanswered": reply.stop}
    elif isinstance(reply, ModelError):
        seen |= {"failure": reply.failure, "message": reply.message, "hint": reply.hint}
    else:
        seen |= {
            "text": reply.text,
            "stop": reply.stop,
            "thoughts": reply.thoughts,
            "model": reply.model,
        }
        seen |= {"cost": reply.usage.cost_usd, "calls": [call.name for call in reply.calls]}
    assert {name: seen.get(name, "nothing") for name in row["expected"]} == row["expected"]
    assert len(exchange.bodies) == len(row["responses"])


async def test_a_prompt_that_the_server_cut_in_silence_is_told_once() -> None:
    # Ollama, documented, not run: a prompt over its context is cut, and only the count of its tokens says so.
    message = {"role": "assistant", "content": "What rules?"}
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2050, "completion_tokens": 4, "total_tokens": 2054},
    }
    long = Request((Message("system", "All of the rules. " * 2000), Message("user", "Which?")))
    exchange = await ask("ollama", [{"status": 200, "headers": {}, "body": body}], long)
    (line,) = exchange.told
    assert line.startswith("ollama:any: the server seems to cut long prompts")
    whole = body | {"usage": {"prompt_tokens": 8010, "completion_tokens": 4, "total_tokens": 8014}}
    assert (await ask("ollama", [{"status": 200, "headers": {}, "body": whole}], long)).told == []


async def test_the_models_of_a_server_with_a_key_are_listed_with_it() -> None:
    headers: list[str] = []

    async def models(request: web.Request) -> web.Response:
        headers.append(request.headers.get("Authorization", ""))
        return web.json_response({"data": [{"id": "qwen"}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        keys = {"VLLM_BASE_URL": str(server.make_url("/v1")), "VLLM_API_KEY": KEY}
        found = await asyncio.to_thread(find_servers, keys)
    assert next(each.models for each in found if each.name == "vllm") == ("qwen",)
    assert headers == [f"Bearer {KEY}"]


def test_the_page_says_of_every_server_how_it_was_tried() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "servers.md").read_text(encoding="utf-8")
    for source in {row["source"] for row in RESPONSES}:
        assert source.removeprefix("recorded from ") in page
