"""The live page in a real browser: it follows what goes on, everyone can use it, and answers can do nothing to it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, accessibility_problems, overflowing
from conftest import greetings, start, write_script, write_skill
from live_server import Live, add_runs, run_now, served
from test_live import Site
from test_store import PLAN, TRIALS, begin, result_of
from upskill import Skill, Store, Suite, open_store
from upskill.runs.planning.stored_plan import KeptVerdicts


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("pages")
    ids = add_runs(folder)
    with served(folder / "runs") as live:
        yield Site(live, folder / "runs", **ids)


def elsewhere(act: Callable[..., Any], *values: Any) -> Any:
    """In another thread: the browser's has a loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(act, *values).result()


def add(store: Store, number: int, passed: bool | None = True) -> None:
    def now() -> None:
        asyncio.run(store.add_result(store.run("last"), result_of(TRIALS[number], passed)))

    elsewhere(now)


# Tables that a reader has to move sideways; the matrix of cases keeps its first column in sight.
SIDEWAYS = """() => [...document.querySelectorAll("div.scroll")].filter(
  (box) => box.scrollWidth > box.clientWidth && !box.querySelector(".matrix")).map((box) => box.ariaLabel)"""


@pytest.mark.parametrize(("screen", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_every_page_fits_the_screen_and_is_open_to_everyone(
    browser: Browser, site: Site, screen: str, scheme: Any
) -> None:
    pages = (
        "",
        "skill/greeter",
        f"run/{site.first}",
        f"compare?before={site.first}&after={site.second}",
    )
    for path in pages:

        def use(page: Any) -> tuple[list[str], list[str], str]:
            for each in page.locator("details.flip").all()[:1]:
                each.locator("summary").click()
            page.locator("[data-connection=live]").wait_for()
            if screen == "phone":
                assert page.evaluate(SIDEWAYS) == []
            return accessibility_problems(page), overflowing(page), page.locator("h1").inner_text()

        problems, wide, title = browser.run(
            use, site.live.address + path, screen=screen, scheme=scheme
        )
        assert (problems, wide) == ([], []), path
        assert title


def test_the_list_leads_to_a_run_a_skill_and_a_comparison(browser: Browser, site: Site) -> None:
    def use(page: Any) -> tuple[str, str, str]:
        assert page.locator(f"[data-run='{site.first}'] .decision").all_inner_texts() == [
            "✓ helps",
            "? undecided",
        ]
        page.locator(f"[data-run='{site.first}'] input").check()
        page.locator(f"[data-run='{site.second}'] input").check()
        page.set_viewport_size({"width": 320, "height": 700})
        assert (
            page.locator("#compare").evaluate("one => one.getClientRects().length") == 1
        )  # a border around all of it
        page.set_viewport_size({"width": 1200, "height": 700})
        page.locator("#compare").click()
        page.locator("#flipped details").first.wait_for()
        tiles = " ".join(page.locator(".tiles .lift").all_inner_texts())
        assert len({tile.bounding_box()["y"] for tile in page.locator(".tiles li").all()}) == 1
        added = page.locator("#diff ins").all_inner_texts()
        page.go_back()
        page.locator("[data-skill=greeter] a").click()
        page.locator("#lift svg").wait_for()
        page.locator("#versions a").first.click()
        page.locator("#verdicts").wait_for()
        return tiles, " ".join(added), page.locator("h1").inner_text()

    tiles, added, title = browser.run(use, site.live.address)
    assert tiles == "100% → 0% 0 6 0"
    assert "Say hello." in added
    assert "greeter" in title


def test_the_comparison_opens_on_the_latest_two_runs_of_one_skill(
    browser: Browser, tmp_path: Path
) -> None:
    ids = add_runs(tmp_path)
    with open_store(tmp_path / "runs") as store:
        student = write_script(tmp_path / "other.json", [{"answer": "hello"}])
        run_now(
            store,
            Skill.load(write_skill(tmp_path / "sailor")),
            Suite.parse(greetings(2)),
            [student],
        )
    with served(tmp_path / "runs") as live:

        def use(page: Any) -> list[str]:
            page.locator(".tiles").wait_for()
            assert (
                page.locator("select[name=model]").count(),
                page.locator("select[name=other]").count(),
            ) == (1, 0)
            return [
                page.locator(f"select[name={name}]").input_value() for name in ("before", "after")
            ]

        assert browser.run(use, f"{live.address}compare") == [ids["first"], ids["second"]]


def test_the_page_of_a_skill_counts_versions_that_searches_tried(
    browser: Browser, tmp_path: Path
) -> None:
    add_runs(tmp_path)
    with open_store(tmp_path / "runs") as store:
        store.add_candidate(
            "search", Skill.new("greeter", "Greets.", "Say hi."), None, None, "", {}
        )
    with served(tmp_path / "runs") as live:

        def facts(page: Any) -> list[str]:
            page.locator("#lift").wait_for()
            return page.locator(".facts span").all_inner_texts()

        assert browser.run(facts, f"{live.address}skill/greeter") == [
            "2 versions",
            "2 runs",
            "1 version tried in searches",
        ]


def test_two_versions_are_compared_with_a_model_that_ran_both(
    browser: Browser, tmp_path: Path
) -> None:
    one, two = (write_script(tmp_path / f"{name}.json") for name in ("one", "two"))
    suite = Suite.parse(greetings(2))
    with open_store(tmp_path / "runs") as store:
        first = run_now(store, Skill.load(write_skill(tmp_path / "greeter")), suite, [one])
        run_now(store, Skill.load(write_skill(tmp_path / "greeter")), suite, [two])
        edited = Skill.load(
            write_skill(tmp_path / "greeter", body="# Greeting\n\nSay ahoy to all.")
        )
        second = run_now(store, edited, suite, [one])
    with served(tmp_path / "runs") as live:

        def compared(page: Any) -> list[str]:
            page.locator(".tiles").wait_for()
            return [
                page.locator(f"select[name={name}]").input_value() for name in ("before", "after")
            ]

        def chosen(page: Any) -> list[str]:
            page.locator("#between button").click()
            return compared(page)

        assert browser.run(chosen, f"{live.address}skill/greeter") == [first, second]
        assert browser.run(compared, f"{live.address}compare") == [first, second]


def test_pages_follow_a_run_and_say_how_far_it_is(browser: Browser, tmp_path: Path) -> None:
    with open_store(tmp_path) as store, served(tmp_path) as live:

        def use(page: Any) -> tuple[str, str]:
            page.locator("h1", has_text="No runs yet").wait_for()
            run = elsewhere(begin, store)
            claim = store.claim(run)
            claim.__enter__()
            add(store, 0)
            card = page.locator(f"#going [data-run='{run.id}']")
            card.locator("text=1 of 6 trials").wait_for()
            add(store, 1, False)
            card.locator("text=2 of 6 trials").wait_for()
            said = card.inner_text()
            badge, whole = card.locator(".state").bounding_box(), card.bounding_box()
            assert badge["width"] < whole["width"] / 3, "the badge is as wide as its word"
            page.goto(live.page.address(live.port, run.id))
            page.locator("#trials-status", has_text="2 trials").wait_for()
            assert "not run" not in page.locator("#verdicts").inner_text()  # they are about to be
            assert page.locator("h1").inner_text().startswith("No verdict on ")
            assert page.locator(".card .lift").inner_text() == "no verdict yet"
            for part in (
                "pictures",
                "failures",
                "cases",
            ):  # the trials below have outcomes, so none says "no results"
                assert "shown with the verdict" in page.locator(f"#{part}").inner_text(), part
            whole_page = page.locator("#page").text_content()
            assert not re.search(
                "no lift|scored|known price|No trial has run|Run the same command", whole_page
            )
            assert re.findall(r"\d+ of 6 trials", whole_page) == ["2 of 6 trials"]
            for number in range(2, len(PLAN)):
                add(store, number)
            page.locator("#trials-status", has_text="6 trials").wait_for()
            page.locator(".going progress[value='6']").wait_for()
            page.locator(".card .rates", has_text="67%").wait_for()  # the verdict follows
            claim.__exit__(None, None, None)
            page.locator(".going[data-state=done]").wait_for(state="attached")
            return said, page.locator("#verdicts").inner_text()

        said, verdict = browser.run(use, live.address)
        assert "passed" not in said  # how the arms differ is for the end
        assert "46 tokens, $1.50" in said
        assert "100%" in verdict


def test_what_an_interrupted_run_lacks_and_that_errors_leave_it_open_is_said(
    browser: Browser, tmp_path: Path
) -> None:
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = begin(store)
        claim = store.claim(run)
        claim.__enter__()
        for number, passed in enumerate((True, False, None)):
            add(store, number, passed)
        open_verdict = {
            "model": "one",
            "decision": "undecided",
            "reason": "errors",
            "lift": 0.2,
            "interval": [-0.1, 0.5],
        }
        kept = KeptVerdicts(trials=2, verdicts=(open_verdict,))
        store.annotate(run, analysis=replace(run.plan.analysis, kept=kept))

        def use(page: Any) -> tuple[str, str]:
            said = (
                page.locator("#runs .decision").inner_text(),
                page.locator("#skills .verdicts").inner_text(),
            )
            page.goto(live.page.address(live.port, run.id))
            page.locator(".going[data-state=running]").wait_for(state="attached")
            page.locator("#verdicts .problems", has_text="1 trial of one missing").wait_for()
            assert "not run" not in page.locator("#verdicts").inner_text()
            claim.__exit__(None, None, None)
            page.locator(".going[data-state=interrupted]").wait_for(state="attached")
            page.locator("#verdicts .problems", has_text="3 trials were not run").wait_for()
            return said

        listed, skill = browser.run(use, live.address)
        assert listed == "? undecided (errors)"
        assert "? undecided (errors)" in skill
        assert "(only 3 of 6 trials)" in skill


def test_a_run_that_ends_while_its_page_is_drawn_is_drawn_again(
    browser: Browser, tmp_path: Path
) -> None:
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = begin(store)
        claim = store.claim(run)
        claim.__enter__()
        add(store, 0)
        held: list[Any] = []

        def hold(route: Any) -> None:
            held.append(route)

        def use(page: Any) -> str:
            # Asked for after the numbers and before drawing. Playwright can't hold a built-in method as a handler.
            page.route(
                "**/api/feedback.json*", hold
            )  # asked for after the numbers and before drawing
            with page.expect_request("**/api/feedback.json*"):
                page.goto(live.page.address(live.port, run.id), wait_until="commit")
            page.locator(".going[data-state=running]").wait_for(state="attached")
            assert page.locator(".waiting").inner_text() == "Computing results of 1 trial …"
            claim.__exit__(None, None, None)
            page.locator(".going[data-state=interrupted]").wait_for(state="attached")
            page.wait_for_timeout(4000)  # longer than the pause after which a page asks again
            held[0].continue_()
            page.locator("#verdicts .problems", has_text="5 trials were not run").wait_for()
            return page.locator("#verdicts").inner_text()

        assert "5 trials were not run" in browser.run(use, live.address)


def test_many_pages_of_one_browser_all_hear_what_goes_on(browser: Browser, tmp_path: Path) -> None:
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = begin(store)

        def use(page: Any) -> int:
            pages = [
                page.context.new_page() for _ in range(9)
            ]  # more than a browser opens connections to one server
            for each in pages:
                each.goto(live.address)
                each.locator("[data-connection=live]").wait_for()
            add(store, 0)
            for each in pages:
                each.locator(f"[data-run='{run.id}']", has_text="1 of 6 trials").first.wait_for()
            pages[0].close()  # which may have been the one that listens
            page.close()
            add(store, 1)
            for each in pages[1:]:
                each.locator(f"[data-run='{run.id}']", has_text="2 of 6 trials").first.wait_for()
            return len(pages)

        assert browser.run(use, live.address) == 9


def test_an_answer_that_should_do_harm_is_shown_as_text(browser: Browser, site: Site) -> None:
    def use(page: Any) -> tuple[list[str], int, Any]:
        page.locator("dialog .answer").nth(1).wait_for()
        said = page.locator("dialog .answer pre.text").all_inner_texts()
        return (
            said,
            page.locator("dialog img, dialog script").count(),
            page.evaluate("window.hacked ?? null"),
        )

    student = next(model for model in _models(site) if "student" in model)
    link = f"#trial=greet-1/{student.replace('/', '%2F')}/skill/0"
    said, elements, hacked = browser.run(
        use, f"{site.live.page.address(site.live.port, site.first)}{link}"
    )
    assert any(
        "<script>window.hacked = 1</script></script>" in text and "\\x1b[31m" in text
        for text in said
    )
    assert any("\\x202eevil" in text for text in said)
    assert (elements, hacked) == (0, None)

    def compared(page: Any) -> tuple[str, Any]:
        page.locator("#flipped details").first.locator("summary").click()
        return page.locator("#flipped").inner_text(), page.evaluate("window.hacked ?? null")

    words, hacked = browser.run(
        compared, f"{site.live.address}compare?before={site.first}&after={site.second}"
    )
    assert "onerror=" in words
    assert hacked is None


def _models(site: Site) -> list[str]:
    with open_store(site.place) as store:
        return store.run(site.first).models


def test_trials_are_searched_and_the_keyboard_is_back_at_its_case_though_the_page_was_drawn_anew(
    browser: Browser, site: Site
) -> None:
    def use(page: Any) -> tuple[list[str], str]:
        for select, value in (("outcome", "failed"), ("arm", "skill")):
            page.locator(f"#trials select[name={select}]").select_option(value)
        page.locator("#trials-status", has_text="5 trials").wait_for()
        page.locator("#trials button[type=reset]").click()
        page.locator("#trials-status", has_text="24 trials").wait_for()
        page.locator("#trials input[name=text]").fill("javascript:")
        page.locator("#trials-status", has_text="1 trial").filter(has_not_text="24").wait_for()
        cases = page.locator(".trials li b").all_inner_texts()
        page.locator("#cases a", has_text="greet-3").focus()
        page.keyboard.press("Enter")
        page.locator("dialog .answer").first.wait_for()
        page.evaluate(
            "for (const body of document.querySelectorAll('#cases tbody')) body.replaceWith(body.cloneNode(true))"
        )
        page.keyboard.press("Escape")
        page.locator("#cases a:focus").wait_for(state="attached")
        return cases, page.locator("#cases a:focus").inner_text()

    cases, focused = browser.run(use, site.live.page.address(site.live.port, site.first))
    assert (cases, "greet-3" in focused) == (["greet-1"], True)


def test_marks_made_with_the_keyboard_are_stored_and_shown_again(
    browser: Browser, tmp_path: Path
) -> None:
    ids = add_runs(tmp_path)
    with served(tmp_path / "runs") as live:

        def use(page: Any) -> None:
            form = page.locator("dialog .answer[data-arm=skill] form.feedback")
            form.locator("input[value=wrong]").focus()
            page.keyboard.press("Space")
            form.locator("text=Saved.").wait_for()
            form.locator("textarea").focus()
            page.keyboard.type("<b>no</b> name")
            with page.expect_response(
                "**/api/feedback*"
            ):  # or the page might be closed before it has asked
                page.keyboard.press("Tab")
            form.locator("text=Saved.").wait_for()

        with open_store(tmp_path / "runs") as store:
            run = store.run(ids["second"])
            browser.run(use, f"{live.page.address(live.port, run.id)}#case=greet-2")
            while not (found := store.reviews(run)) or not found[0].note:
                time.sleep(0.01)
    assert (found[0].verdict, found[0].note, found[0].trial.case) == (
        "wrong",
        "<b>no</b> name",
        "greet-2",
    )
    with served(tmp_path / "runs") as live:

        def again(page: Any) -> tuple[bool, str]:
            page.locator("#people", has_text="Marked: 1 wrong.").wait_for(state="attached")
            form = page.locator("dialog .answer[data-arm=skill] form.feedback")
            form.wait_for()
            return form.locator("input[value=wrong]").is_checked(), form.locator(
                "textarea"
            ).input_value()

        assert browser.run(again, f"{live.page.address(live.port, run.id)}#case=greet-2") == (
            True,
            "<b>no</b> name",
        )


def test_a_run_of_another_process_is_followed(browser: Browser, home: Path) -> None:
    write_skill(home / "greeter", suite=greetings(3))
    write_script(home / "slow.yaml", [{"answer": "ahoy", "seconds": 0.3}])
    with open_store(home / "runs") as store, served(home / "runs") as live:

        def use(page: Any) -> None:
            process = start(
                "eval",
                "greeter",
                "-m",
                "scripted:slow.yaml",
                "--concurrency",
                1,
                "--quiet",
                cwd=home,
            )
            try:
                page.locator("#going [data-run]", has_text="of 6 trials").wait_for()
                page.locator("#runs [data-run] .decision").wait_for()
            finally:
                process.communicate(timeout=600)

        browser.run(use, live.address)
        assert store.run("last").finished


def test_a_server_that_has_ended_is_said(browser: Browser, tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        begin(store)
    context = served(tmp_path)
    live: Live = context.__enter__()

    def use(page: Any) -> str:
        page.locator("[data-connection=live]").wait_for()
        elsewhere(context.__exit__, None, None, None)
        page.locator("[data-connection=lost]").wait_for()
        return page.locator("[data-connection]").inner_text()

    with pytest.raises(AssertionError, match="ERR_"):  # the browser itself says so in its console
        assert browser.run(use, live.address) == "not connected"


HIDE = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })"
SHOW = "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"


def test_a_page_that_nobody_sees_asks_for_nothing_until_somebody_does(
    browser: Browser, tmp_path: Path
) -> None:
    with open_store(tmp_path) as store, served(tmp_path) as live:
        run = elsewhere(begin, store)

        def use(page: Any) -> tuple[int, str]:
            asked: list[str] = []

            def note(request: Any) -> None:
                asked.append(request.url)

            page.on("request", note)
            page.add_init_script(HIDE)
            add(store, 0)
            page.goto(live.page.address(live.port, run.id))
            page.locator("#trials-status", has_text="1 trial").wait_for()
            page.locator("[data-connection=live]").wait_for()
            add(store, 1)
            page.locator(".going[data-done='2']").wait_for(state="attached")  # which it is told
            before = sum("api/trials" in url for url in asked)
            shown = page.locator("#trials-status").inner_text()
            page.evaluate(SHOW)
            page.locator("#trials-status", has_text="2 trials").wait_for()
            return before, shown

        assert browser.run(use, live.address) == (1, "1 trial")
