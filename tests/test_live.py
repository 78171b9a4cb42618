"""The live page: who may read it, what it shows, and that it follows what goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, accessibility_problems, overflowing
from conftest import Upskill, greetings, start, write_script, write_skill
from live_server import Live, add_runs, run_now, served
from stored_runs import plan_of_models, result_of
from upskill import Skill, Suite, Trial, open_store
from upskill.suites.suite import CaseFilter


@dataclass(frozen=True)
class Site:
    live: Live
    place: Path
    first: str
    second: str

    @property
    def review(self) -> dict[str, Any]:
        """One of two equal answers of the first run."""
        with open_store(self.place) as store:
            row = next(store.outcomes(store.run(self.first)))
        return {
            "case": row.case,
            "model": row.model,
            "arm": row.arm,
            "seeds": [str(row.seed)],
            "verdict": "wrong",
            "note": "too short",
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One store with two runs, and its pages."""
    folder = tmp_path_factory.mktemp("site")
    ids = add_runs(folder)
    with served(folder / "runs") as live:
        yield Site(live, folder / "runs", **ids)


# Who may read it.


def test_only_the_whole_address_opens_anything(site: Site) -> None:
    live, token = site.live, site.live.page.token
    assert len(token) >= 32
    assert live.ask().status == 200
    for path in ("", f"{token[:-1]}/", f"{token}x/", f"{token.swapcase()}/", "compare", "/"):
        answer = live.ask(f"/{path}")
        assert answer.status == 403, path
        assert token not in answer.text
        assert "address that `upskill view` printed" in answer.text


def test_requests_under_another_name_or_from_another_site_are_refused(site: Site) -> None:
    live = site.live
    own = f"127.0.0.1:{live.port}"
    near = (
        "127.0.0.1.evil.example",
        "user@127.0.0.1",
        "127.0.0.1:x",
        f"[::ffff:127.0.0.1]:{live.port}",
        "127.1",
    )
    for host in (
        "evil.example",
        f"evil.example:{live.port}",
        "localhost.evil.example",
        "0.0.0.0",
        *near,
    ):
        assert live.ask(Host=host).status == 403, host
    for host in (own, f"localhost:{live.port}", "127.0.0.1:9999"):  # also a port that was forwarded
        assert live.ask(Host=host).status == 200, host
    others = ("http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1")
    for origin in (*others, f"https://{own}", f"http://localhost:{live.port}"):
        assert live.ask(Origin=origin).status == 403, origin
        assert live.review(site.first, site.review, Origin=origin).status == 403, origin
    assert live.ask(Origin=f"http://{own}").status == 200
    assert live.ask(Sec_Fetch_Site="cross-site").status == 403
    assert live.ask(Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors").status == 403
    link_in_a_mail = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert live.ask(**link_in_a_mail).status == 200
    without_origin = live.ask(f"run/{site.first}", "POST", {}, Content_Type="application/json")
    assert without_origin.status == 403


def test_nothing_but_a_review_can_be_sent(site: Site) -> None:
    origin = f"http://127.0.0.1:{site.live.port}"
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("", "compare", f"run/{site.first}/case/greet-1"):
            assert site.live.ask(path, method, Origin=origin).status == 405, (method, path)
    assert site.live.ask(f"run/{site.first}", "DELETE", Origin=origin).status == 405


def test_no_path_leads_to_a_file_and_every_answer_forbids_what_a_page_does_not_need(
    site: Site,
) -> None:
    files = ("page.css", "../live.py", "%2e%2e/live.py", "run/../../live.py", "run/%2fetc%2fpasswd")
    for path in ("", "run/nothing", "/", "nothing", *files):
        answer = site.live.ask(path)
        assert answer.status in (200, 403, 404), path
        assert "import " not in answer.text
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


# What it shows.


def test_the_index_leads_to_a_run_a_case_a_skill_and_a_comparison(
    browser: Browser, site: Site
) -> None:
    def use(page: Any) -> None:
        page.get_by_role("link", name=site.first).first.click()
        assert "greeter helps" in page.inner_text("h1")
        page.get_by_role("link", name="Versions of greeter").click()
        # A line for each model, then the runs, then the versions.
        latest, runs, versions = page.locator("tbody").all()
        assert latest.locator("tr").count() == 2
        assert versions.locator("tr").count() == 2
        assert runs.locator("tr").count() == 3
        page.get_by_role("link", name="Compare its latest runs").click()
        assert site.first in page.inner_text("h1")
        assert site.second in page.inner_text("h1")
        assert page.locator("#worse .case").count()
        page.goto(f"{site.live.address}run/{site.first}/case/greet-1")
        assert page.locator(".case[open]").count() == 1
        assert "guest 1" in page.inner_text("h3")

    browser.run(use, site.live.address)


@pytest.mark.parametrize(("screen", "scheme"), [("desktop", "dark"), ("phone", "light")])
def test_every_page_fits_the_screen_and_is_open_to_everyone(
    browser: Browser, site: Site, screen: str, scheme: Any
) -> None:
    compared = f"compare?after={site.second}"

    def use(page: Any) -> list[str]:
        found: list[str] = []
        for path in (
            "",
            f"run/{site.first}",
            f"run/{site.first}/case/greet-1",
            "skill/greeter",
            compared,
        ):
            page.goto(f"{site.live.address}{path}")
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            found += overflowing(page) + accessibility_problems(page)
        return found

    assert browser.run(use, site.live.address, screen=screen, scheme=scheme) == []


def test_a_run_of_a_part_replaces_no_verdict_of_the_index(tmp_path: Path) -> None:
    helped = write_script(tmp_path / "helped.json")
    skill, suite = Skill.load(write_skill(tmp_path / "greeter")), Suite.parse(greetings(8))
    with open_store(tmp_path / "runs") as store, served(tmp_path / "runs") as live:
        assert "No run is stored here yet" in live.ask().text
        assert "No run is stored here yet" in live.ask("skill/nothing").text
        run_now(store, skill, CaseFilter(limit=2).choose(suite), [helped])
        assert "only 2 of 8 cases" in live.ask().text
        run_now(store, skill, suite, [helped])
        assert "only 2 of 8 cases" not in live.ask().text.split("Runs")[0]


def test_what_there_is_not_is_said(site: Site) -> None:
    for path, words in {
        "run/nothing": "no run named",
        f"run/{site.first}/case/nothing": "has no case with this id",
        "compare?after=nothing": "no run named",
        f"compare?after={site.first}": "compares any two runs that share cases",
    }.items():
        answer = site.live.ask(path)
        assert (answer.status, words in answer.text) == (404, True), (path, answer.text)
    for path in ("run/%00", "compare?after=%ED%A0%80"):
        assert site.live.ask(path).status in (400, 404), path


def test_a_store_that_is_deleted_is_said_to_be_gone(tmp_path: Path) -> None:
    run = add_runs(tmp_path)["first"]
    with served(tmp_path / "runs") as live:
        assert live.ask().status == 200
        (tmp_path / "runs").rename(tmp_path / "elsewhere")
        for path in ("", f"run/{run}"):
            answer = live.ask(path)
            assert answer.status == 503, path
            assert "the store was deleted, moved or replaced" in answer.text
        (tmp_path / "elsewhere").rename(tmp_path / "runs")
        assert live.ask().status == 200


# Reviews.


def test_a_review_is_stored_for_each_of_the_equal_answers_and_can_be_taken_back(site: Site) -> None:
    def stored() -> list[tuple[str, str]]:
        with open_store(site.place) as store:
            return [(each.verdict, each.note) for each in store.reviews(store.run(site.first))]

    assert site.live.review(site.first, site.review).status == 200
    assert stored() == [("wrong", "too short")]
    assert site.live.review(site.first, site.review | {"verdict": "", "note": " "}).status == 200
    assert stored() == []


def test_what_is_no_review_or_of_no_trial_is_refused(site: Site) -> None:
    live = site.live
    changes: list[dict[str, Any]] = [
        {"verdict": "good"},
        {"case": 3},
        {"seeds": []},
        {"seeds": [str(2**64)]},
        {"seeds": ["one"]},
        {"arm": "none"},
        {"note": "x" * 10_001},
        {"more": 1},
    ]
    for body in [*(site.review | change for change in changes), b"{", b"[" * 100_000]:
        answer = live.review(site.first, body)
        assert (answer.status, answer.text.startswith("Invalid review: ")) == (400, True), body
    assert live.review(site.first, site.review | {"case": "nothing"}).status == 404
    assert live.review("nothing", site.review).status == 404
    assert live.review(site.first, site.review, Content_Type="text/plain").status == 415


def test_reviews_are_made_with_the_keyboard_and_shown_again(browser: Browser, site: Site) -> None:
    def use(page: Any) -> None:
        page.locator("summary:visible", has_text="Review").first.press("Enter")
        form = page.locator(".review:visible")
        form.locator("input").fill("odd indeed")
        form.locator("input").press("Enter")
        form.locator("[value=odd]").focus()
        page.keyboard.press("Enter")
        page.locator(".review[data-saved=odd]").wait_for()
        page.reload()
        assert "Marked odd: odd indeed" in page.locator("main").text_content()

    browser.run(use, f"{site.live.address}run/{site.first}")
    page = site.live.ask(f"run/{site.first}").text
    assert "Marked odd: odd indeed" in page


# What goes on.


def test_a_page_follows_a_run_and_keeps_what_its_reader_did(
    browser: Browser, tmp_path: Path
) -> None:
    plan = plan_of_models(["half"], cases=4, folder=tmp_path)
    trials = sorted(
        plan.trials(), key=lambda trial: trial.arm, reverse=True
    )  # with the skill first
    with open_store(tmp_path / "runs") as store, served(tmp_path / "runs") as live:
        run, _ = store.start_run(plan, "test")

        def answer(some: list[Trial]) -> None:
            async def add() -> None:
                for trial in some:
                    passed = trial.arm == "skill" and trial.case != "greet-1"
                    await store.add_result(run, result_of(plan, trial, "ahoy", passed=passed))

            with ThreadPoolExecutor(1) as elsewhere:  # the browser's thread has a loop
                elsewhere.submit(asyncio.run, add()).result()

        def use(page: Any) -> None:
            page.locator(".group > summary").last.click()
            opened = page.locator(".case:visible:not([open]) h3").first.inner_text()
            page.locator(".case > summary", has_text=opened).click()
            page.locator("summary:visible", has_text="Review").last.click()
            page.locator(".review:visible input").fill("unsent")
            page.evaluate("document.activeElement.blur()")
            answer(trials[5:])
            page.locator("svg.interval").first.wait_for()
            assert page.locator(".case[open] h3", has_text=opened).count() == 1
            notes = [one.input_value() for one in page.locator(".review input").all()]
            assert notes.count("unsent") == 1

        with store.claim(run):
            answer(trials[:5])
            assert "data-follows" in live.ask(f"run/{run.id}").text
            browser.run(use, f"{live.address}run/{run.id}")
        assert "data-follows" not in live.ask(f"run/{run.id}").text


def test_a_server_that_has_ended_is_said(browser: Browser, tmp_path: Path) -> None:
    add_runs(tmp_path)
    site = served(tmp_path / "runs")
    live = site.__enter__()

    def use(page: Any) -> None:
        site.__exit__(None, None, None)
        page.locator(".alarm", has_text="The server has ended").wait_for()

    with pytest.raises(AssertionError, match="ERR_CONNECTION_REFUSED"):
        browser.run(use, live.address)


# The command.


def test_the_command_prints_its_address_and_ends_with_ctrl_c(site: Site) -> None:
    process = start("view", site.first[:-2], "--port", 0, "--store", site.place)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.endswith(f"/run/{site.first}")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "Ctrl-C stops it" in said


def test_what_cannot_be_served_is_said(upskill: Upskill, home: Path, site: Site) -> None:
    done = upskill("view", "--port", site.live.port, "--store", site.place)
    assert (done.code, "already in use" in done.err) == (2, True)
    assert "no run is stored here" in upskill("view").err
    assert upskill("view", "nothing", "--store", site.place).code == 2
    assert home.is_dir()


SERVE = """
import asyncio, sys
from upskill.cli.commands.view import _serve
from upskill.runs.stores import open_store

with open_store(sys.argv[1]) as store:
    asyncio.run(_serve(store, 0, "", browser=True))
"""


def test_a_browser_learns_the_token_from_a_file_that_only_you_can_read(
    site: Site, tmp_path: Path
) -> None:
    browser = tmp_path / "browser"
    look = 'stat -c %a "${1#file://}"; cat "${1#file://}"'
    browser.write_text(f'#!/bin/sh\n(echo "$1"; {look}) >{tmp_path}/seen; kill -INT $PPID\n')
    browser.chmod(0o755)
    line = [sys.executable, "-c", SERVE, str(site.place)]
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    address, mode, page = (tmp_path / "seen").read_text().splitlines()
    assert address.startswith("file:///")
    assert mode == "600"
    assert done.stdout.strip() in page
    assert not Path(address.removeprefix("file://")).exists()
