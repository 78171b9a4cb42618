"""The embedded model, for real: its weights, its server process, and what happens when that dies."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from conftest import is_gone
from upskill.errors import ModelError, UsageError
from upskill.installation import add_extra
from upskill.models import (
    Address,
    Message,
    ModelContext,
    Reply,
    Request,
    Tool,
    ToolCall,
    open_model,
)
from upskill.models.addresses import resolve
from upskill.models.embedded.capacity import Capacity
from upskill.models.embedded.client import EmbeddedServer, is_repeating, written_calls
from upskill.models.embedded.local import EmbeddedModel
from upskill.models.embedded.local_models import find_local_model
from upskill.models.embedded.weights import pull_weights
from upskill.traces import Usage

pytestmark = pytest.mark.asyncio(loop_scope="module")
SMALL = "local:smollm2-135m"
SHIP = """Answer with these facts:
The name of the ship is Aurora.
The captain of the ship is Otto Krane.
The port of the ship is Lisbon.
The cargo of the ship is cinnamon.
"""


def request(
    question: str, *, system: str = SHIP, tokens: int = 12, seed: int | None = None
) -> Request:
    messages = (Message("system", system), Message("user", question))
    return Request(messages, tokens, temperature=0.0 if seed is None else 0.7, seed=seed)


QUESTIONS = [
    request(f"What is the {thing} of the ship? Answer in one line.")
    for thing in ("name", "port", "cargo")
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def weights() -> Path:
    """From the cache of whoever runs the tests; fetched the first time."""
    return await pull_weights(find_local_model("smollm2-135m"), ModelContext())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(weights: Path) -> AsyncGenerator[EmbeddedModel]:
    model = await opened(SMALL)
    yield model
    await model.close()


async def opened(name: str, context: ModelContext | None = None) -> EmbeddedModel:
    return cast("EmbeddedModel", await open_model(resolve(name), context or ModelContext()))


async def process_of(model: EmbeddedModel) -> Process:
    await model.start()
    process = model.servers[0].process
    assert process is not None
    return process


async def test_it_answers_with_a_fact_from_the_system_prompt(local: EmbeddedModel) -> None:
    replies = [await local.reply(question) for question in QUESTIONS]
    facts = [
        word in reply.text
        for word, reply in zip(("Aurora", "Lisbon", "cinnamon"), replies, strict=True)
    ]
    assert sum(facts) >= 2  # all three here; other processors round differently
    reply = replies[1]
    assert reply.model == "smollm2-135m"
    assert reply.usage.cost_usd == 0.0
    assert reply.usage.input_tokens > 40
    assert 0 < reply.usage.output_tokens <= 12
    assert reply.attempts == 1
    assert (
        replies[2].usage.cached_tokens > replies[2].usage.input_tokens / 2
    )  # what two prompts share is read once


async def test_a_seed_repeats_another_differs_and_without_one_nothing_is_left_to_chance(
    local: EmbeddedModel,
) -> None:
    asked = [
        request("Invent a name for a ship.", system="", tokens=10, seed=seed)
        for seed in (1, 2, 3, 1)
    ]
    asked += [
        replace(asked[0], temperature=None, seed=None, max_output_tokens=4)
    ] * 2  # as judges and teachers ask
    texts = [(await local.reply(each)).text for each in asked]
    assert texts[0] == texts[3]
    assert len(set(texts[:3])) > 1
    assert texts[4] == texts[5]


async def test_an_answer_with_a_schema_is_json_of_that_schema(local: EmbeddedModel) -> None:
    cargoes = ["pepper", "cinnamon", "salt"]
    schema = {
        "type": "object",
        "properties": {"port": {"type": "string", "maxLength": 12}, "cargo": {"enum": cargoes}},
        "required": ["port", "cargo"],
        "additionalProperties": False,
    }
    reply = await local.reply(
        replace(request("The port and the cargo, as JSON.", tokens=40), schema=schema)
    )
    answer = json.loads(reply.text)
    assert set(answer) == {"port", "cargo"}
    assert len(answer["port"]) <= 12
    assert answer["cargo"] in cargoes


async def test_any_number_of_servers_and_any_order_give_the_same_answers(
    local: EmbeddedModel, weights: Path
) -> None:
    """System prompts and none, conversations, the same prompt twice, sampled and greedy; with states on disk or not."""
    read: list[tuple[int, int]] = []
    context = ModelContext(servers=2, reading=lambda _, done, total: read.append((done, total)))
    first = [replace(each, max_output_tokens=4) for each in QUESTIONS[:2]]
    answered = (Message("assistant", "Aurora."), Message("user", "And who is the captain?"))
    asked = [
        *first,
        replace(first[0], temperature=0.9, seed=5),
        request("What is a ship?", system="", tokens=4),
    ]
    asked.append(replace(first[0], messages=(*first[0].messages, *answered)))
    alone = [(await local.reply(each)).text for each in asked]
    other = await opened(f"local:{weights}", context)
    try:
        assert len(other.servers) == 2
        order = [*range(len(asked)), 0]
        random.Random(2).shuffle(order)
        replies = await asyncio.gather(*(other.reply(asked[number]) for number in order))
        assert [reply.text for reply in replies] == [alone[number] for number in order]
        assert replies[0].model == weights.name
        assert all(server.is_running for server in other.servers)

        read.clear()
        long = [
            request(f"What is the {thing}?", system=SHIP * 5, tokens=1)
            for thing in ("name", "port", "cargo")
        ]
        replies = await asyncio.gather(*(other.reply(each) for each in long))
        prompt = replies[0].usage.input_tokens
        begun = [total for done, total in read if done == 0]
        assert (
            len([total for total in begun if total > prompt * 0.8]) == 1
        )  # one server reads the skill for both
        assert all(reply.usage.cached_tokens > 0.8 * reply.usage.input_tokens for reply in replies)

        shutil.rmtree(other.states.folder)
        assert [(await other.reply(each)).text for each in asked[:2]] == alone[:2]
    finally:
        await other.close()
    assert not other.states.folder.exists()


async def test_an_answer_that_repeats_itself_is_stopped(local: EmbeddedModel) -> None:
    endless = {
        "type": "string",
        "enum": ["echo " * 300],
    }  # a grammar makes it do so on every machine
    reply = await local.reply(replace(request("Say echo.", tokens=900), schema=endless))
    assert reply.stop == "repetition"
    assert is_repeating(reply.text)
    assert 0 < reply.usage.output_tokens < 300
    assert (await local.reply(QUESTIONS[0])).text  # the server was told to stop


async def test_a_prompt_that_does_not_fit_is_an_error_with_both_numbers(
    local: EmbeddedModel,
) -> None:
    with pytest.raises(
        ModelError,
        match=r"^the prompt has (9|1\d)\d\d\d tokens, but local:smollm2-135m can only hold 8192$",
    ) as caught:
        await local.reply(request("word " * 9000))
    assert "longer context" in caught.value.hint
    assert not caught.value.fatal
    assert (await local.reply(QUESTIONS[0])).text


class CutServer(EmbeddedServer):
    """A server whose context is full in the middle of an answer, without weights."""

    async def start(self) -> None: ...

    async def restore(self, file: str) -> bool:
        return False

    async def save(self, file: str) -> bool:
        return False

    async def reply(self, request: Request, *, from_state: bool) -> Reply:
        return Reply("A long st", Usage(230, 26), stop="length")


async def test_an_answer_that_the_context_cuts_off_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("upskill.models.embedded.local.EmbeddedServer", CutServer)
    model = EmbeddedModel(
        Address("local", "local", "small"), Path("x.gguf"), Capacity(1, 256), ModelContext()
    )
    with pytest.raises(
        ModelError,
        match="context filled up after 26 tokens of the answer: the prompt takes 230 of the 256 that",
    ):
        await model.reply(request("Tell a long story.", tokens=200))
    await model.close()


async def test_an_error_that_names_a_parameter_does_not_take_it_away(local: EmbeddedModel) -> None:
    schema = {"type": "object", "properties": {"temperature": {"type": "unknown"}}}
    asked = request("Invent a name for a ship.", tokens=4, seed=3)
    before = (await local.reply(asked)).text
    for _ in local.servers:
        with pytest.raises(ModelError):
            await local.reply(replace(asked, schema=schema))
    assert (await local.reply(asked)).text == before


async def test_a_proxy_for_everything_else_is_not_asked(
    local: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert (await local.reply(QUESTIONS[0])).text


async def test_a_server_that_dies_is_started_again_and_leaves_no_wrong_state(
    local: EmbeddedModel, weights: Path
) -> None:
    model = await opened(f"local:{weights}", ModelContext(servers=1, retries=4))
    question = replace(QUESTIONS[0], max_output_tokens=4)
    expected = (await local.reply(question)).text
    process = await process_of(model)
    assert os.getsid(process.pid) != os.getsid(0)  # Ctrl-C is for us and not for the server
    server, save = model.servers[0], model.servers[0].save

    async def die(file: str) -> bool:
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        return await save(file)

    server.save = die
    with pytest.raises(
        ModelError, match=r"the server for the local model \S+ was killed by signal 9"
    ) as caught:
        await model.reply(question)
    assert "The next call starts it again" in caught.value.hint
    assert not caught.value.fatal
    assert not model.states.sizes
    server.save = save
    assert (await model.reply(question)).text == expected
    again = await process_of(model)
    os.kill(again.pid, signal.SIGKILL)
    await again.wait()
    assert (await model.reply(question)).text == expected  # dead before the call: nothing is lost

    last = await process_of(model)
    call = await asked_in_vain(model, last)
    await model.close()
    assert all(is_gone(each.pid) for each in (process, again, last))
    with pytest.raises(ModelError, match="was closed before answering"):
        await call
    with pytest.raises(ModelError, match="is closed"):
        await model.reply(question)
    await model.close()


async def asked_in_vain(model: EmbeddedModel, process: Process) -> asyncio.Task[Reply]:
    """A call that is under way, to a server that is stopped and does not answer before it is too late."""
    os.kill(process.pid, signal.SIGSTOP)
    call = asyncio.create_task(model.reply(request("Tell a long story. " * 100, tokens=500)))
    for _ in range(50):  # turns of the event loop, which is enough to send it however slow they are
        await asyncio.sleep(0.01)
    return call


async def test_a_start_that_is_given_up_leaves_no_process(weights: Path) -> None:
    model = EmbeddedModel(Address("local", "local", "x"), weights, Capacity(1, 512), ModelContext())
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    before = children.read_text().split() if children.exists() else []
    starting = asyncio.create_task(model.start())
    while (process := model.servers[0].process) is None:
        await asyncio.sleep(0)
    os.kill(process.pid, signal.SIGSTOP)  # or it might be ready before it is given up
    await asyncio.sleep(0.2)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await model.close()
    if children.exists():
        assert set(children.read_text().split()) <= set(before)


PARENT = """
import asyncio, sys
from upskill.models import ModelContext, open_model
from upskill.models.addresses import resolve

async def main():
    model = await open_model(resolve("local:smollm2-135m"), ModelContext(offline=True))
    print(model.servers[0].process.pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_the_server_dies_with_its_parent(weights: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not is_gone(child)
        parent.kill()
    while not is_gone(child):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"PK\x03\x04 a zip", "is not a GGUF file"),
        (
            b"GGUF and then nonsense",
            r"cannot be used: the server for the local model x\.gguf exited with code 1: .*GGUF file is version",
        ),
    ],
)
async def test_a_file_that_is_no_model_is_a_usage_error(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "x.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        await opened(f"local:{path}")
    assert str(path) in caught.value.message


async def test_without_the_runtime_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UsageError, match="needs the `xllamacpp` package") as caught:
        await opened(SMALL)
    assert add_extra("local") in caught.value.hint


LIST = Tool(
    "list_files",
    "List the files of a folder.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


async def test_the_default_model_calls_tools_and_goes_on_with_their_results(
    coder_weights: Path,
) -> None:
    """The real Qwen2.5-Coder: a call of its own, and an answer to the result, whatever a model of this size says."""
    model = await opened("local", ModelContext(offline=True, servers=1))
    assert model.weights == coder_weights
    system, user = (
        Message("system", "You work with tools."),
        Message("user", "Which files are in the folder src?"),
    )
    first = Request((system, user), 40, temperature=0.0, tools=(LIST,))
    try:
        reply = await model.reply(first)
        (call,) = reply.calls
        assert (call.name, reply.stop) == ("list_files", "tools")
        assert "src" in str(call.arguments["path"])
        turn = (
            Message("assistant", reply.text, calls=reply.calls),
            Message("tool", "kernel.cu", call_id=call.id),
        )
        answer = await model.reply(
            replace(first, messages=(*first.messages, *turn), max_output_tokens=4)
        )
        assert answer.text or answer.calls
    finally:
        await model.close()


WRITTEN_CALLS = {
    "bare": '{"name": "list_files", "arguments": {"path": "src"}}',
    "fenced": '```json\n{\n  "name": "list_files",\n  "arguments": {"path": "src"}\n}\n```',
    "with words": 'I will look.\n```json\n{"name": "list_files", "arguments": {"path": "src"}}\n```\nThen I go on.',
}
NO_CALLS = {
    "no arguments": '{"name": "list_files"}',
    "words": "I would call list_files.",
    "broken": '```json\n{"name": "list_files", "arguments": {"path": \n```',
    "a list": "[1, 2]",
}


@pytest.mark.parametrize("text", WRITTEN_CALLS.values(), ids=WRITTEN_CALLS)
async def test_a_call_that_is_written_as_json_is_a_call(text: str) -> None:
    assert written_calls(text) == (ToolCall("", "list_files", {"path": "src"}),)


async def test_several_calls_may_follow_each_other() -> None:
    text = '{"name": "list_files", "arguments": {"path": "src"}}\n{"name": "no_such_tool", "arguments": {}}\nDone.'
    assert [call.name for call in written_calls(text)] == ["list_files", "no_such_tool"]


@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS)
async def test_other_json_is_an_answer(text: str) -> None:
    assert written_calls(text) == ()
