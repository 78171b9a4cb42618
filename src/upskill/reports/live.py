"""Stored runs in a browser, while they run (`upskill view`): the pages of reports, only for this machine.

Only a browser on this machine can read them, at an address that starts with a random token. Another site (a link, a
form, a script, DNS rebinding) does not know the token, and its requests are refused by `Host`, `Origin` and
`Sec-Fetch-Site` before the token is checked. Everything but reviews is read-only.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from secrets import token_urlsafe
from typing import Annotated

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from upskill.errors import UpskillError, UsageError
from upskill.reports.cases import CaseReader
from upskill.reports.comparison import report_comparison
from upskill.reports.evaluated import report_evaluation
from upskill.reports.html import Served, render
from upskill.reports.report import Note, Report
from upskill.reports.runs import latest_tables, read_rows, report_versions, run_tables
from upskill.runs.planning.plan import Arm, Trial
from upskill.runs.results.comparison import Side, compare, latest_pair
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.reviews import MAX_NOTE
from upskill.runs.results.shown import mark_shown
from upskill.runs.results.versions import list_versions
from upskill.runs.stores import Review, Run, Store
from upskill.runs.stores.rows import FeedbackVerdict
from upskill.sandboxes import printable

HOST = "127.0.0.1"
PORT = 8321
MAX_POST = 1_000_000  # bytes
MAX_RUNS = 50  # on one page
MAX_SEED = 2**63 - 1  # that a store can hold
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
Page = tuple[Report, Served]
Build = Callable[[Mapping[str, str]], Page]


class LivePage:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.token = token_urlsafe(24)
        self.served = Served(address=f"/{self.token}/")
        # One page at a time, so that a run in progress is not slowed down.
        self._rendering = asyncio.Lock()

    def address(self, port: int, run: str = "") -> str:
        return f"http://{HOST}:{port}{self.served.path('run', run) if run else self.served.address}"

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=MAX_POST)
        app.on_response_prepare.append(_add_headers)
        for path, build in {
            "": self.index,
            "run/{run}": self.run,
            "run/{run}/case/{case}": self.run,
            "skill/{skill}": self.index,
            "compare": self.compare,
        }.items():
            app.router.add_get(f"/{{token}}/{path}", self._show(build))
        app.router.add_post("/{token}/run/{run}", self._review)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if refusal := _refusal(request, self.token):
            raise web.HTTPForbidden(text=f"{refusal}\n")
        try:
            return await handler(request)
        except UpskillError as error:
            # Something that is not there, or a problem with the store.
            status = 404 if isinstance(error, UsageError) else 503
            return web.Response(status=status, text=f"{error.message}. {error.hint}\n")

    def _show(self, build: Build) -> Handler:
        async def show(request: web.Request) -> web.Response:
            # No store can hold what is not printable.
            asked = {**request.query, **request.match_info}
            asked = {name: printable(value) for name, value in asked.items()}
            async with self._rendering:
                if request.method == "HEAD":
                    revision = await asyncio.to_thread(self._revision, asked.get("run", ""))
                    return web.Response(headers={"ETag": revision})
                report, served = await asyncio.to_thread(build, asked)
                html = await asyncio.to_thread(render, report, served)
            response = web.Response(text=html, content_type="text/html")
            policy = f"{served.policy}; frame-ancestors 'none'"
            response.headers["Content-Security-Policy"] = policy
            response.enable_compression()
            return response

        return show

    def _revision(self, name: str) -> str:
        """Changes with every result, and when the command that runs it ends."""
        if not name:
            return str(self.store.revision())
        run = self.store.run(name)
        return f"{self.store.revision(run)} {self.store.is_claimed(run)}"

    # Pages
    # --------------------------------------------------------------------------------------------

    def index(self, asked: Mapping[str, str]) -> Page:
        """The latest verdict of each skill and model, or of those of one skill, and the runs."""
        # Before anything is read, so that what comes meanwhile is seen as a change.
        revision = self._revision("")
        skill = asked.get("skill", "")
        rows = read_rows(self.store, islice(self._listed(skill), MAX_RUNS))
        latest = latest_tables(row for row in rows[::-1] if not row.is_trigger_test)
        results, *tests = run_tables(rows)
        tables = [*latest, replace(results, title="Runs"), *tests]
        served = self.served
        if skill:
            versions = report_versions(skill, list_versions(self.store, skill))
            tables += [replace(table, title="Versions") for table in versions.tables]
            compared = f"{self.served.path('compare')}?skill={skill}"
            served = self._served(skill, {"Compare its latest runs": compared})
        note = "No run is stored here yet. `upskill eval SKILL` makes one."
        if rows:
            note = f"`upskill runs --all` has all runs; here are the latest, at most {MAX_RUNS}."
        report = Report(
            title=skill or "Skills and runs",
            data={},
            subject=self.store.location or "",
            tables=tables,
            notes=[Note(note)],
        )
        return report, replace(served, follows=revision)

    def _listed(self, skill: str) -> Iterator[Run]:
        """Also a search while it goes on."""
        for run in self.store.runs(skill or None, newest_first=True):
            if run.purpose != "search" or self.store.is_claimed(run):
                yield run

    def run(self, asked: Mapping[str, str]) -> Page:
        """Its report, or one case without limits of size."""
        revision = self._revision(asked["run"])
        store, run = self.store, self.store.run(asked["run"])
        mark_shown(store, run)
        evaluation = evaluation_of(store, run)
        before = f"{self.served.path('compare')}?after={run.id}"
        links = {"Compare with the run before": before}
        if "case" in asked:
            if asked["case"] not in run.plan.suite.by_id:
                raise UsageError(f"{run.id} has no case with this id")
            reader = CaseReader(evaluation, store)
            case = reader.case(asked["case"])
            group = reader.group(case.outcome, [case])
            report = Report(title=case.case.id, data={}, subject=run.id, groups=lambda: [group])
            links = {run.id: self.served.path("run", run.id)}
        else:
            report = report_evaluation(evaluation, store=store)
        follows = revision if store.is_claimed(run) else ""
        return report, replace(self._served(run.skill, links), run=run.id, follows=follows)

    def compare(self, asked: Mapping[str, str]) -> Page:
        """A run, else the latest, with the latest one before it that can be compared."""
        store = self.store
        listed = store.runs(asked.get("skill"), newest_first=True, listed=True)
        runs = list(islice(listed, MAX_RUNS))
        pair = latest_pair(store, runs, [store.run(asked["after"])] if "after" in asked else runs)
        if pair is None:
            raise UsageError(
                "Nothing to compare: no two finished runs share a model, cases and a baseline",
                "Run `upskill eval` again after editing the skill. `upskill compare BEFORE AFTER`"
                " compares any two runs that share cases.",
            )
        for run in pair:
            mark_shown(store, run)
        before, after = pair
        comparisons = [
            compare(store, Side(before, model, "skill"), Side(after, model, "skill"))
            for model in before.models
            if model in after.models
        ]
        return report_comparison(comparisons, store), self._served(after.skill, {})

    def _served(self, skill: str, links: Mapping[str, str]) -> Served:
        usual = {
            "All runs": self.served.address,
            f"Versions of {skill}": self.served.path("skill", skill),
        }
        return replace(self.served, links={**usual, **links})

    # Reviews
    # --------------------------------------------------------------------------------------------

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

    def _store_review(self, name: str, sent: SentReview) -> None:
        """For each of the equal answers."""
        run = self.store.run(name)
        trials = [Trial(sent.model, sent.case, sent.arm, seed) for seed in sent.seeds]
        if not all(self.store.result(run, trial) for trial in trials):
            raise UsageError("no such trial")
        for trial in trials:
            review = Review(trial, sent.verdict, sent.note.strip())
            if review.verdict or review.note:
                self.store.add_review(run, review)
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
    try:
        await web.TCPSite(runner, HOST, PORT if port is None else port).start()
    except OSError as error:
        if port is None:
            return await _listen(runner, 0)
        raise UsageError(
            f"port {port} on this machine cannot be used: {error.strerror}",
            "Choose another with --port; 0 picks a free one.",
        ) from error
    return int(runner.addresses[0][1])


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def _refusal(request: web.Request, token: str) -> str:
    # Any port: a forwarded one has another number.
    if not re.fullmatch(r"(127\.0\.0\.1|localhost)(:\d+)?", request.host):
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
