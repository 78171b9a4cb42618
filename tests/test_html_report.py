"""The HTML report in a real browser: what it shows, how it is used, and what untrusted answers cannot do to it."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from browser import SCREENS, Browser, accessibility_problems, overflowing, wait_for_text
from conftest import Upskill, greetings, write_script, write_skill
from stored_runs import Answered, plan_of_models, result_of, store_run
from upskill import Plan, Result, Suite, Trial, open_store
from upskill.reports import ReportContext, numbers
from upskill.reports.html import page as html_page
from upskill.reports.html.page import render
from upskill.reports.json import to_dict
from upskill.runs.results.evaluation import evaluation_of, first_results
from upskill.runs.stores.rows import Review
from upskill.traces import Step

HOSTILE = (
    "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    '<a href="javascript:window.pwned = 3">click</a> {{7*7}} %%SCRIPT%% '
    "\x1b[31mred\x1b[0m \x9b2J \u202egnp.exe\u2066 \udcff\ud800 \x00 \u2028 <!-- --> <svg onload=window.pwned=4>"
)
STEPS = (
    Step("thinking", "The house may have a rule."),
    Step(
        "tool",
        tool="bash",
        arguments={"command": "cat SKILL.md"},
        output="Say ahoy." + HOSTILE,
        status="ok",
    ),
    Step(
        "tool",
        tool="write_file",
        arguments={"path": "a", "content": HOSTILE},
        output="no folder",
        status="error",
    ),
)


LINES = """(node) => {
  const range = document.createRange();
  range.selectNodeContents(node.firstChild);
  return range.getClientRects().length;
}"""


def result(plan: Plan, trial: Trial) -> Result:
    """The first model learns; the second refuses, is cut off, errs, and answers with what should do harm."""
    number = int(trial.case.rpartition("-")[2])
    if trial.model.endswith("hostile"):
        if number == 1:
            return result_of(plan, trial, HOSTILE, passed=False)
        if number == 2:
            return result_of(
                plan, trial, "ahoy, " + "a very long word " * 300_000, passed=False, cause="length"
            )
        if number == 3:
            return result_of(
                plan, trial, "", passed=None, error=f"the server answered 529 {HOSTILE}"
            )
        if number == 4:
            return result_of(plan, trial, "I cannot help with that.", passed=False, cause="refusal")
        return result_of(plan, trial, "hello", passed=False, steps=STEPS, cost=None)
    said = "ahoy, dear guest number one" if trial.arm == "skill" else "hello, dear guest number one"
    return result_of(plan, trial, said, passed=trial.arm == "skill" or number == 5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The store, and the id of a run with two models, two runs of each case, and controls."""
    folder = tmp_path_factory.mktemp("html")
    with chdir(folder):  # where the models are called by short names
        plan = plan_of_models(["learns", "hostile"], controls=True, agent="tools", runs=2)
        meta = json.loads(plan.skill.read("skill_meta.json") or b"{}")
        seen = json.dumps(meta | {"seen": {case.id: "another text" for case in plan.suite.train}})
        plan = replace(plan, skill=plan.skill.with_file("skill_meta.json", seen.encode()))
    name = store_run(folder / "runs", plan, lambda trial: result(plan, trial))
    with open_store(folder / "runs") as store:
        found = store.run(name)
        store.add_review(
            found, Review(Trial("scripted:learns", "greet-5", "skill", 0), "wrong", "a note")
        )
        store.add_review(found, Review(Trial("scripted:learns", "greet-1", "baseline", 0), "right"))
    return folder / "runs", name


def page_of(folder: Path, name: str) -> str:
    """The report of a stored run, with every trial."""
    with open_store(folder / "runs") as store:
        found = store.run(name)
        return render(
            evaluation_of(store, found), ReportContext(results=lambda: store.results(found))
        )


def report_of(folder: Path, plan: Plan, answered: Answered) -> str:
    """The URL of the report of a run with these results."""
    file = folder / "report.html"
    file.write_text(page_of(folder, store_run(folder / "runs", plan, answered)), encoding="utf-8")
    return file.as_uri()


@pytest.fixture(scope="module")
def report(run: tuple[Path, str]) -> str:
    """The URL of the report."""
    file = run[0].parent / "report.html"
    file.write_text(page_of(run[0].parent, run[1]), encoding="utf-8")
    return file.as_uri()


@pytest.fixture(scope="module")
def document(run: tuple[Path, str]) -> Any:
    with open_store(run[0]) as store:
        return json.loads(json.dumps(to_dict(evaluation_of(store, store.run(run[1])))))


@pytest.mark.parametrize(("screen", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_every_verdict_is_on_the_first_screen_and_nothing_is_cut(
    browser: Browser, report: str, screen: str, scheme: Any
) -> None:
    def use(page: Any) -> tuple[Any, ...]:
        height = page.viewport_size["height"]
        cards = page.locator(".card")
        seen = [cards.nth(number).inner_text() for number in range(cards.count())]
        boxes = [cards.nth(number).bounding_box() for number in range(cards.count())]
        inside = all(box["y"] + box["height"] <= height for box in boxes)
        apart = all(
            one["y"] + one["height"] <= two["y"] or one["x"] + one["width"] <= two["x"]
            for one, two in pairwise(boxes)
        )
        wide = overflowing(page)
        problems = accessibility_problems(page)
        page.goto(f"{report}#case=greet-5")
        page.wait_for_selector("dialog .answer")
        return (
            seen,
            inside,
            apart,
            wide + overflowing(page),
            problems + accessibility_problems(page),
        )

    seen, inside, apart, wide, problems = browser.run(use, report, screen=screen, scheme=scheme)
    assert (inside, apart, wide, problems) == (True, True, [], [])
    for words in (
        "scripted:learns",
        "helps",
        "+92 points",
        "97.5% interval",
        "8% → 100%",
        "232 tokens per task",
        "per pass",
    ):
        assert words in seen[0]
    assert "scripted:hostile" in seen[1]
    assert "price unknown" in seen[1]


def test_the_report_has_every_part_and_the_numbers_of_the_json_document(
    browser: Browser, report: str, document: Any
) -> None:
    script = """() => [...document.querySelectorAll("data")].map(
      (node) => [JSON.parse(node.dataset.path), node.value, node.textContent])"""

    def use(page: Any) -> tuple[Any, ...]:
        parts = {
            node.get_attribute("id"): node.text_content()
            for node in page.locator("main > section").all()
        }
        return page.evaluate(script), parts, page.locator("#failures tbody tr").all_inner_texts()

    shown, parts, failures = browser.run(use, report)
    formats: dict[str, Callable[[Any], str]] = {
        "lift": numbers.points,
        "interval": numbers.interval_in_points,
        "pass_rate": numbers.percent,
        "rate": numbers.percent,
        "cost_usd": numbers.dollars,
    }
    for path, value, text in shown:
        found: Any = document
        for name in path:
            found = found[name]
        assert json.loads(value or "null") == found, path
        written = (
            numbers.dollars if "cost_per_pass" in path else formats.get(path[-1], "{:,}".format)
        )
        assert text == written(found), path
    paths = {tuple(str(name) for name in path[2:]) for path, _, _ in shown if path[0] == "models"}
    assert {
        ("lift",),
        ("interval",),
        ("baseline", "pass_rate"),
        ("skill", "pass_rate"),
    } <= paths
    assert {
        ("skill", "causes", "refusal"),
        ("baseline", "causes", "length"),
        ("skill", "missing"),
    } <= paths
    assert list(parts) == [
        *(
            "verdicts",
            "pictures",
            "cases",
            "groups",
            "failures",
            "activity",
            "controls",
            "people",
            "notes",
            "spent",
        ),
        *("skill", "trials"),
    ]
    for name, words in {
        "pictures": ("+92 points",),
        "groups": ("formal", "sea", "short", "Ada", "Grace"),
        "failures": ("refused", "cut off at the limit", "529"),
        "controls": ("skill − placebo", "A/A control"),
        "skill": ("Say ahoy, a comma, and the name.", "c1", "own"),
        "people": ("1 wrong", "1 right"),
        "notes": ("scripted:learns",),
    }.items():
        assert all(word in parts[name] for word in words), name
    arms = [row.split("\t")[:2] for row in failures]
    for model in ("scripted:learns", "scripted:hostile"):
        assert [arm for name, arm in arms if name == model] == [
            "baseline",
            "with skill",
            "placebo",
            "A/A control",
        ]
    hostile = next(row for row in failures if row.startswith("scripted:hostile\tplacebo"))
    baseline = next(row for row in failures if row.startswith("scripted:hostile\tbaseline"))
    trials = [sum(map(int, row.split("\t")[2:5])) for row in (baseline, hostile)]
    assert trials == [24, 24]
    assert hostile.split("\t")[2:] == [
        "0",
        "22",
        "2",
        "2 cut off at the limit, 2 refused, 18 failed a check",
    ]


def test_trials_are_filtered_by_model_arm_outcome_tag_and_text(
    browser: Browser, report: str
) -> None:
    def use(page: Any) -> str:
        def choose(name: str, value: str, count: str) -> None:
            page.locator(f"#trials [name={name}]").select_option(value)
            wait_for_text(page, "#trials-status", count)

        wait_for_text(page, "#trials-status", "192 trials")
        choose("model", "scripted:hostile", "96 trials")
        choose("outcome", "missing", "8 trials")
        choose("arm", "skill", "2 trials")
        page.get_by_role("button", name="Clear").click()
        wait_for_text(page, "#trials-status", "192 trials")
        choose("tag", "sea", "64 trials")
        page.locator("#trials [name=text]").fill("CANNOT HELP")
        wait_for_text(page, "#trials-status", "No trial matches.")
        choose("tag", "", "8 trials")
        return page.locator(".trials").inner_text()

    found = browser.run(use, report)
    assert found.count("greet-4") == 8
    assert "refused" in found


def test_a_case_opens_with_both_answers_their_differences_findings_and_steps(
    browser: Browser, report: str
) -> None:
    def use(page: Any) -> tuple[Any, ...]:
        page.locator(".cell").first.click()
        page.wait_for_selector("dialog .answer")
        first = page.url.partition("#")[2]
        marked = [page.locator(f"dialog {tag}").all_inner_texts() for tag in ("del", "ins")]
        line = page.locator("dialog ins").first.evaluate(
            "one => getComputedStyle(one).textDecorationLine"
        )
        assert line == "none"  # which would hide underscores
        page.get_by_role("link", name="Next case →").click()
        wait_for_text(page, "#opened-title", "greet-2")
        page.locator("dialog select").first.select_option("scripted:hostile")
        page.wait_for_selector("dialog .note:has-text('5,100,006')")
        long = page.locator("dialog .answer pre").first.inner_text()
        page.go_back()
        page.go_back()
        wait_for_text(page, "#opened-title", "greet-1")
        page.goto(f"{report}#trial=greet-7/scripted%3Ahostile/skill/1")
        page.wait_for_selector("dialog .timeline")
        steps = page.locator("dialog [data-arm=skill] .timeline").inner_text()
        thinking = page.locator("dialog [data-arm=skill] .thinking details").get_attribute("open")
        chosen = [page.locator("dialog select").nth(number).input_value() for number in (0, 1)]
        findings = page.locator("dialog [data-arm=skill] .findings").inner_text()
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="hidden")
        return first, marked, long, steps, thinking, chosen, findings, page.url

    first, marked, long, steps, thinking, chosen, findings, url = browser.run(use, report)
    assert first == "trial=greet-1/scripted%3Alearns/baseline"
    assert marked == [["hello"], ["ahoy"]]
    assert 200 < len(long) < 25_000
    assert long.startswith("ahoy, a very long word")
    assert all(
        words in steps
        for words in ("What the agent did (4 steps)", "bash", "cat SKILL.md", "write_file")
    )
    assert thinking is None
    assert chosen == ["scripted:hostile", "1"]
    assert "the answer lacks 'ahoy'" in findings
    assert "#" not in url


def test_a_link_to_a_case_or_a_trial_is_followed_when_the_report_opens(
    browser: Browser, report: str
) -> None:
    unknown = {
        "#case=nothing": "No case named nothing",
        "#case=%E0%A4%A": "No case named %E0%A4%A",
        "#trial=greet-3/x/y/7": "No model named x; these are the answers from scripted:learns.",
    }

    def use(page: Any) -> tuple[str, list[str], list[str]]:
        page.wait_for_selector("dialog[open] .answer")
        page.reload()
        page.wait_for_selector("dialog[open] .answer")
        title, answers = (
            page.locator("#opened-title").inner_text(),
            page.locator("dialog .answer h3").all_inner_texts(),
        )
        texts: list[str] = []
        for link, words in unknown.items():
            page.goto(report + link)
            page.locator("dialog", has_text=words).wait_for()
            texts.append(page.locator("dialog").inner_text())
        return title, answers, texts

    title, answers, texts = browser.run(use, f"{report}#case=greet-5")
    assert (title, len(answers)) == ("greet-5", 4)
    assert all(words in text for words, text in zip(unknown.values(), texts, strict=True))
    assert "No arm named y. No trial has seed 7." in texts[-1]


def test_an_answer_that_should_do_harm_is_shown_as_text_and_runs_nothing(
    browser: Browser, report: str
) -> None:
    def use(page: Any) -> tuple[Any, ...]:
        page.wait_for_selector("dialog[open] .answer pre")
        said = page.locator("dialog .answer pre").first.inner_text()
        page.goto(f"{report}#trial=greet-7/scripted%3Ahostile/skill/1")
        page.wait_for_selector("dialog .timeline")
        output = page.locator("dialog .timeline").last.text_content()
        elements = page.locator("dialog img, dialog svg, dialog a[href^=javascript]").count()
        scripts = page.evaluate(
            "[...document.scripts].filter((one) => one.type !== 'application/octet-stream').length"
        )
        return said, output, elements, scripts, page.evaluate("window.pwned ?? null")

    said, output, elements, scripts, pwned = browser.run(
        use, f"{report}#trial=greet-1/scripted%3Ahostile/skill/0"
    )
    assert (elements, scripts, pwned) == (0, 1, None)
    for shown in (
        "</script><script>window.pwned = 1</script>",
        "<img src=x onerror='window.pwned = 2'>",
    ):
        assert shown in said
    assert "\\x1b[31mred\\x1b[0m \\x9b2J \\x202egnp.exe\\x2066 \\xdcff\\xd800 \\x00 \\x2028" in said
    assert "javascript:window.pwned" in output


def test_the_policy_of_the_page_lets_nothing_run_that_is_not_its_own(
    browser: Browser, report: str
) -> None:
    def use(page: Any) -> Any:
        return page.evaluate(
            """async () => {
              const blocked = [];
              document.addEventListener("securitypolicyviolation", (event) => blocked.push(event.effectiveDirective));
              const script = document.createElement("script");
              script.textContent = "window.pwned = 1";
              document.body.append(script);
              const link = document.createElement("div");
              link.setAttribute("onclick", "window.pwned = 2");
              document.body.append(link);
              link.click();
              const form = document.createElement("style");
              form.textContent = "body { display: none }";
              document.body.append(form);
              const fetched = await fetch("http://127.0.0.1:9/").then(() => "fetched", () => "refused");
              await new Promise((resolve) => setTimeout(resolve, 50));
              const shown = getComputedStyle(document.body).display;
              return [window.pwned ?? null, fetched, shown, [...new Set(blocked)].sort()];
            }"""
        )

    found: list[Any] = []
    with pytest.raises(
        AssertionError, match="Content Security Policy"
    ):  # the browser logs what it refuses
        browser.run(lambda page: found.append(use(page)), report)
    assert found == [
        [
            None,
            "refused",
            "block",
            ["connect-src", "script-src-attr", "script-src-elem", "style-src-elem"],
        ]
    ]


def test_reviews_are_shown_and_cannot_be_changed(browser: Browser, report: str) -> None:
    def use(page: Any) -> tuple[Any, ...]:
        answer = page.locator("dialog[open] [data-arm=skill]")
        answer.wait_for()
        shown = answer.locator(".feedback").inner_text()
        forms = page.locator("form.feedback").count()
        page.keyboard.press("Escape")
        return shown, forms, page.locator("#people").inner_text()

    shown, forms, people = browser.run(use, f"{report}#trial=greet-5/scripted%3Alearns/skill/0")
    assert (shown, forms) == ("Marked: wrong. a note", 0)
    assert "Marked: 1 right, 1 wrong." in people


def test_the_report_is_used_with_the_keyboard_alone(browser: Browser, report: str) -> None:
    def use(page: Any) -> tuple[Any, ...]:
        def focused() -> str:
            return page.evaluate(
                "document.activeElement.textContent.trim() || document.activeElement.name"
            )

        def tab_to(words: str) -> None:
            for _ in range(400):
                page.keyboard.press("Tab")
                if focused() == words:
                    return
            raise AssertionError(f"{words} is never reached")

        page.keyboard.press("Tab")
        first = focused()
        tab_to("Dark")
        page.keyboard.press("Enter")
        theme = page.evaluate("document.documentElement.dataset.theme")
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        tab_to("greet-1")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open] .answer")
        title = focused()
        for _ in range(60):  # what is behind the dialog is never reached
            page.keyboard.press("Tab")
            assert page.evaluate(
                "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
            )
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="hidden")
        return first, theme, ring, title

    assert browser.run(use, report) == ("Skip to the verdicts", "dark", "solid", "greet-1")


def test_many_models_and_names_of_any_kind_find_their_place(
    browser: Browser, tmp_path: Path
) -> None:
    ids = ["a/b c%20#x?", "</script>", "日本語 & co", "x" * 200]
    usual = [
        f"provider:m{number:02}-Qwen2.5-Coder-{number}.5B-Instruct.gguf" for number in range(9)
    ]
    names = ["m" * 120 + "-end", "<img src=x onerror=alert(1)>", "back\u202ewards", *usual]
    plan = plan_of_models([f"m{number}" for number in range(12)], folder=tmp_path, seed=2**62)
    models = tuple(
        replace(address, name=name) for address, name in zip(plan.models, names, strict=True)
    )
    cases = [{"id": each, "prompt": each, "checks": [{"contains": "ahoy"}]} for each in ids]
    plan = replace(plan, models=models, suite=Suite.parse({"cases": cases}))
    url = report_of(
        tmp_path, plan, lambda trial: result_of(plan, trial, "ahoy", passed=trial.arm == "skill")
    )

    def use(page: Any) -> tuple[Any, ...]:
        last = page.locator(".line").last.bounding_box()
        wide = overflowing(page)
        titles: list[str] = []
        for number in range(len(ids)):
            page.locator("#cases th[scope=row] a").nth(number).click()
            page.wait_for_selector("dialog .answer.passed")  # the trial with this seed was found
            titles.append(page.locator("#opened-title").inner_text())
            assert (
                page.locator("dialog .filters label").first.evaluate(LINES) == 1
            )  # "Model" is not broken
            page.keyboard.press("Escape")
        costs = page.locator(".costs, .line .cost").all()
        cost = next(each.inner_text() for each in costs if each.is_visible())
        return (
            page.locator(".line .model").all_inner_texts(),
            last["y"] + last["height"],
            titles,
            wide,
            cost,
        )

    costs = {
        "desktop": "takes 72 → 232 tokens per task, $0.000400 per pass",
        "phone": "A task takes 72 → 232 tokens",
    }
    for screen, (_, height) in SCREENS.items():
        shown, bottom, titles, wide, cost = browser.run(use, url, screen=screen)
        assert (titles, wide, bottom <= height) == (ids, [], True)
        assert costs[screen] in cost
        assert shown[0].endswith("mmmmmmmm-end")
        assert shown[1:3] == ["<img src=x onerror=alert(1)>", "back\\x202ewards"]


def test_the_report_of_two_skills_says_which_side_is_which(
    browser: Browser, upskill: Upskill, home: Path
) -> None:
    skill, model = write_skill(home / "greeter", cases=12), write_script(home / "model.yaml")
    upskill("eval", skill, "-m", model, "--against", skill, "-q", "--report", "html=two.html")
    upskill("eval", skill, "-m", model, "--no-baseline", "-q", "--report", "html=alone.html")

    def use(page: Any) -> tuple[Any, ...]:
        card, bars = page.locator(".card").inner_text(), page.locator(".card .bar").count()
        return card, page.locator("#pictures").text_content(), page.inner_text(".facts"), bars

    card, pictures, facts, _ = browser.run(use, (home / "two.html").as_uri())
    assert "passes, reference skill → this skill: 100% → 100%" in card
    assert "Pass rates of greeter, beside the reference skill" in pictures
    assert "that the skill adds to the reference skill" in pictures
    assert "without" not in pictures
    assert re.search(r"\d\d:\d\d UTC", facts)
    card, pictures, _, bars = browser.run(use, (home / "alone.html").as_uri())
    assert "no lift\nnothing to compare with" in re.sub(r"\n+", "\n", card)
    assert bars == 0


def test_many_trials_are_drawn_and_searched_a_little_at_a_time(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long each step takes depends on the machine, and is what `bench/report.py` measures."""
    monkeypatch.setattr(html_page, "BLOCK", 15_000)
    plan = plan_of_models(["many"], cases=50, folder=tmp_path, agent="tools", runs=10)
    url = report_of(
        tmp_path, plan, lambda trial: result_of(plan, trial, f"ahoy {trial.case} {trial.seed}")
    )

    def use(page: Any) -> tuple[Any, ...]:
        wait_for_text(page, "#trials-status", "1,000 trials")
        page.locator("#trials [name=text]").fill("ahoy greet-37 4")
        wait_for_text(page, "#trials-status", "2 trials")
        nodes = page.evaluate("document.querySelectorAll('*').length")
        blocks = page.locator("script[id^=trials-]").count()
        return nodes, blocks, page.evaluate("window.upskillTimings.measures.map(([name]) => name)")

    nodes, blocks, measures = browser.run(use, url)
    assert blocks > 9
    assert nodes < 6_000  # only what is looked at is on the page
    assert (
        measures.count("trials") > blocks / 3
    )  # the search came back to the page after every third block


def noise(seed: object, size: int) -> str:
    """A text that compresses badly."""
    return Random(repr(seed)).randbytes(size // 2).hex()


@pytest.fixture
def small_page(monkeypatch: pytest.MonkeyPatch) -> int:
    """How large a page may be, once that is less: so fewer trials fill it."""
    monkeypatch.setattr(html_page, "MAX_BYTES", 350_000)
    monkeypatch.setattr(html_page, "FOR_ANSWERS", 60_000)
    return 350_000


def test_a_page_has_a_limit_whatever_its_trials_say(tmp_path: Path, small_page: int) -> None:
    plan = plan_of_models(["long"], cases=10, folder=tmp_path, runs=10)
    cases = tuple(
        replace(case, files={"a.txt": noise(case.id, 12_000)}) for case in plan.suite.cases
    )
    plan = replace(plan, suite=replace(plan.suite, cases=cases))

    def answered(trial: Trial) -> Result:
        return result_of(plan, trial, noise(trial, 12_000), passed=trial.arm == "skill")

    page = page_of(tmp_path, store_run(tmp_path / "runs", plan, answered))
    assert 0.85 < len(page.encode()) / small_page <= 1  # what there is room for is used
    found, index = opened(page, "summary"), opened(page, "index")
    files = [{"text": noise(case.id, 12_000)} for case in cases]
    assert [case["files"][0][1] for case in found["cases"]] == files
    assert index["limit"] > 300  # only the answers were cut
    spoken = opened(page, "trials-0")[0]["answer"]
    assert (spoken["length"], len(spoken["text"])) == (
        12_000,
        pytest.approx(index["limit"], abs=10),
    )


def test_long_prompts_leave_room_for_answers_and_many_steps_for_others(
    tmp_path: Path, small_page: int
) -> None:
    plan = plan_of_models(["long"], cases=20, folder=tmp_path)
    cases = tuple(replace(case, prompt=noise(case.id, 20_000)) for case in plan.suite.cases)
    plan = replace(plan, suite=replace(plan.suite, cases=cases))

    def answered(trial: Trial) -> Result:
        steps = [
            Step("tool", tool="bash", output=noise((trial, step), 300), status="ok")
            for step in range(100)
        ]
        return result_of(plan, trial, noise(trial, 1_000), steps=tuple(steps))

    page = page_of(tmp_path, store_run(tmp_path / "runs", plan, answered))
    assert 0.85 < len(page.encode()) / small_page <= 1
    prompts = {len(case["prompt"]["text"]) for case in opened(page, "summary")["cases"]}
    assert len(prompts) == 1
    assert 3_000 < prompts.pop() < 20_000
    trial = opened(page, "trials-0")[0]
    assert len(trial["steps"]) + trial["more_steps"] == 101
    assert len(trial["steps"]) >= 10


def opened(page: str, name: str) -> Any:
    """A block of data of a page."""
    [data] = re.findall(f'id="{name}">([^<]*)<', page)
    return json.loads(gzip.decompress(b64decode(data)))


def test_the_command_writes_a_report_of_a_stored_run(upskill: Upskill, home: Path) -> None:
    write_script(home / "model.yaml")
    skill = write_skill(home / "greeter")
    upskill("eval", skill, "-m", "scripted:model.yaml", "--report", "html=made/eval.html", "-q")
    run = upskill("runs", "--json").json[0]["run"]
    assert upskill("report", "last").err.startswith(f"Wrote {run}.html (")
    page = (home / f"{run}.html").read_text(encoding="utf-8")
    assert page == (home / "made" / "eval.html").read_text(encoding="utf-8")
    assert upskill("report", run[:-3], "-o", "-").out == page
    upskill("report", "-o", "new/folder/lift.html")
    assert (home / "new" / "folder" / "lift.html").read_text(encoding="utf-8") == page
    assert "no run named 'nothing'" in upskill("report", "nothing").err
    assert (upskill("report", "last", "-o", ".").code, upskill("report", "--store", "no").code) == (
        2,
        2,
    )


def test_code_in_a_note_is_code_and_a_stored_answer_takes_no_time(
    browser: Browser, upskill: Upskill, home: Path
) -> None:
    write_script(home / "model.yaml")
    upskill("eval", write_skill(home / "greeter", cases=2), "-m", "scripted:model.yaml")
    upskill("report", "last", "-o", "report.html")
    assert (
        "add `asserted: true`" in upskill("export", "last", "--format", "markdown", "-o", "-").out
    )

    def use(page: Any) -> tuple[str, list[str]]:
        notes = page.locator("#notes")
        assert "asserted: true" in notes.locator("code").all_inner_texts()
        page.locator(".cell").first.click()
        page.wait_for_selector("dialog .answer")
        return notes.inner_text(), page.locator("dialog .answer .what").all_inner_texts()

    notes, facts = browser.run(use, (home / "report.html").as_uri())
    assert "`" not in notes
    assert len(facts) == 2
    assert not any(" 0.0 s" in each for each in facts), facts


def test_the_report_of_one_model_has_nothing_to_choose_and_no_half_empty_row(
    browser: Browser, upskill: Upskill, home: Path
) -> None:
    write_script(home / "model.yaml")
    suite = greetings(4)
    for case, tags in zip(suite["cases"], (["short"], ["short"], ["long"], []), strict=True):
        case["tags"] = tags
    upskill(
        "eval",
        write_skill(home / "greeter", suite=suite),
        "-m",
        "scripted:model.yaml",
        "--repeats",
        2,
    )
    upskill("report", "last", "-o", "report.html")

    def use(page: Any) -> tuple[list[float], list[str], int]:
        assert "No notes." not in page.locator("#notes").inner_text()
        widths = [figure.bounding_box()["width"] for figure in page.locator(".picture").all()]
        groups = page.locator("#groups tbody th").all_inner_texts()
        page.locator(".cell").first.click()
        page.wait_for_selector("dialog .answer")
        return widths, groups, page.locator("dialog label", has_text="Model").count()

    (forest, bars, front), groups, choices = browser.run(use, (home / "report.html").as_uri())
    assert forest == bars
    assert front > 2 * bars
    assert ("short" in groups, "long" in groups, choices) == (True, False, 0)


def test_a_typed_link_to_a_case_with_a_slash_in_its_id_opens_it(
    browser: Browser, tmp_path: Path
) -> None:
    plan = plan_of_models(["model"], folder=tmp_path)
    cases = [
        {"id": name, "prompt": name, "checks": [{"contains": "ahoy"}]}
        for name in ("build/toml", "build")
    ]
    plan = replace(plan, suite=Suite.parse({"cases": cases}))
    url = report_of(tmp_path, plan, lambda trial: result_of(plan, trial, "ahoy"))

    def use(page: Any) -> None:
        for link, title in (
            ("build%2Ftoml", "build/toml"),
            ("build", "build"),
            ("build/toml", "build/toml"),
        ):
            page.goto(f"{url}#case={link}")
            wait_for_text(page, "#opened-title", title)

    browser.run(use, url)


def test_a_card_says_where_most_answers_could_not_pass(browser: Browser, tmp_path: Path) -> None:
    plan = plan_of_models(["model"], cases=4, folder=tmp_path)

    def answered(trial: Trial) -> Result:
        passed = trial.arm == "skill"
        return result_of(
            plan, trial, "ahoy", passed=passed, **({} if passed else {"cause": "refusal"})
        )

    url = report_of(tmp_path, plan, answered)
    card = browser.run(lambda page: page.locator(".card").inner_text(), url)
    assert "baseline: 4 of 4 answers refused" in card
    assert not re.search(r"with skill: \d+ of", card)


def test_six_verdicts_fit_the_first_screen_and_paper_is_light_and_has_every_column(
    browser: Browser, tmp_path: Path
) -> None:
    plan = plan_of_models(
        [f"a-rather-long-name-{number}" for number in range(6)], cases=6, folder=tmp_path
    )
    url = report_of(
        tmp_path, plan, lambda trial: result_of(plan, trial, "ahoy", passed=trial.arm == "skill")
    )

    def use(page: Any) -> tuple[int, bool, list[str], str, str]:
        decisions = page.locator("#verdicts .decision")
        box = decisions.last.bounding_box()
        fits = box["y"] + box["height"] <= page.viewport_size["height"]
        page.locator("button", has_text="Dark").click()
        page.set_viewport_size({"width": 720, "height": 1000})  # of A4, less the margins
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        cut = page.evaluate(
            """() => [...document.querySelectorAll("#groups table, #cases table")].filter(
              (table) => table.getBoundingClientRect().right > document.documentElement.clientWidth
            ).map((table) => table.caption.textContent)"""
        )
        printed = page.evaluate("document.documentElement.dataset.theme")
        parts = (".menu", ".filters", "#skill .skill", "#cases")
        assert [page.locator(name).first.is_visible() for name in parts] == [
            False,
            False,
            True,
            True,
        ]
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        return (
            decisions.count(),
            fits,
            cut,
            printed,
            page.evaluate("document.documentElement.dataset.theme"),
        )

    for screen in SCREENS:
        assert browser.run(use, url, screen=screen) == (6, True, [], "light", "dark")


def test_the_report_of_queries_says_how_the_skill_fires(
    browser: Browser, upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "greeter", cases=3)
    texts = {
        "Greet Ada for me.": True,
        "Greet Bo for me.": True,
        "What time is it?": False,
        "Sum 2 and 2.": False,
    }
    queries = [{"query": text, "should_trigger": fires} for text, fires in texts.items()]
    (home / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
    calls = [{"name": "activate_skill", "arguments": {"name": "greeter"}}]
    script = [
        {"match": "Greet Ada", "calls": calls},
        {"match": "Sum 2", "calls": calls},
        {"answer": "Done."},
    ]
    (home / "model.yaml").write_text(json.dumps(script), encoding="utf-8")
    fired = upskill(
        "trigger",
        skill,
        "-m",
        "scripted:model.yaml",
        "--queries",
        "queries.json",
        "--repeats",
        "1",
        "--json",
    )
    recall = json.loads(fired.out)["models"][0]["recall"]
    upskill("report", "last", "-o", "fires.html")

    def use(page: Any) -> tuple[Any, ...]:
        card, rows = (
            page.locator(".card").inner_text(),
            page.locator("#queries tbody tr").all_inner_texts(),
        )
        wide, problems = overflowing(page), accessibility_problems(page)
        page.locator("#queries a").first.click()
        page.wait_for_selector("dialog[open]")
        return (
            page.locator("h1").inner_text(),
            card,
            rows,
            page.locator("#opened-title").inner_text(),
            wide,
            problems,
        )

    title, card, rows, opened, wide, problems = browser.run(
        use, (home / "fires.html").as_uri(), screen="phone"
    )
    assert title == (
        "scripted:model.yaml activates greeter in 50% of the runs where a query needs it"
        " and in 50% of the runs where a query does not need it."
    )
    low, high = (numbers.percent(bound) for bound in recall["interval"])
    assert f"recall 50% ({low} to {high})" in card
    assert "right on 2 of 4 queries" in card
    assert rows[0].split("\n")[:3] == ["Greet Ada for me.", "yes", "1 of 1"]
    assert [row.split("\n")[-1] for row in rows] == ["yes", "no", "yes", "no"]
    assert (wide, problems) == ([], [])
    assert "greet-ada" in opened


def test_a_report_of_very_many_trials_has_the_first_of_each_case_and_says_so(
    browser: Browser, run: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_page, "MAX_TRIALS", 100)  # of 12 cases, 2 models, 4 arms and 2 seeds
    place, name = run
    with open_store(place) as store:
        found = store.run(name)
        evaluation = evaluation_of(store, found)
        first = partial(first_results, store, found)
        page = render(
            evaluation, ReportContext(results=lambda: store.results(found), first_results=first)
        )
        assert {each.trial.seed for each in first(1)} == {0}
    file = place.parent / "few.html"
    file.write_text(page, encoding="utf-8")
    said = browser.run(
        lambda page: page.locator(".note", has_text="of 192 trials").inner_text(), file.as_uri()
    )
    assert said.startswith(
        "To keep the file small, it has 96 of 192 trials: the first seeds of each case."
    )
    index = opened(page, "index")
    assert sum(index["blocks"]) == len(evaluation.outcomes) // 2 == 96
    assert set(index["columns"]["seed"]["values"]) == {0}


def test_a_verbose_answer_that_passed_is_no_obstacle(browser: Browser, tmp_path: Path) -> None:
    with chdir(tmp_path):
        plan = plan_of_models(["learns"], cases=3, runs=1)
    answered = report_of(
        tmp_path, plan, lambda trial: result_of(plan, trial, "ahoy", passed=True, cause="verbose")
    )
    failures = browser.run(lambda page: page.locator("#failures tbody").inner_text(), answered)
    assert "verbose" not in failures
