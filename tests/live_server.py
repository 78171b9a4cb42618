"""The live page's server in a thread of its own, and a store with runs to look at."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import HELPFUL, greetings, write_script, write_skill
from upskill import PlanOptions, RunOptions, Skill, Store, Suite, evaluate, make_plan, open_store
from upskill.reports.live import LivePage, serving

HOSTILE = (
    "<script>window.hacked = 1</script></script><img src=x onerror='window.hacked = 1'> [x](javascript:window.hacked=1)"
    " \x1b[31mred\x1b[0m \u202eevil\u202c \udcff ahoy"
)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Live:
    """A page that is served, and how to ask it."""

    page: LivePage
    port: int

    @property
    def address(self) -> str:
        return self.page.address(self.port)

    def ask(
        self, path: str = "", method: str = "GET", body: object = None, **headers: str
    ) -> Answer:
        """`path` comes after the token; one with a slash in front of it is asked for as it is."""
        whole = path if path.startswith("/") else f"/{self.page.token}/{path}"
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.putrequest(method, whole, "Host" in given, "Accept-Encoding" in given)
            for name, value in {
                **given,
                **({"Content-Length": str(len(data))} if data is not None else {}),
            }.items():
                connection.putheader(name, value)
            connection.endheaders(data)
            found = connection.getresponse()
            return Answer(
                found.status, dict(found.getheaders()), found.read().decode(errors="replace")
            )
        finally:
            connection.close()

    def review(self, run: str, body: object, **headers: str) -> Answer:
        origin = {"Origin": f"http://127.0.0.1:{self.port}", "Content_Type": "application/json"}
        return self.ask(f"run/{run}", "POST", body, **(origin | headers))


@contextmanager
def served(place: Path | str, port: int | None = 0) -> Generator[Live]:
    """The pages of a store, as `upskill view` serves them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with open_store(place) as store:
            page = LivePage(store)
            context = serving(page, port)
            found = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(600)
            try:
                yield Live(page, found)
            finally:
                asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(
                    600
                )
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def add_runs(folder: Path) -> dict[str, str]:
    """Runs of a skill in two versions, the first with an answer that tries what it can: their ids by name."""
    suite = Suite.parse(greetings(6))
    hostile = [
        {
            "system": "ahoy",
            "when": "guest 1",
            "answer": HOSTILE,
            "usage": {"input": 9, "output": 9},
        },
        *HELPFUL,
    ]
    student = write_script(folder / "student.json", hostile)
    clumsy = write_script(
        folder / "clumsy.json", [{"when": "guest 3", "answer": "ahoy"}, {"answer": "hello"}]
    )
    ids: dict[str, str] = {}
    with open_store(folder / "runs") as store:
        for name, body, models in (
            ("first", "Say ahoy, then the name.", [student, clumsy]),
            ("second", "Whoever asks gets the word of this house.\n\nSay hello.", [student]),
        ):
            skill = Skill.load(write_skill(folder / "greeter", body=body + "\n"))
            ids[name] = run_now(store, skill, suite, models)
    return ids


def run_now(store: Store, skill: Skill, suite: Suite, models: list[str], **options: Any) -> str:
    plan = make_plan(skill, suite, models, PlanOptions(keys={}, **options))
    return asyncio.run(evaluate(plan, store=store, options=RunOptions(partial=True))).run.id
