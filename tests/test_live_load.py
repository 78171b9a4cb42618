"""What open pages cost: answers are made once for all of them, and the more there are, the less often they ask."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from browser import Browser
from live_server import served
from test_live import add, heard, listening
from test_live_pages import elsewhere
from test_store import begin
from upskill import open_store
from upskill.reports.live import answers, summaries, watcher
from upskill.reports.live.answers import Answer, Answers
from upskill.reports.live.watcher import Watcher


def test_an_answer_is_made_once_between_two_changes_however_many_ask() -> None:
    change: int | None = 1
    made = 0

    async def make() -> Answer:
        nonlocal made
        made += 1
        number = made
        await asyncio.sleep(0)  # others ask meanwhile
        return Answer.of(number)

    async def ask(times: int = 50) -> set[bytes]:
        return {answer.body for answer in await asyncio.gather(*(found.get("x", make) for _ in range(times)))}

    async def use() -> None:
        nonlocal change
        assert await ask() == {b"1"}
        assert await ask() == {b"1"}
        change = 2
        assert await ask() == {b"2"}
        change = None  # nobody looks for changes, so that nothing is known to be as it was
        assert await ask(2) == {b"3", b"4"}

    found = Answers(lambda: change)
    asyncio.run(use())


def test_an_answer_that_cannot_be_made_is_an_error_for_each_who_asks() -> None:
    errors: list[BaseException] = []

    async def make() -> Answer:
        await asyncio.sleep(0)
        raise ValueError

    async def use() -> None:
        found = Answers(lambda: 1)
        errors.extend(await asyncio.gather(*(found.get("x", make) for _ in range(3)), return_exceptions=True))  # pyright: ignore[reportArgumentType]

    asyncio.run(use())
    assert len({id(error) for error in errors}) == 3  # aiohttp sends an error once
    assert {type(error) for error in errors} == {ValueError}


def test_what_is_being_computed_is_asked_for_again_without_another_change() -> None:
    async def use() -> list[bytes]:
        found, bodies = Answers(lambda: 1), iter((b"computing", b"done", b"never"))

        async def make() -> Answer:
            body = next(bodies)
            return Answer(body, until=time.monotonic() if body == b"computing" else float("inf"))

        return [(await found.get("x", make)).body for _ in range(3)]

    assert asyncio.run(use()) == [b"computing", b"done", b"done"]


def test_pages_that_open_at_once_have_one_watcher(tmp_path: Path) -> None:
    async def use() -> None:
        found = Watcher(store)
        for _ in range(2):  # also after all have been closed
            pages = [found.messages() for _ in range(20)]
            assert await asyncio.gather(*(anext(page) for page in pages)) == [b"[]"] * 20
            watching = [
                task
                for task in asyncio.all_tasks()
                if "Watcher._watch" in repr(task.get_coro()) and not task.cancelling()
            ]
            assert len(watching) == 1
            assert found.latest_change() is not None
            for page in pages:
                await page.aclose()
            assert found.latest_change() is None

    with open_store(tmp_path) as store:
        begin(store)
        asyncio.run(use())


def test_the_more_pages_are_open_the_less_often_each_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "PER_PAGE", (0.0, 1.0))
    with open_store(tmp_path) as store, served(tmp_path) as live, ExitStack() as pages:
        run = begin(store).id
        paused: list[str] = []
        for _ in range(4):
            pages.enter_context(listening(live))
            paused += [
                live.ask(f"api/{path}?run={run}").headers["X-Again"] for path in ("trials", "summary", "overview")
            ]
        assert paused == [each for each in ("1500", "2000", "3000", "4000") for _ in range(3)]


def test_a_page_that_has_heard_of_a_change_is_answered_with_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, served(tmp_path) as live, listening(live) as page:
        run = begin(store).id
        for number in range(4):
            heard(page)
            assert live.api("trials", run=run)["total"] == number
            assert live.api("summary", run=run)["run"]["scored"] == number
            assert [row["passed"] for row in live.api("overview")["runs"]] == [number]
            add(store, number)


def test_a_large_answer_is_compressed_for_those_who_can_read_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed: list[bytes] = []
    really_compress = gzip.compress

    def compress(data: bytes, compresslevel: int) -> bytes:
        compressed.append(really_compress(data, compresslevel))
        return b"compressed"

    with open_store(tmp_path) as store, served(tmp_path) as live, listening(live) as page:
        run = begin(store).id
        heard(page)  # from here on nothing changes any more
        monkeypatch.setattr(answers.gzip, "compress", compress)
        whole = live.ask(f"api/summary?run={run}")
        for _ in range(3):
            answer = live.ask(f"api/summary?run={run}", Accept_Encoding="gzip, br")
            assert (answer.headers["Content-Encoding"], answer.text) == ("gzip", "compressed")
        assert "Content-Encoding" not in whole.headers
    (once,) = compressed
    assert json.loads(gzip.decompress(once)) == whole.json


def test_a_run_that_goes_on_is_summarised_seldom_and_at_once_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "REST", 1e9)
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = begin(store)
        with store.claim(run):
            add(store, 0)
            assert live.api("summary", run=run.id)["run"]["scored"] == 1
            add(store, 1)
            answer = live.ask(f"api/summary?run={run.id}")
            assert (answer.json["run"]["scored"], answer.headers["X-Stale"]) == (1, "1")
        answer = live.ask(f"api/summary?run={run.id}")
        assert (answer.json["run"]["scored"], answer.headers.get("X-Stale")) == (2, None)


def test_nothing_is_written_to_the_store_of_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "SMALL", 0)
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = begin(store)

        def computed() -> int:
            while (answer := live.ask(f"api/summary?run={run.id}")).status == 202 or "X-Stale" in answer.headers:
                pass
            return answer.json["run"]["scored"]

        with store.claim(run):
            add(store, 0)
            assert computed() == 1
            assert store.summary(run) is None
        add(store, 1)
        assert computed() == 2
        kept = store.summary(run)
        assert kept
        assert json.loads(kept[1])["run"]["scored"] == 2


HIDE = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })"
SHOW = "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"


def test_a_page_that_nobody_sees_asks_for_nothing_until_somebody_does(browser: Browser, tmp_path: Path) -> None:
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = elsewhere(begin, store)

        def use(page: Any) -> tuple[int, str]:
            asked: list[str] = []

            def note(request: Any) -> None:
                asked.append(request.url)

            page.on("request", note)
            page.add_init_script(HIDE)
            elsewhere(add, store, 0)
            page.goto(live.page.address(live.port, run.id))
            page.locator("#trials-status", has_text="1 trial").wait_for()
            page.locator("[data-connection=live]").wait_for()
            elsewhere(add, store, 1)
            page.locator(".going[data-done='2']").wait_for(state="attached")  # which it is told
            before = sum("api/trials" in url for url in asked)
            shown = page.locator("#trials-status").inner_text()
            page.evaluate(SHOW)
            page.locator("#trials-status", has_text="2 trials").wait_for()
            return before, shown

        assert browser.run(use, live.address) == (1, "1 trial")
