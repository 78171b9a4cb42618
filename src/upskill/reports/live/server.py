"""The live page's server, only for this machine. Everything but feedback is read-only.

Only a browser on this machine can read it, at an address that starts with a random token. Another site (a link, a
form, a script, DNS rebinding) does not know the token, and its requests are refused by `Host`, `Origin` and
`Sec-Fetch-Site` before the token is checked.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from secrets import token_urlsafe
from typing import Any, cast, get_args
from urllib.parse import quote, urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from upskill.errors import UpskillError, UsageError
from upskill.plain import as_mapping
from upskill.reports.html.data import summary, to_json_bytes
from upskill.reports.html.page import script, style
from upskill.reports.live.pages import (
    comparison_page,
    find_trial,
    list_trials,
    overview,
    pair_to_compare,
    run_row,
    skill_page,
    trial_at,
)
from upskill.runs.planning.plan import Arm, Trial
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.reviews import MAX_NOTE, review_rows
from upskill.runs.results.shown import mark_shown
from upskill.runs.stores import Review, Run, Store
from upskill.runs.stores.rows import FeedbackVerdict

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
PORT = 8321
MAX_POST = 100_000  # bytes
WORTH_COMPRESSING = 2_000  # bytes
SMALL = 3_000  # a run with at most this many results is summarized while the page waits
RECOMPUTE_FACTOR = 24  # a run in progress is summarized again after this many times as long as that took, at least 1 s
MAX_SUMMARIES = 100  # in memory
MAX_SEED = 2**63 - 1  # that a store can hold
INTERVAL = 0.3  # seconds between the watcher's queries
MAX_RUNS = 50  # in one message
SCRIPTS = ("live", "runs", "skill", "compare", "start")  # after those of the report, in this order


class LivePage:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.token = token_urlsafe(24)
        self.watcher = Watcher(store)
        self.summaries = Summaries(store)

    def address(self, port: int, run: str = "") -> str:
        return f"http://{HOST}:{port}/{self.token}/" + (f"run/{quote(run, safe='')}" if run else "")

    def app(self) -> web.Application:
        app = web.Application(middlewares=[make_guard(self.token)], client_max_size=MAX_POST)
        for path in ("", "run/{run}", "skill/{skill}", "compare"):
            app.router.add_get(f"/{{token}}/{path}", self._page)
        for path, handler in {
            "assets/{name}": self._asset,
            "events": self._events,
            "api/overview": self._overview,
            "api/skill": self._skill,
            "api/pair": self._pair,
            "api/compare": self._compare,
            "api/run": self._run,
            "api/summary": self._summary,
            "api/trials": self._trials,
            "api/trial": self._trial,
            "api/feedback.json": self._feedback,
        }.items():
            app.router.add_get(f"/{{token}}/{path}", handler)
        app.router.add_post("/{token}/api/feedback", self._add_feedback)
        app.on_shutdown.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        await self.watcher.close()
        self.summaries.close()

    async def _page(self, _: web.Request) -> web.Response:
        text = _asset("live.html").replace("%%BASE%%", f"/{self.token}/")
        return web.Response(text=text, content_type="text/html")

    async def _asset(self, request: web.Request) -> web.Response:
        if request.match_info["name"] == "page.css":
            return web.Response(text=f"{style()}\n{_asset('live.css')}", content_type="text/css")
        if request.match_info["name"] == "page.js":
            return web.Response(text=_script(), content_type="text/javascript")
        raise web.HTTPNotFound(text="File not found.\n")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        async with aclosing(self.watcher.messages()) as messages:
            with suppress(ConnectionResetError):  # the page was closed
                async for message in messages:
                    await response.write(
                        b"data: " + message + b"\n\n" if message else b": still here\n\n"
                    )
        return response

    async def _overview(self, request: web.Request) -> web.Response:
        before = request.query.get("before", "")
        number = int(before) if before.isdecimal() and len(before) < 19 else None
        return await self._answer(request, overview, self.store, number)

    async def _run(self, request: web.Request) -> web.Response:
        run = await self._find_run(request)
        return _json(await asyncio.to_thread(_timed_row, self.store, run))

    async def _skill(self, request: web.Request) -> web.Response:
        name, width = request.query.get("skill", ""), request.query.get("width", "")
        pixels = int(width) if width.isdecimal() and len(width) < 6 else 800
        page = await asyncio.to_thread(skill_page, self.store, name, pixels)
        if page is None:
            raise web.HTTPNotFound(text="No stored run has a skill with this name.\n")
        return _json(page)

    async def _pair(self, request: web.Request) -> web.Response:
        names = (request.query.get(name, "") for name in ("skill", "before", "after"))
        return await self._answer(request, pair_to_compare, self.store, *names)

    async def _compare(self, request: web.Request) -> web.Response:
        before, after = (
            await self._find_run(request, "before"),
            await self._find_run(request, "after"),
        )
        model, other, arm = (request.query.get(name, "") for name in ("model", "other", "arm"))
        return await self._answer(
            request, comparison_page, self.store, before, after, (model, other), arm
        )

    async def _summary(self, request: web.Request) -> web.Response:
        """`202` while it is computed for the first time."""
        run = await self._find_run(request)
        summary = await self.summaries.get(run)
        if summary is None:
            return _json({"computing": True}, status=202)
        response = _respond(request, summary.document)
        if summary.revision != await asyncio.to_thread(self.store.revision, run):
            response.headers["X-Stale"] = "1"
        return response

    async def _trials(self, request: web.Request) -> web.Response:
        run = await self._find_run(request)
        after = _find_key(request, "after") if request.query.get("after") else None
        return await self._answer(request, list_trials, self.store, run, request.query, after)

    async def _trial(self, request: web.Request) -> web.Response:
        run = await self._find_run(request)
        return await self._answer(request, find_trial, self.store, run, _find_key(request, "key"))

    async def _feedback(self, request: web.Request) -> web.Response:
        run = await self._find_run(request)
        reviews = await asyncio.to_thread(self.store.reviews, run)
        return _json({"reviews": review_rows(reviews)})

    async def _add_feedback(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="Feedback must be JSON.\n")
        if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
            raise web.HTTPBadRequest(text="Feedback must be UTF-8.\n")
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise web.HTTPBadRequest(text="Feedback must not be compressed.\n")
        run = await self._find_run(request)
        try:
            trial, review = read_mark(json.loads(await request.read()))
        except (ValueError, RecursionError) as error:
            raise web.HTTPBadRequest(text=f"Invalid feedback: {error}\n") from error
        if await asyncio.to_thread(self.store.result, run, trial) is None:
            raise web.HTTPNotFound(text="Trial not found.\n")
        if review:
            await asyncio.to_thread(self.store.add_review, run, review)
        else:
            await asyncio.to_thread(self.store.remove_review, run, trial)
        return _json({"stored": True})

    async def _find_run(self, request: web.Request, name: str = "run") -> Run:
        run_id = request.query.get(name, "")
        if not run_id:
            raise web.HTTPNotFound(text="The run is missing.\n")
        try:
            return await asyncio.to_thread(self.store.run, run_id)
        except UsageError as error:
            raise web.HTTPNotFound(text=f"{error.message}\n") from error

    async def _answer(
        self, request: web.Request, read: Callable[..., Any], *arguments: object
    ) -> web.Response:
        return _respond(request, json.dumps(await asyncio.to_thread(read, *arguments)).encode())


@dataclass(frozen=True, slots=True)
class Summary:
    revision: int  # of the run, when it was read
    document: bytes
    expires: float  # while the run is in progress, not recomputed before this time


class Summaries:
    """Computed from every result, off the event loop and once for all pages."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Summary] = {}
        self._tasks: dict[str, asyncio.Task[Summary]] = {}

    async def get(self, run: Run) -> Summary | None:
        """The latest summary; None while that of a large run is computed for the first time."""
        known, revision = (
            self._known.get(run.id),
            await asyncio.to_thread(self._store.revision, run),
        )
        if known and known.revision == revision:
            return known
        if (
            known
            and time.monotonic() < known.expires
            and await asyncio.to_thread(self._store.is_claimed, run)
        ):
            return known  # the caller has to ask again
        if run.id not in self._tasks:
            self._tasks[run.id] = task = asyncio.create_task(self._compute(run.id, revision))
            task.add_done_callback(lambda _: self._tasks.pop(run.id, None))
        is_small = run.passed + run.failed + run.errored <= SMALL
        return await asyncio.shield(self._tasks[run.id]) if is_small else known

    async def _compute(self, run: str, revision: int) -> Summary:
        began = time.monotonic()
        document = await asyncio.to_thread(self._read, run)
        now = time.monotonic()
        self._known[run] = computed = Summary(
            revision, document, now + max(1.0, RECOMPUTE_FACTOR * (now - began))
        )
        if len(self._known) > MAX_SUMMARIES:
            del self._known[next(iter(self._known))]
        return computed

    def _read(self, run: str) -> bytes:
        found = self._store.run(run)
        mark_shown(self._store, found)
        return to_json_bytes(summary(evaluation_of(self._store, found)))

    def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()


class Watcher:
    """One watcher for all pages. It reads one small row of the store, and only while a page is open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._news: dict[str, tuple[int, bytes]] = {}  # by run: the last message about it
        self._message = 0
        self._changed = asyncio.Condition()
        self._pages = 0
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._problem = ""
        self._seen = 0
        self._running: set[str] = set()

    async def messages(self) -> AsyncGenerator[bytes]:
        """Changes from now on; an empty message after a while without any."""
        self._pages += 1
        try:
            if self._task is None:
                self._begun.clear()
                self._task = asyncio.create_task(self._watch())
            await self._begun.wait()
            heard = self._message
            yield b"[]"
            while True:
                try:
                    async with asyncio.timeout(15), self._changed:
                        while self._message == heard:
                            await self._changed.wait()
                except TimeoutError:
                    yield b""
                    continue
                news = [row for number, row in self._news.values() if number > heard]
                heard = self._message
                yield b"[" + b",".join(news) + b"]"
        finally:
            self._pages -= 1
            if not self._pages and self._task:
                self._task.cancel()
                self._task = None

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        while True:
            try:
                if not self._begun.is_set():
                    await asyncio.to_thread(self._begin)
                    self._begun.set()
                if rows := await asyncio.to_thread(self._look):
                    async with self._changed:
                        self._message += 1
                        for row in rows:
                            self._news[row["id"]] = (self._message, json.dumps(row).encode())
                        self._changed.notify_all()
                self._problem = ""
            except UpskillError as error:  # the store is busy or gone: the next query may work
                if self._problem != str(error):
                    logger.warning("the live page cannot read the store: %s", error)
                self._problem = str(error)
            await asyncio.sleep(INTERVAL)

    def _begin(self) -> None:
        self._seen = self._store.revision()
        # Runs already in progress may end without another result.
        self._running = {
            run.id for run in self._store.latest_runs(MAX_RUNS) if self._store.is_claimed(run)
        }

    def _look(self) -> list[dict[str, Any]]:
        revision = self._store.revision()
        names = self._store.changed_runs(self._seen) if revision != self._seen else []
        gone = revision != self._seen and not names
        self._seen = revision
        ended = [
            name for name in self._running if not self._is_claimed(name)
        ]  # a process that dies reports nothing
        rows = [
            row for name in dict.fromkeys([*names[-MAX_RUNS:], *ended]) if (row := self._row(name))
        ]
        return [*rows, {"id": ""}] if gone else rows  # the run was deleted

    def _is_claimed(self, name: str) -> bool:
        with suppress(UpskillError):
            return self._store.is_claimed(self._store.run(name))
        return False

    def _row(self, name: str) -> dict[str, Any] | None:
        try:
            run = self._store.run(name)
        except UpskillError:  # deleted meanwhile
            self._running.discard(name)
            return None
        row = _timed_row(self._store, run)
        (self._running.add if row["state"] == "running" else self._running.discard)(name)
        return row


def _timed_row(store: Store, run: Run) -> dict[str, Any]:
    row = run_row(store, run)
    return row | {"seconds_left": _seconds_left(store, run) if row["state"] == "running" else None}


def _seconds_left(store: Store, run: Run) -> float | None:
    """At the pace of the command that runs it, as its terminal says; None until there is one."""
    since, before = run.plan.began or ("", 0)
    if not since or (timed := store.count_timed(run) - before) <= 0:
        return None
    elapsed = (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    return (run.trials - run.passed - run.failed - run.errored) * max(0.0, elapsed) / timed


@asynccontextmanager
async def serving(page: LivePage, port: int | None = None) -> AsyncGenerator[int]:
    """Serve until the block ends; yields the port. None: the usual one, or any free one. UsageError if it is taken."""
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
            reason = (
                "is already in use"
                if error.errno == errno.EADDRINUSE
                else f"cannot be used: {error}"
            )
            raise UsageError(
                f"port {tried} on this machine {reason}",
                "Choose another with --port; 0 picks a free one.",
            ) from error
        break
    return int(runner.addresses[0][1])


def _find_key(request: web.Request, name: str) -> Trial:
    try:
        return trial_at(request.query.get(name, ""))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{name}: {error}\n") from error


def _json(data: object, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(data), content_type="application/json", status=status)


def _respond(request: web.Request, body: bytes) -> web.Response:
    """JSON with its ETag; only the tag if the page already has this answer."""
    headers = {"ETag": f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'}
    if request.headers.get(hdrs.IF_NONE_MATCH) == headers["ETag"]:
        return web.Response(status=304, headers=headers)
    response = web.Response(body=body, content_type="application/json", headers=headers)
    if len(body) > WORTH_COMPRESSING:
        response.enable_compression()
    return response


@cache
def _script() -> str:
    own = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f"{script()}\n{{\n{own}\n}}\n"  # in a block: our names shadow the report's


@cache
def _asset(name: str) -> str:
    return (files("upskill.reports.live") / "assets" / name).read_text(encoding="utf-8")


LOOPBACK = ("127.0.0.1", "localhost")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "upskill",
}


def make_guard(token: str) -> Middleware:
    """A middleware that refuses foreign requests and adds strict security headers."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = _refusal(request, token)
        if refusal:
            return web.Response(status=403, text=refusal, headers=HEADERS)
        if not all(
            map(
                _is_storable,
                (*request.query, *request.query.values(), *request.match_info.values()),
            )
        ):
            return web.Response(
                status=400, text="The address contains invalid characters.\n", headers=HEADERS
            )
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        except UpskillError as error:
            status = (
                400 if isinstance(error, UsageError) else 503
            )  # a bad request, or a problem with the store
            message = (
                error.message if error.message.endswith((".", "!", "?")) else f"{error.message}."
            )
            return web.Response(
                status=status, text=f"{message} {error.hint}".strip() + "\n", headers=HEADERS
            )
        except Exception:
            logger.exception("a bug in the live page: %s", request.path.partition("/api/")[2])
            return web.Response(
                status=500, text="This is a bug in upskill. See its log.\n", headers=HEADERS
            )
        if not response.prepared:  # a stream sends its headers itself
            response.headers.update(HEADERS)
        return response

    return guard


def _refusal(request: web.Request, token: str) -> str:
    if not _is_loopback(request.host):
        return "upskill view only answers at 127.0.0.1 and localhost.\n"
    origin, site = (
        request.headers.get(hdrs.ORIGIN),
        request.headers.get("Sec-Fetch-Site", "same-origin"),
    )
    own = f"http://{request.host}"
    # A link from elsewhere may open a page; every other request must come from our own pages.
    opens_a_page = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    if (origin is not None and origin != own) or (
        site not in ("same-origin", "none") and not opens_a_page
    ):
        return "This request comes from another site.\n"
    if request.method not in ("GET", "HEAD") and origin != own:
        return "A request that changes something needs an Origin header.\n"
    if not hmac.compare_digest(request.path.split("/")[1].encode(errors="replace"), token.encode()):
        return "Open the full address that `upskill view` printed. It contains a token.\n"
    return ""


def _is_storable(text: str) -> bool:
    """No lone surrogates, which cannot be encoded, and no zeros, which PostgreSQL refuses."""
    return "\0" not in text and not re.search("[\ud800-\udfff]", text)


def _is_loopback(host: str) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        # Any port: a forwarded one has another number.
        return (
            parts.hostname in LOOPBACK
            and parts.netloc == host
            and parts.username is None
            and (parts.port or 80) > 0
        )
    except ValueError:
        return False


def read_mark(body: object) -> tuple[Trial, Review | None]:
    """The trial and its review; None withdraws it. ValueError for anything else."""
    mark = as_mapping(body)
    if mark is None:
        raise ValueError("it is not an object")
    case, model, arm, verdict, note = (
        mark.get(name, "") for name in ("case", "model", "arm", "verdict", "feedback")
    )
    seed = mark.get("seed")
    if (
        not all(isinstance(each, str) for each in (case, model, arm, verdict, note))
        or type(seed) is not int
    ):
        raise ValueError(
            "case, model, arm, verdict and feedback must be strings, and seed must be a number"
        )
    if not all(map(_is_storable, (case, model, arm))):
        raise ValueError("it contains invalid characters")
    if verdict not in get_args(FeedbackVerdict):
        raise ValueError("the verdict must be right, wrong, odd or empty")
    if abs(seed) > MAX_SEED:
        raise ValueError(f"the seed cannot be larger than {MAX_SEED}")
    if len(note) > MAX_NOTE:
        raise ValueError(f"a note can have at most {MAX_NOTE} characters")
    trial = Trial(model, case, cast("Arm", arm), seed)
    return trial, Review(
        trial, cast("FeedbackVerdict", verdict), note.strip()
    ) if verdict or note.strip() else None
