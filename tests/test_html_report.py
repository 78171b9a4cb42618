"""The HTML report in a real browser: what it shows, how it is used, and what untrusted answers cannot do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, accessibility_problems, overflowing
from conftest import Upskill, write_script, write_skill
from stored_runs import Answered, plan_of_models, result_of, store_run
from upskill import Plan, Result, Trial, open_store
from upskill.reports.cases import (
    CaseReader,
    Limits,
    limits_of_page,
    outcome_of,
    word_diff,
)
from upskill.reports.evaluated import report_evaluation
from upskill.reports.html import render
from upskill.reports.report import (
    Column,
    Headline,
    Measure,
    Note,
    Outcome,
    Report,
    Section,
    Table,
)
from upskill.reports.svg import Scale
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.stores.rows import Review
from upskill.traces import Step

HOSTILE = (
    "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    '<a href="javascript:window.pwned = 3">click</a> {{7*7}} {% raw %} </pre></details>'
    "\x1b[31mred\x1b[0m \u202egnp.exe\u2066 \udcff\ud800 \x00 \u2028 <!-- --> <svg onload=window.pwned=4>"
)
STEPS = (
    Step("thinking", "The house may have a rule."),
    Step("tool", tool="bash", arguments={"command": "cat SKILL.md"}, output=HOSTILE, status="ok"),
    Step("tool", tool="write_file", arguments={"path": "a"}, output="no folder", status="error"),
)
LONG = "Good evening, dear guest, and welcome to the house on the hill. " * 8


def result(plan: Plan, trial: Trial) -> Result:
    """The first model learns all but one case; the second fails in every way there is."""
    number = int(trial.case.rpartition("-")[2])
    if trial.model.endswith("hostile"):
        if number == 1:
            return result_of(plan, trial, HOSTILE, passed=False)
        if number == 2:
            return result_of(plan, trial, "ahoy " * 300_000, passed=False, cause="length")
        if number == 3:
            return result_of(
                plan, trial, "", passed=None, error=f"the server answered 529 {HOSTILE}"
            )
        return result_of(plan, trial, "hello", passed=False, steps=STEPS, cost=None)
    if number == 5:
        return result_of(plan, trial, "hello", passed=trial.arm != "skill")
    if number == 6:  # differs by draw
        return result_of(plan, trial, f"{LONG}{trial.arm} {trial.seed}", passed=trial.seed == 0)
    return result_of(plan, trial, f"{trial.arm}, dear guest", passed=trial.arm == "skill")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The store, and the id of a run with two models, two draws of each case, controls and reviews."""
    folder = tmp_path_factory.mktemp("html")
    with chdir(folder):  # where the models are called by short names
        plan = plan_of_models(["learns", "hostile"], controls=True, agent="tools", runs=2)
    name = store_run(folder / "runs", plan, lambda trial: result(plan, trial))
    with open_store(folder / "runs") as store:
        found = store.run(name)
        wrong = Trial("scripted:learns", "greet-5", "skill", 0)
        store.add_review(found, Review(wrong, "wrong", "a note"))
    return folder / "runs", name


def page_of(place: Path, name: str) -> str:
    with open_store(place) as store:
        evaluation = evaluation_of(store, store.run(name))
        return render(report_evaluation(evaluation, store=store))


def address_of(folder: Path, page: str) -> str:
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    return file.as_uri()


def report_of(folder: Path, plan: Plan, answered: Answered) -> str:
    """The address of the report of a run with these results."""
    return address_of(folder, page_of(folder / "runs", store_run(folder / "runs", plan, answered)))


@pytest.fixture(scope="module")
def report(run: tuple[Path, str]) -> str:
    """The address of the report."""
    return address_of(run[0].parent, page_of(*run))


def titles(page: Any) -> list[str]:
    return page.locator(".case:visible h3").all_inner_texts()


# What it shows.


@pytest.mark.parametrize(("screen", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_a_page_fits_every_screen_can_be_read_and_is_open_to_everyone(
    browser: Browser, report: str, screen: str, scheme: Any
) -> None:
    smallest = """() => Math.min(
      ...[...document.querySelectorAll("p, td, th, li, small, summary, code, pre, h4, button")].map(
        (one) => parseFloat(getComputedStyle(one).fontSize)))"""

    def use(page: Any) -> tuple[Any, ...]:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        return overflowing(page), accessibility_problems(page), page.evaluate(smallest)

    assert browser.run(use, report, screen=screen, scheme=scheme) == ([], [], 13)


def test_a_page_is_read_without_scripts(browser: Browser, report: str) -> None:
    def use(page: Any) -> None:
        text = page.inner_text("body")
        assert page.inner_text("h1").startswith("greeter helps scripted:learns")
        assert "With the skill 21 of 46 answers pass" in text
        assert "+7" in page.inner_text("td.measure >> nth=0")
        assert not page.locator(".filters").is_visible()
        failing = page.locator("#worse .case").first
        assert (
            failing.locator("h3").inner_text() == "Please greet guest 5 in the way of this house."
        )
        assert failing.locator("pre").first.is_visible()
        fixed = page.locator("[id='case=greet-3']")
        assert not fixed.is_visible()
        page.goto(f"{report}#case=greet-3")
        assert fixed.is_visible()

    browser.run(use, report, scripts=False)


def test_cases_come_worst_first_and_the_counts_lead_to_them(browser: Browser, report: str) -> None:
    def use(page: Any) -> tuple[list[str], list[str], bool]:
        counts = page.locator(".counts a").all_inner_texts()
        page.locator(".counts a").last.click()
        groups = page.locator(".group h2").all_inner_texts()
        return counts, groups, page.locator(".group").last.is_visible()

    counts, groups, seen = browser.run(use, report)
    assert counts == [
        "1 worse with the skill",
        "1 still failing",
        "9 failing sometimes",
        "1 fixed by the skill",
    ]
    assert groups == [
        "Worse with the skill 1",
        "Still failing 1",
        "Failing sometimes 9",
        "Fixed by the skill 1",
    ]
    assert seen


def test_a_case_has_its_answers_why_they_failed_and_what_an_agent_did(
    browser: Browser, report: str
) -> None:
    def use(page: Any) -> None:
        worse = page.locator(".case:has([id='case=greet-5'])")
        learns = worse.locator(".model").first
        assert learns.locator("summary").first.inner_text() == "scripted:learns ✓✓ → ✗✗"
        shown = learns.locator(".arm").first.inner_text()
        assert "the answer lacks 'ahoy'" in shown
        assert "seed 0, 1 · 220+12 tokens" in shown
        assert "marked wrong: a note" in shown
        hostile = worse.locator(".model").nth(1)
        steps = hostile.locator("details:has(> ol)").first
        assert not steps.locator("li").first.is_visible()
        steps.locator("summary").click()
        assert "cat SKILL.md" in steps.inner_text()
        assert "write_file (an error)" in steps.inner_text()
        differs = page.locator(".case:has([id='case=greet-6'])").locator(".model").first
        assert "1 more" in differs.text_content()
        assert differs.locator("ins").all_text_contents() == [" skill"]
        controls = worse.locator(".model > details:has(.arm) > summary").all_inner_texts()
        assert controls[:2] == ["placebo", "A/A control"]
        cut = page.locator(".case:has([id='case=greet-2'])").inner_text()
        assert "cut off at the limit" in cut
        assert "Left out: 5,984,000 characters." in cut
        assert "--case greet-2" in cut

    browser.run(use, report)


def test_cases_are_searched_filtered_and_ordered(browser: Browser, report: str) -> None:
    def use(page: Any) -> None:
        def choose(name: str, value: str) -> int:
            page.locator(f".filters [name={name}]").select_option(value)
            return page.locator(".case:visible").count()

        assert page.locator(".case:visible").count() == 12
        assert choose("outcome", "worse") == 1
        assert choose("model", "scripted:hostile") == 0  # its own state, not that of the case
        assert choose("outcome", "missing") == 1
        page.get_by_role("button", name="Clear").click()
        page.locator(".filters [name=text]").fill("CAT skill.md")
        assert page.locator("output").inner_text() == "9 of 12 cases"
        assert choose("tag", "sea") == 3
        page.get_by_role("button", name="Clear").click()
        choose("order", "suite")
        assert titles(page)[:2] == [
            f"Please greet guest {number} in the way of this house." for number in (1, 2)
        ]
        choose("order", "")
        assert titles(page)[0] == "Please greet guest 5 in the way of this house."

    browser.run(use, report)


def test_an_answer_that_should_do_harm_is_text_and_runs_nothing(
    browser: Browser, report: str
) -> None:
    script = """() => { const script = document.createElement("script");
      script.textContent = "window.pwned = 5"; document.body.append(script); return window.pwned ?? null }"""

    def use(page: Any) -> tuple[str, int, Any]:
        said = page.locator("[id='case=greet-1'] pre").filter(has_text="click").first.inner_text()
        elements = page.locator("main img[onerror], main svg[onload], a[href^=javascript]").count()
        with page.expect_console_message():  # it says that the policy refused
            pwned = page.evaluate(script)
        return said, elements, pwned

    with pytest.raises(AssertionError, match="Content Security Policy"):
        browser.run(use, report)
    found: list[tuple[str, int, Any]] = []

    def look(page: Any) -> None:
        case = page.locator("[id='case=greet-1']")
        said = case.locator("pre").filter(has_text="click").first.text_content()
        found.append(
            (said, page.locator("main img").count(), page.evaluate("window.pwned ?? null"))
        )

    browser.run(look, report)
    ((said, images, pwned),) = found
    assert (images, pwned) == (1, None)  # the picture of tokens and pass rate
    assert said.startswith("</script><script>window.pwned = 1</script><img src=x onerror")
    assert "{{7*7}} {% raw %} </pre></details>" in said
    assert (
        "\\x1b[31mred\\x1b[0m \\x202egnp.exe\\x2066 \\xdcff\\xd800 \\x00 \\x2028 <!-- -->" in said
    )


def test_any_report_is_a_page(browser: Browser, tmp_path: Path) -> None:
    columns = (Column("Skill"), Column("Result"), Column("Lift", "points"), Column("Runs", "count"))
    rows = (
        (
            "a<b>",
            Headline("helps", "good", "✓"),
            Measure(0.5, 0.25, 0.75, "tasks", Measure(0.4)),
            1234.0,
        ),
        ("c", Headline("hurts", "bad", "✗"), Measure(-0.5, -0.75, None), None),
    )
    page = render(
        Report(
            title="What changed",
            data=[],
            headlines=(Headline("Two got worse", "bad", "✗"),),
            tables=(Table(columns=columns, rows=rows, note="Run `upskill ci`."),),
            notes=(Note("INVALID", "alarm"), *(Note(f"note {number}") for number in range(5))),
            sections=(Section(title="Settings", lines={"Seed": "3"}),),
        )
    )

    assert "a&lt;b&gt;" in page

    def look(page: Any) -> None:
        assert page.locator(".alarm").inner_text() == "INVALID"
        assert page.locator("tbody th").first.inner_text() == "a<b>"
        assert page.locator("td .good").inner_text() == "✓\u00a0helps"
        assert page.locator("td.measure").first.inner_text().startswith("+50 (+25 to +75) tasks")
        assert page.locator("td.number").all_inner_texts() == ["1,234", "–"]
        assert page.locator("code").inner_text() == "upskill ci"
        assert page.locator("details", has_text="2 more notes").count() == 1
        zero, other = (each.get_attribute("x1") for each in page.locator("svg .soft[y2]").all())
        assert zero == other
        assert not page.locator(".filters").count()

    browser.run(look, address_of(tmp_path, page))


# Cases.


@pytest.mark.parametrize(
    ("with_skill", "without", "outcome"),
    [
        ([True, True], [False, False], "fixed"),
        ([True, True], [True, None], "passing"),
        ([True, False], [True, True], "worse"),
        ([True, False], [False, True], "sometimes"),
        ([False, False, True], [False], "failing"),
        ([None, None], [True], "missing"),
        ([None, False], [True, None], "worse"),
    ],
)
def test_the_outcome_of_a_case_is_worked_out_by_hand(
    with_skill: Sequence[bool | None], without: Sequence[bool | None], outcome: Outcome
) -> None:
    marks = {"one": {"skill": with_skill, "baseline": without}}
    assert outcome_of(marks, ("skill", "baseline")) == outcome


def test_a_case_that_is_worse_for_one_model_is_worse_and_else_the_mean_counts() -> None:
    good = {"skill": [True], "baseline": [False]}
    bad = {"skill": [False], "baseline": [True]}
    none = {"skill": [False], "baseline": [False]}
    arms = ("skill", "baseline")
    assert outcome_of({"one": good, "two": good, "three": bad}, arms) == "worse"
    assert outcome_of({"one": good, "two": none}, arms) == "sometimes"
    assert outcome_of({"one": good, "two": none, "three": none}, arms) == "failing"
    assert outcome_of({"one": {"skill": [True]}}, ("skill",)) == "passing"


def test_equal_draws_are_one_and_large_runs_show_less(run: tuple[Path, str]) -> None:
    with open_store(run[0]) as store:
        evaluation = evaluation_of(store, store.run(run[1]))
        groups = list(CaseReader(evaluation, store).groups())
        assert groups[0].cases[0].case.id == "greet-5"
        whole = CaseReader(evaluation, store).case("greet-2")
        small = CaseReader(evaluation, store, Limits(text=60, failing=1, passing=0)).case("greet-6")
    (skill, *_) = whole.models[1].arms
    assert (len(skill.draws), skill.draws[0].seeds, skill.outcomes) == (1, (0, 1), (False, False))
    assert len(skill.draws[0].answer or "") == 1_500_000
    learns = small.models[0].arms[0]
    assert [draw.result.passed for draw in learns.draws] == [False]
    assert len(learns.draws[0].answer or "") < 80
    assert small.left_out.endswith(" characters and 8 answers")
    assert limits_of_page(1_000) == Limits(4_000, 10, 10, 100)
    assert limits_of_page(5_000) == Limits(1_500, 3, 1, 30)
    assert limits_of_page(5_001) == Limits(600, 1, 0, 10)


def test_while_trials_are_missing_only_the_answers_with_the_skill_are_shown(tmp_path: Path) -> None:
    plan = plan_of_models(["half"], cases=4, folder=tmp_path)

    async def add() -> None:
        with open_store(tmp_path / "runs") as store:
            stored, _ = store.start_run(plan, "test")
            for trial in list(plan.trials())[:6]:
                await store.add_result(stored, result_of(plan, trial, "ahoy"))

    asyncio.run(add())
    with open_store(tmp_path / "runs") as store:
        evaluation = evaluation_of(store, store.run("last"))
        groups = list(CaseReader(evaluation, store).groups())
    arms = [
        arm.arm
        for group in groups
        for case in group.cases
        for each in case.models
        for arm in each.arms
    ]
    assert set(arms) == {"skill"}


def test_words_are_compared_where_they_have_enough_in_common() -> None:
    assert list(word_diff("say hello to all", "say ahoy to all")) == [
        ("=", "say"),
        ("-", " hello"),
        ("+", " ahoy"),
        ("=", " to all"),
    ]
    assert list(word_diff("one two three", "four five six")) == []


def test_all_intervals_share_an_axis_with_zero_on_it() -> None:
    scale = Scale.around([Measure(0.75, 0.56, 0.87), Measure(-0.1, -0.2, 0.05)])
    assert scale.ticks() == [-0.25, 0.0, 0.25, 0.5, 0.75, 1.0]
    assert Scale.around([Measure(0.0)]).high == 0.25


# The command.


def test_the_command_writes_a_page_or_a_picture(upskill: Upskill, home: Path) -> None:
    model = write_script(home / "model.json")
    write_skill(home / "greeter", cases=4)
    name = upskill("eval", "greeter", "-m", model, "--json").json["run"]
    done = upskill("report")
    assert done.code == 0
    page = (home / f"{name}.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert upskill("report", "last", "-o", "-").out.strip() == page.strip()
    assert upskill("report", "last", "-o", "rates.svg").code == 0
    assert "Pass rates of greeter" in (home / "rates.svg").read_text(encoding="utf-8")
    (home / "notes.html").write_text("mine", encoding="utf-8")
    refused = upskill("report", "-o", "notes.html")
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert "HTML and SVG" in upskill("report", "-o", "report.md").err


def test_a_redacted_page_has_no_secret(upskill: Upskill, home: Path) -> None:
    secret = "sk-ant-api03-" + "aB3" * 20
    model = write_script(home / "model.json", [{"answer": f"ahoy, use {secret}"}])
    write_skill(home / "greeter", cases=4)
    upskill("eval", "greeter", "-m", model)
    assert secret in upskill("report", "-o", "-").out
    assert secret not in upskill("report", "-o", "-", "--redact").out
