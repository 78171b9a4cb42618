"""The live page's server: what it answers to whom, on this machine alone. Everything but feedback only reads."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from aiohttp import web

from upskill.errors import UsageError
from upskill.reports.html.page import script, style
from upskill.reports.live.answers import Answer, Answers
from upskill.reports.live.compare import comparison_page
from upskill.reports.live.feedback import read_mark
from upskill.reports.live.guard import HEADERS, make_guard
from upskill.reports.live.overview import Rows, overview, run_row
from upskill.reports.live.skills import skill_page
from upskill.reports.live.summaries import Summaries
from upskill.reports.live.trials import TrialFilter, find_trial, list_trials, trial_at
from upskill.reports.live.watcher import Watcher
from upskill.runs.results.feedback import export_feedback
from upskill.runs.stores import Run, Store

HOST = "127.0.0.1"
PORT = 8321
LARGEST_POST = 100_000  # bytes
COMPUTED_EVERY = 0.5  # seconds between two looks at whether a summary has been computed
SCRIPTS = ("live", "runs", "skill", "compare", "start")  # after those of the report, in this order


class LivePage:
    """The pages of one store."""

    def __init__(self, store: Store, place: str, token: str = "") -> None:
        self.store = store
        self.token = token or token_urlsafe(24)
        self.rows: Rows = {}
        self.watcher = Watcher(store)
        self.summaries = Summaries(store, place)
        self.answers = Answers(self.watcher.latest_change)

    def address(self, port: int, run: str = "") -> str:
        return f"http://{HOST}:{port}/{self.token}/" + (f"run/{quote(run, safe='')}" if run else "")

    def app(self) -> web.Application:
        app = web.Application(middlewares=[make_guard(self.token)], client_max_size=LARGEST_POST)
        start = "/{token}"
        for path in ("", "run/{run}", "skill/{skill}", "compare"):
            app.router.add_get(f"{start}/{path}", self._page)
        app.router.add_get(f"{start}/assets/{{name}}", self._asset)
        app.router.add_get(f"{start}/events", self._events)
        api = f"{start}/api"
        app.router.add_get(f"{api}/overview", self._overview)
        app.router.add_get(f"{api}/skill", self._skill)
        app.router.add_get(f"{api}/compare", self._compare)
        app.router.add_get(f"{api}/run", self._run)
        app.router.add_get(f"{api}/summary", self._summary)
        app.router.add_get(f"{api}/trials", self._trials)
        app.router.add_get(f"{api}/trial", self._trial)
        app.router.add_get(f"{api}/feedback.json", self._feedback)
        app.router.add_post(f"{api}/feedback", self._add_feedback)
        app.on_shutdown.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        await self.watcher.close()
        await self.summaries.close()

    # Pages.

    async def _page(self, _: web.Request) -> web.Response:
        text = _asset("live.html").replace("%%BASE%%", f"/{self.token}/")
        return web.Response(text=text, content_type="text/html")

    async def _asset(self, request: web.Request) -> web.Response:
        kinds: dict[str, tuple[Callable[[], str], str]] = {
            "page.css": (_style, "text/css"),
            "page.js": (_script, "text/javascript"),
        }
        if request.match_info["name"] not in kinds:
            raise web.HTTPNotFound(text="There is no such file.\n")
        read, kind = kinds[request.match_info["name"]]
        return web.Response(text=read(), content_type=kind)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        async with aclosing_messages(self.watcher) as messages:
            with suppress(ConnectionResetError):  # the page was closed
                async for message in messages:
                    await response.write(b"data: " + message + b"\n\n" if message else b": still here\n\n")
        return response

    # Data.

    async def _overview(self, request: web.Request) -> web.Response:
        before = request.query.get("before", "")
        number = int(before) if before.isdecimal() and len(before) < 19 else None

        async def make() -> Answer:
            return Answer.of(await asyncio.to_thread(overview, self.store, number, self.rows))

        return await self._shared(request, make)

    async def _run(self, request: web.Request) -> web.Response:
        run = await self._find_run(request)
        row = await asyncio.to_thread(run_row, self.store, run)
        return _json(row | {"seconds_left": self.watcher.seconds_left(run) if row["state"] == "running" else None})

    async def _skill(self, request: web.Request) -> web.Response:
        width = request.query.get("width", "")
        found = await asyncio.to_thread(
            skill_page,
            self.store,
            request.query.get("skill", ""),
            int(width) if width.isdecimal() and len(width) < 6 else 800,
        )
        if found is None:
            raise web.HTTPNotFound(text="No run is stored of a skill of this name.\n")
        return _json(found)

    async def _compare(self, request: web.Request) -> web.Response:
        before, after = await self._find_run(request, "before"), await self._find_run(request, "after")
        models = (request.query.get("model", ""), request.query.get("other", ""))
        return await self._answer(comparison_page, self.store, before, after, models, request.query.get("arm", ""))

    async def _summary(self, request: web.Request) -> web.Response:
        """What the page of a run is made from; `202` while it is computed for the first time."""

        async def make() -> Answer:
            run = await self._find_run(request)
            found = await self.summaries.get(run)
            soon = time.monotonic() + COMPUTED_EVERY
            if found is None:
                return Answer(b'{"computing": true}', status=202, until=soon)
            if found.revision == await asyncio.to_thread(self.store.revision, run):
                return Answer(found.document)
            return Answer(found.document, {"X-Stale": "1"}, until=soon)

        return await self._shared(request, make)

    async def _trials(self, request: web.Request) -> web.Response:
        after = request.query.get("after")
        try:
            place = trial_at(after) if after else None
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"after: {error}\n") from error

        async def make() -> Answer:
            run = await self._find_run(request)
            return Answer.of(
                await asyncio.to_thread(list_trials, self.store, run, TrialFilter.of(request.query), place)
            )

        return await self._shared(request, make)

    async def _trial(self, request: web.Request) -> web.Response:
        run = await self._find_run(request)
        try:
            trial = trial_at(request.query.get("key", ""))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"key: {error}\n") from error
        return await self._answer(find_trial, self.store, run, trial)

    async def _feedback(self, request: web.Request) -> web.Response:
        run = await self._find_run(request)
        document = await asyncio.to_thread(export_feedback, self.store, run)
        name = {"Content-Disposition": 'attachment; filename="feedback.json"'} if "download" in request.query else {}
        return web.Response(text=json.dumps(document, indent=2) + "\n", content_type="application/json", headers=name)

    async def _add_feedback(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="Feedback is sent as JSON.\n")
        run = await self._find_run(request)
        try:
            trial, review = read_mark(await request.json())
        except (ValueError, RecursionError) as error:
            raise web.HTTPBadRequest(text=f"This is no feedback: {error}\n") from error
        if await asyncio.to_thread(self.store.result, run, trial) is None:
            raise web.HTTPNotFound(text="There is no such trial.\n")
        if review:
            await asyncio.to_thread(self.store.add_review, run, review)
        else:
            await asyncio.to_thread(self.store.remove_review, run, trial)
        return _json({"stored": True})

    async def _find_run(self, request: web.Request, name: str = "run") -> Run:
        wanted = request.query.get(name, "")
        if not wanted:
            raise web.HTTPNotFound(text="No run is named.\n")
        try:
            return await asyncio.to_thread(self.store.run, wanted)
        except UsageError as error:
            raise web.HTTPNotFound(text=f"{error.message}\n") from error

    async def _shared(self, request: web.Request, make: Callable[[], Awaitable[Answer]]) -> web.Response:
        """An answer to everyone who asks this, and how many milliseconds to wait before asking again."""
        response = (await self.answers.get(request.path_qs, make)).response(request)
        response.headers["X-Again"] = str(round(1000 * self.watcher.pause()))
        return response

    async def _answer(self, read: Callable[..., Any], *values: object) -> web.Response:
        return _json(await asyncio.to_thread(read, *values))


@asynccontextmanager
async def aclosing_messages(watcher: Watcher) -> AsyncGenerator[AsyncGenerator[bytes]]:
    messages = watcher.messages()
    try:
        yield messages
    finally:
        await messages.aclose()


@asynccontextmanager
async def serving(page: LivePage, port: int | None = None) -> AsyncGenerator[int]:
    """Serve until the block ends; its port. None: the usual one, or any that is free. UsageError where it is taken."""
    runner = web.AppRunner(page.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        yield await _listen(runner, port)
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, port: int | None) -> int:
    for tried in (port,) if port is not None else (PORT, 0):
        try:
            await web.TCPSite(runner, HOST, tried).start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None and tried:
                continue
            reason = "is in use by another program" if error.errno == errno.EADDRINUSE else f"cannot be used: {error}"
            raise UsageError(
                f"port {tried} of this machine {reason}", "Choose another with --port; 0 takes one that is free."
            ) from error
        break
    return int(runner.addresses[0][1])


def _json(found: object, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(found), content_type="application/json", status=status)


@cache
def _style() -> str:
    return f"{style()}\n{_asset('live.css')}"


@cache
def _script() -> str:
    own = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f"{script()}\n{{\n{own}\n}}\n"  # in a block: a name of ours hides one of the report's


@cache
def _asset(name: str) -> str:
    return (files("upskill.reports.live") / "assets" / name).read_text(encoding="utf-8")
