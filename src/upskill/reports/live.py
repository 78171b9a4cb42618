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
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from secrets import token_urlsafe
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from upskill.errors import UpskillError, UsageError
from upskill.plain import counted
from upskill.reports.cases import CaseReader
from upskill.reports.comparison import report_comparison
from upskill.reports.evaluated import ReportContext, report_evaluation
from upskill.reports.html import Surroundings, asset, policy_of, render
from upskill.reports.report import (
    TONES,
    CaseGroup,
    Cell,
    Column,
    Headline,
    Measure,
    Note,
    Report,
    Table,
)
from upskill.reports.skills import limits_in_words, skill_verdicts, verdict_row
from upskill.reports.versions import report_versions
from upskill.runs.planning.plan import Arm, Trial
from upskill.runs.results.comparison import Side, compare, latest_pair
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.reviews import MAX_NOTE
from upskill.runs.results.shown import mark_shown
from upskill.runs.results.versions import list_versions
from upskill.runs.stores import Review, Run, Store
from upskill.runs.stores.rows import FeedbackVerdict
from upskill.verdicts.line import SIGNS, decision_in_words

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
PORT = 8321
MAX_POST = 1_000_000  # bytes
MAX_RUNS = 200  # on one page
WAIT = 10  # times as long as a page took to render, before it is rendered again
MAX_SEED = 2**63 - 1  # that a store can hold


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a request shows, before it is rendered."""

    report: Report
    run: str = ""  # whose answers can be reviewed
    links: tuple[tuple[str, str], ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    is_running: bool = False
    is_case: bool = False


class LivePage:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.token = token_urlsafe(24)
        self._rendering = (
            asyncio.Lock()
        )  # one page at a time, so that a run in progress is not slowed down

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

    def _show(self, build: Callable[[Mapping[str, str]], Page]) -> Handler:
        async def show(request: web.Request) -> web.Response:
            async with self._rendering:
                html, policy = await asyncio.to_thread(
                    self._render, build, {**request.query, **request.match_info}
                )
            response = web.Response(text=html, content_type="text/html")
            response.headers["Content-Security-Policy"] = policy
            response.enable_compression()
            return response

        return show

    def _render(
        self, build: Callable[[Mapping[str, str]], Page], asked: Mapping[str, str]
    ) -> tuple[str, str]:
        began = time.monotonic()
        revision = self._revision_of(asked.get("run", ""))
        page = build(asked)
        surroundings = Surroundings(
            script=asset("live.js"),
            policy="; connect-src 'self'",
            links=page.links,
            addresses=page.addresses,
            cases="" if page.is_case or not page.run else self.path("run", page.run, "case", ""),
            takes_reviews=bool(page.run),
            data={"revision": revision, "address": self.path()}
            | ({"run": page.run} if page.run else {}),
        )
        html = render(page.report, surroundings)
        if page.is_running:
            wait = max(1.0, WAIT * (time.monotonic() - began))
            html = html.replace("<html ", f'<html data-wait="{wait:.1f}" ', 1)
        return html, f"{policy_of(surroundings)}; frame-ancestors 'none'"

    # Pages
    # --------------------------------------------------------------------------------------------

    def index(self, _: Mapping[str, str]) -> Page:
        runs = list(islice(self._listed(), MAX_RUNS + 1))
        addresses = {run.id: self.path("run", run.id) for run in runs}
        addresses |= {run.skill: self.path("skill", run.skill) for run in runs}
        tables = [_runs_table(self.store, runs[:MAX_RUNS])] if runs else []
        skills = list(dict.fromkeys(run.skill for run in runs))
        if skills:
            tables.insert(0, _skills_table(self.store, skills))
        notes = (
            [Note("No run is stored here yet. `upskill eval SKILL` makes one.")] if not runs else []
        )
        if len(runs) > MAX_RUNS:
            notes.append(
                Note(f"Only the latest {MAX_RUNS} runs. `upskill runs` prints all of them.")
            )
        return Page(
            report=Report(
                title="Skills and runs",
                data={},
                subject=self.store.location or "",
                tables=tuple(tables),
                notes=tuple(notes),
            ),
            addresses=addresses,
            is_running=True,
        )

    def _listed(self) -> Iterator[Run]:
        """Also a search while it goes on."""
        for run in self.store.runs(newest_first=True):
            if run.purpose != "search" or self.store.is_claimed(run):
                yield run

    def run(self, asked: Mapping[str, str]) -> Page:
        run = self._find(asked["run"])
        mark_shown(self.store, run)
        evaluation = evaluation_of(self.store, run)
        return Page(
            report=report_evaluation(evaluation, ReportContext(store=self.store)),
            run=run.id,
            links=(
                *self._links(run.skill),
                (
                    "Compare with the run before",
                    f"{self.path('compare')}?after={quote(run.id, safe='')}",
                ),
            ),
            is_running=self.store.is_claimed(run),
        )

    def case(self, asked: Mapping[str, str]) -> Page:
        """One case without limits of size."""
        run = self._find(asked["run"])
        if asked["case"] not in run.plan.suite.by_id:
            raise web.HTTPNotFound(text=f"{run.id} has no case with this id.\n")
        mark_shown(self.store, run)
        reader = CaseReader(evaluation_of(self.store, run), self.store)
        case = reader.case(asked["case"])
        group = CaseGroup(outcome=case.outcome, title=reader.titles[case.outcome], cases=(case,))
        return Page(
            report=Report(title=case.id, data={}, subject=run.id, groups=lambda: (group,)),
            run=run.id,
            links=(*self._links(run.skill), (run.id, self.path("run", run.id))),
            is_case=True,
        )

    def skill(self, asked: Mapping[str, str]) -> Page:
        """The versions of a skill and its runs."""
        name = asked["skill"]
        runs = list(islice(self.store.runs(name, newest_first=True), MAX_RUNS))
        if not runs:
            raise web.HTTPNotFound(text="No stored run has a skill with this name.\n")
        report = report_versions(name, list_versions(self.store, name))
        return Page(
            report=replace(report, tables=(*report.tables, _runs_table(self.store, runs))),
            links=(
                ("All runs", self.path()),
                ("Compare its latest runs", f"{self.path('compare')}?skill={quote(name, safe='')}"),
            ),
            addresses={run.id: self.path("run", run.id) for run in runs},
        )

    def compare(self, asked: Mapping[str, str]) -> Page:
        """Two runs; those that are not named are the latest that can be compared."""
        listed = list(
            islice(self.store.runs(asked.get("skill"), newest_first=True, listed=True), MAX_RUNS)
        )
        befores, afters = listed, listed
        if "before" in asked:
            befores = [self._find(asked["before"])]
        if "after" in asked:
            afters = [self._find(asked["after"])]
        pair = (befores[0], afters[0])
        if "before" not in asked or "after" not in asked:
            pair = latest_pair(self.store, befores, afters)
        if pair is None:
            raise UsageError("no two finished runs share a skill, a model and cases")
        before, after = pair
        for run in pair:
            mark_shown(self.store, run)
        models = [model for model in before.models if model in after.models]
        sides = [(Side(before, model, "skill"), Side(after, model, "skill")) for model in models]
        if not sides:
            sides = [
                (Side(before, before.models[0], "skill"), Side(after, after.models[0], "skill"))
            ]
        comparisons = [compare(self.store, *pair) for pair in sides]
        return Page(
            report=report_comparison(comparisons, self.store),
            links=self._links(after.skill),
            addresses={run.id: self.path("run", run.id) for run in pair},
        )

    def _links(self, skill: str) -> tuple[tuple[str, str], ...]:
        return ("All runs", self.path()), (f"Versions of {skill}", self.path("skill", skill))

    def _find(self, name: str) -> Run:
        try:
            return self.store.run(name)
        except UsageError as error:
            raise web.HTTPNotFound(text=f"{error.message}\n") from error

    # Changes and reviews
    # --------------------------------------------------------------------------------------------

    async def _revision(self, request: web.Request) -> web.Response:
        revision = await asyncio.to_thread(self._revision_of, request.query.get("run", ""))
        return web.Response(text=revision)

    def _revision_of(self, name: str) -> str:
        """Changes with every result, and when the command that runs it ends."""
        if not name:
            return str(self.store.revision())
        run = self._find(name)
        return f"{self.store.revision(run)} {self.store.is_claimed(run)}"

    async def _review(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="A review must be JSON.\n")
        try:
            review = SentReview.model_validate_json(await request.read())
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"]
            raise web.HTTPBadRequest(text=f"Invalid review: {message}\n") from error
        run = await asyncio.to_thread(self._find, request.match_info["run"])
        await asyncio.to_thread(self._store_review, run, review)
        return web.Response(text="Stored.\n")

    def _store_review(self, run: Run, review: SentReview) -> None:
        """For each of the equal answers."""
        trials = [Trial(review.model, review.case, review.arm, seed) for seed in review.seeds]
        if any(self.store.result(run, trial) is None for trial in trials):
            raise web.HTTPNotFound(text="Trial not found.\n")
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


# The tables of the index
# ------------------------------------------------------------------------------------------------


def _skills_table(store: Store, skills: Iterable[str]) -> Table:
    """The latest verdict of each skill and model."""
    columns = (
        Column("Skill"),
        Column("Model"),
        Column("Result"),
        Column("Lift in points", "points"),
        Column("Of"),
    )
    rows: list[tuple[Cell, ...]] = []
    for skill in skills:
        name = skill
        for row in skill_verdicts(store, skill):
            of = limits_in_words(row)
            rows.append((name, row["model"], _decision(row), _lift(row), of))
            name = ""
    return Table(columns=columns, rows=tuple(rows))


def _runs_table(store: Store, runs: Iterable[Run]) -> Table:
    columns = (
        Column("Run", "code"),
        Column("State"),
        Column("Skill"),
        Column("When"),
        Column("Results"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        verdicts = [verdict_row(verdict) for verdict in run.plan.analysis.kept.verdicts]
        results = [f"{row['model']}: {decision_in_words(row)}" for row in verdicts]
        when = run.created[:16].replace("T", " ")
        rows.append(
            (
                run.id,
                _state(store, run),
                run.skill,
                when,
                "; ".join(results) or ", ".join(run.models),
            )
        )
    return Table(title="Runs", columns=columns, rows=tuple(rows))


def _decision(row: Mapping[str, Any]) -> Headline:
    decision = str(row["decision"])
    return Headline(decision_in_words(row), TONES.get(decision, "open"), SIGNS.get(decision, ""))


def _lift(row: Mapping[str, Any]) -> Cell:
    low, high = row["interval"] or (None, None)
    return Measure(row["lift"], low, high)


def _state(store: Store, run: Run) -> Headline:
    done = run.passed + run.failed + run.errored
    of = f"{done:,} of {counted(run.trials, 'trial')}"
    if store.is_claimed(run):
        return Headline(f"running: {of}", "good", "●")
    if done < run.trials and not run.plan.analysis.kept.verdicts:
        return Headline(f"interrupted: {of}", "bad", "✗")
    return Headline(of, "neutral")


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
            # A bad request, or a problem with the store.
            status = 400 if isinstance(error, UsageError) else 503
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
