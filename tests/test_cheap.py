"""What is done once, in groups or late to be cheap comes to the same as done each time, at once or early."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from upskill import plain
from upskill.models import Address, Message, Reply, ToolCall
from upskill.models.cache import write_reply
from upskill.models.cassette import read_reply
from upskill.plain import compact, read_yaml
from upskill.runs.stores import open_store
from upskill.traces import Usage

PLACE = Address("m", "openai", "m-1", "openai", "http://127.0.0.1:1/v1")
SYSTEM = Message("system", 'Be brief. é \ud83d\ude00 "quoted" \n')


def test_a_reply_is_stored_with_all_its_fields() -> None:
    call = ToolCall("1", "run", {"command": ["ls"]})
    reply = Reply(
        "a \ud83d\ude00", Usage(1, 2, 3, 4, 0.5), "tools", (call,), ({"t": 1},), "hm", "m-1", 0.25, 2, "no", "f"
    )
    for one in (reply, Reply("half \ud800"), Reply("")):
        assert write_reply(one) == compact(one)
        assert read_reply(write_reply(one)) == one


def test_what_nobody_waited_for_is_stored_though_the_loop_was_stopped(tmp_path: Path) -> None:
    async def add(count: int) -> None:
        for number in range(count):
            await store.add_reply(f"key-{number}", "m", "{}", wait=False)
        asyncio.get_running_loop().stop()  # before anything is handed over

    with open_store(str(tmp_path)) as store:
        loop = asyncio.new_event_loop()
        coroutine = add(3)
        asyncio.set_event_loop(loop)
        task = loop.create_task(coroutine)
        loop.run_forever()
        assert task.done()
        loop.close()
        asyncio.set_event_loop(None)
    with open_store(str(tmp_path)) as store:
        assert [store.reply(f"key-{number}") for number in range(4)] == ["{}", "{}", "{}", None]


TEXTS = [
    "cases:\n- prompt: Greet Ann.\n  checks:\n  - contains: ahoy\n  - regex: 'a\\d+'\n  tags: [a, b]\n",
    "a: 012\nb: 1.5e3\nc: yes\nd: 2020-01-01\ne: ~\nf: 'x'\ng: |\n  two\n  lines\nh: >-\n  folded\n  text\n",
    "base: &b {x: 1}\nother:\n  <<: *b\n  y: 2\n",
    '- 😀\n- "\\u00e9"\n- é\n',
    "",
    "# only a comment\n",
    "a: 1\na: 2\n",
    "a: !!binary x\n",
    "a: .inf\n",
    "a: b: c\n",
    "[1, 2\n",
    "a: 1\n---\nb: 2\n",
    "a:\n\t- tab\n",
    "x: \x00\n",
    "x: \ud800\n",
    "[" * 60_000,
    "- " * 60_000 + "x",
    "[" * 99 + "]" * 99,
    "[" * 102 + "]" * 102,
    "a: *nothing\n",
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_libyaml_reads_a_file_as_the_parser_that_explains_errors(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> object:
        try:
            return read_yaml(text, text_fields=frozenset({"contains"}))
        except yaml.YAMLError as error:
            return plain.yaml_words(error)

    fast = read()
    monkeypatch.setattr(plain, "_fast_loader", lambda: None)
    assert fast == read()
