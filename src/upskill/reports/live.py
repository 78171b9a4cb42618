"""Stored runs in a browser, while they run (`upskill view`): the pages of reports, only for this machine.

Only a browser on this machine can read them, at an address that starts with a random token. Another site (a link, a
form, a script, DNS rebinding) does not know the token, and its requests are refused by `Host`, `Origin` and
`Sec-Fetch-Site` before the token is checked. Everything but reviews is read-only.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from secrets import token_urlsafe
from typing import Annotated
from urllib.parse import quote, urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from upskill.errors import UpskillError, UsageError
from upskill.reports.cases import CaseReader
from upskill.reports.comparison import report_comparison
from upskill.reports.evaluated import report_evaluation
from upskill.reports.html import Surroundings, asset, policy_of, render
from upskill.reports.report import Note, Report, Table
from upskill.reports.runs import latest_tables, read_rows, report_versions, run_tables
from upskill.runs.planning.plan import Arm, Trial
from upskill.runs.results.comparison import Side, compare, latest_pair
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.reviews import MAX_NOTE
from upskill.runs.results.shown import mark_shown
from upskill.runs.results.versions import list_versions
from upskill.runs.stores import Review, Run, Store
from upskill.runs.stores.rows import FeedbackVerdict

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
PORT = 8321
MAX_POST = 1_000_000  # bytes
MAX_RUNS = 50  # on one page
MAX_SEED = 2**63 - 1  # that a store can hold


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a request shows, before it is rendered."""

    report: Report
    run: str = ""  # whose answers can be reviewed
    links: tuple[tuple[str, str], ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    is_running: bool = False


Build = Callable[[Mapping[str, str]], Page]


class LivePage:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.token = token_urlsafe(24)
        # One page at a time, so that a run in progress is not slowed down.
        self._rendering = asyncio.Lock()

    def address(self, port: int, run: str = "") -> str:
        return f"http://{HOST}:{port}{self.path('run', run) if run else self.path()}"

    def path(self, *parts: str) -> str:
        return f"/{self.token}/{'/'.join(quote(part, safe='') for part in parts)}"

    def app(self) -> web.Application:
        app = web.Application(middlewares=[make_guard(self.token)], client_max_size=MAX_POST)
        for path, build in {
            "": self.index,
            "run/{run}": self.run,
            "run/{run}/case/{case}": self.case,
            "skill/{skill}": self.skill,
            "compare": self.compare,
        }.items():
            app.router.add_get(f"/{{token}}/{path}", self._show(build))
        app.router.add_get("/{token}/revision", self._revision)
        app.router.add_post("/{token}/run/{run}/review", self._review)
        return app

    def _show(self, build: Build) -> Handler:
        async def show(request: web.Request) -> web.Response:
            asked = {**request.query, **request.match_info}
            async with self._rendering:
                response = await asyncio.to_thread(self._render, build, asked)
            response.enable_compression()
            return response

        return show

    def _render(self, build: Build, asked: Mapping[str, str]) -> web.Response:
        status = 200
        try:
            # Before anything is read, so that what comes meanwhile is seen as a change.
            revision = self._revision_of(asked.get("run", ""))
            page = build(asked)
        except UsageError as error:
            status, revision, page = 404, "", self._missing(error)
        data = {"revision": revision, "address": self.path()}
        if page.run:
            data["run"] = page.run
        if page.is_running:
            data["follows"] = ""
        surroundings = Surroundings(
            script=asset("live.js"),
            policy="; connect-src 'self'",
            links=page.links,
            addresses=page.addresses,
            cases=self.path("run", page.run, "case", ""),
            data=data,
        )
        html = render(page.report, surroundings)
        policy = f"{policy_of(surroundings)}; frame-ancestors 'none'"
        response = web.Response(status=status, text=html, content_type="text/html")
        response.headers["Content-Security-Policy"] = policy
        return response

    # Pages
    # --------------------------------------------------------------------------------------------

    def index(self, _: Mapping[str, str]) -> Page:
        runs = list(islice(self._listed(), MAX_RUNS + 1))
        shown = runs[:MAX_RUNS]
        note = ""
        if not runs:
            note = "No run is stored here yet. `upskill eval SKILL` makes one."
        elif len(runs) > MAX_RUNS:
            note = f"The latest {MAX_RUNS} runs. `upskill runs --all` has all of them."
        report = Report(
            title="Skills and runs",
            data={},
            subject=self.store.location or "",
            tables=self._tables(shown),
            notes=[Note(note)] if note else (),
        )
        return Page(report=report, addresses=self._addresses(shown), is_running=True)

    def _listed(self) -> Iterator[Run]:
        """Also a search while it goes on."""
        for run in self.store.runs(newest_first=True):
            if run.purpose != "search" or self.store.is_claimed(run):
                yield run

    def _tables(self, runs: Sequence[Run]) -> list[Table]:
        """The latest verdict of each skill and model, and of each run."""
        rows = read_rows(self.store, runs)
        latest = latest_tables(row for row in rows[::-1] if not row.is_trigger_test)
        results, *tests = run_tables(rows)
        return [*latest, replace(results, title="Runs"), *tests]

    def _addresses(self, runs: Iterable[Run]) -> dict[str, str]:
        """Of what tables name."""
        addresses: dict[str, str] = {}
        for run in runs:
            addresses[run.skill] = self.path("skill", run.skill)
            addresses[run.id] = self.path("run", run.id)
        return addresses

    def run(self, asked: Mapping[str, str]) -> Page:
        run = self.store.run(asked["run"])
        mark_shown(self.store, run)
        report = report_evaluation(evaluation_of(self.store, run), store=self.store)
        before = f"{self.path('compare')}?after={quote(run.id, safe='')}"
        return Page(
            report=report,
            run=run.id,
            links=(*self._links(run.skill), ("Compare with the run before", before)),
            is_running=self.store.is_claimed(run),
        )

    def case(self, asked: Mapping[str, str]) -> Page:
        """One case without limits of size."""
        run = self.store.run(asked["run"])
        if asked["case"] not in run.plan.suite.by_id:
            raise UsageError(f"{run.id} has no case with this id")
        mark_shown(self.store, run)
        reader = CaseReader(evaluation_of(self.store, run), self.store)
        case = reader.case(asked["case"])
        group = reader.group(case.outcome, [case])
        return Page(
            report=Report(title=case.case.id, data={}, subject=run.id, groups=lambda: (group,)),
            run=run.id,
            links=(*self._links(run.skill), (run.id, self.path("run", run.id))),
        )

    def skill(self, asked: Mapping[str, str]) -> Page:
        """What each model makes of a skill, its versions and its runs."""
        name = asked["skill"]
        runs = list(islice(self.store.runs(name, newest_first=True), MAX_RUNS))
        if not runs:
            raise UsageError("No stored run has a skill with this name")
        report = report_versions(name, list_versions(self.store, name))
        versions = replace(report.tables[0], title="Versions")
        compared = f"{self.path('compare')}?skill={quote(name, safe='')}"
        return Page(
            report=replace(report, title=name, tables=[*self._tables(runs), versions]),
            links=(("All runs", self.path()), ("Compare its latest runs", compared)),
            addresses=self._addresses(runs),
        )

    def compare(self, asked: Mapping[str, str]) -> Page:
        """A run, else the latest, with the latest one before it that can be compared."""
        store = self.store
        runs = list(
            islice(store.runs(asked.get("skill"), newest_first=True, listed=True), MAX_RUNS)
        )
        afters = [store.run(asked["after"])] if "after" in asked else runs
        pair = latest_pair(store, runs, afters)
        if pair is None:
            raise UsageError(
                "Nothing to compare: no two finished runs share a model, cases and a baseline",
                "Run `upskill eval` again after editing the skill. `upskill compare BEFORE AFTER`"
                " compares any two runs that share cases.",
            )
        before, after = pair
        for run in pair:
            mark_shown(store, run)
        comparisons = [
            compare(store, Side(before, model, "skill"), Side(after, model, "skill"))
            for model in before.models
            if model in after.models
        ]
        return Page(
            report=report_comparison(comparisons, store),
            links=self._links(after.skill),
            addresses=self._addresses(pair),
        )

    def _missing(self, error: UsageError) -> Page:
        notes = (Note(error.hint),) if error.hint else ()
        report = Report(title=f"{error.message}.", data={}, notes=notes)
        return Page(report=report, links=(("All runs", self.path()),))

    def _links(self, skill: str) -> tuple[tuple[str, str], ...]:
        return ("All runs", self.path()), (f"Versions of {skill}", self.path("skill", skill))

    # Changes and reviews
    # --------------------------------------------------------------------------------------------

    async def _revision(self, request: web.Request) -> web.Response:
        revision = await asyncio.to_thread(self._revision_of, request.query.get("run", ""))
        return web.Response(text=revision)

    def _revision_of(self, name: str) -> str:
        """Changes with every result, and when the command that runs it ends."""
        if not name:
            return str(self.store.revision())
        run = self.store.run(name)
        return f"{self.store.revision(run)} {self.store.is_claimed(run)}"

    async def _review(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="A review must be JSON.\n")
        try:
            review = SentReview.model_validate_json(await request.read())
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"]
            raise web.HTTPBadRequest(text=f"Invalid review: {message}\n") from error
        await asyncio.to_thread(self._store_review, request.match_info["run"], review)
        return web.Response(text="Stored.\n")

    def _store_review(self, name: str, review: SentReview) -> None:
        """For each of the equal answers."""
        run = self.store.run(name)
        trials = [Trial(review.model, review.case, review.arm, seed) for seed in review.seeds]
        if any(self.store.result(run, trial) is None for trial in trials):
            raise UsageError("no such trial")
        note = review.note.strip()
        for trial in trials:
            if review.verdict or note:
                self.store.add_review(run, Review(trial, review.verdict, note))
            else:
                self.store.remove_review(run, trial)


class SentReview(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    case: str
    model: str
    arm: Arm
    seeds: list[Annotated[int, Field(strict=False, ge=-MAX_SEED, le=MAX_SEED)]] = Field(
        min_length=1, max_length=10_000
    )
    verdict: FeedbackVerdict
    note: str = Field(max_length=MAX_NOTE)


# The server
# ------------------------------------------------------------------------------------------------


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
            is_taken = error.errno == errno.EADDRINUSE
            if is_taken and port is None and tried:
                continue
            reason = "is already in use" if is_taken else f"cannot be used: {error}"
            raise UsageError(
                f"port {tried} on this machine {reason}",
                "Choose another with --port; 0 picks a free one.",
            ) from error
        break
    return int(runner.addresses[0][1])


LOOPBACK = ("127.0.0.1", "localhost")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
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
            return _refuse(403, refusal)
        if not all(map(_is_storable, (*request.query.values(), *request.match_info.values()))):
            return _refuse(400, "The address contains invalid characters.")
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        except UpskillError as error:
            # Something that is not there, or a problem with the store.
            status = 404 if isinstance(error, UsageError) else 503
            return _refuse(status, f"{error.message}. {error.hint}".strip())
        except Exception:
            logger.exception("a bug in the live page")
            return _refuse(500, "This is a bug in upskill. See its log.")
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return guard


def _refuse(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=HEADERS)


def _refusal(request: web.Request, token: str) -> str:
    if not _is_loopback(request.host):
        return "upskill view only answers at 127.0.0.1 and localhost."
    origin = request.headers.get(hdrs.ORIGIN)
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    own = f"http://{request.host}"
    # A link from elsewhere may open a page; every other request must come from our own pages.
    opens_a_page = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    is_foreign = site not in ("same-origin", "none") and not opens_a_page
    if (origin is not None and origin != own) or is_foreign:
        return "This request comes from another site."
    if request.method not in ("GET", "HEAD") and origin != own:
        return "A request that changes something needs an Origin header."
    if not hmac.compare_digest(request.path.split("/")[1].encode(errors="replace"), token.encode()):
        return "Open the full address that `upskill view` printed. It contains a token."
    return ""


def _is_storable(text: str) -> bool:
    """No lone surrogates, which cannot be encoded, and no zeros, which PostgreSQL refuses."""
    return "\0" not in text and not re.search("[\ud800-\udfff]", text)


def _is_loopback(host: str) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        # Any port: a forwarded one has another number.
        is_plain = parts.netloc == host and parts.username is None
        return parts.hostname in LOOPBACK and is_plain and (parts.port or 80) > 0
    except ValueError:
        return False
