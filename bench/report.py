"""How an HTML report of many trials opens, filters and searches in Chromium, as the page measures itself.

    python bench/report.py [TRIALS]

Prints the size of the file, how long it took to write, and the longest stretches in which the page could not answer.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from browser import Browser, wait_for_text
from stored_runs import plan_of_models, result_of, store_run
from upskill import Result, Trial, open_store
from upskill.reports import ReportContext
from upskill.reports.html.page import render
from upskill.runs.results.evaluation import evaluation_of

WORDS = (Path(__file__).parent.parent / "docs" / "concepts.md").read_text(encoding="utf-8").split()
RUNS = 5
QUESTIONS = ("opening", "filtering", "searching", "a case")


def main(trials: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        plan = plan_of_models(
            ["one", "two", "three", "four", "five"], max(1, trials // 50), folder=place, runs=RUNS
        )

        def answered(trial: Trial) -> Result:
            drawn = random.Random(repr(trial))
            words = " ".join(drawn.choices(WORDS, k=60))
            return result_of(
                plan, trial, words, passed=trial.arm == "skill" or drawn.random() < 0.3
            )

        name = store_run(place / "runs", plan, answered)
        begun = time.perf_counter()
        with open_store(place / "runs") as store:
            run = store.run(name)
            page = render(
                evaluation_of(store, run), ReportContext(results=lambda: store.results(run))
            )
        took = time.perf_counter() - begun
        file = place / "report.html"
        file.write_text(page, encoding="utf-8")
        print(f"{len(plan):,} trials: {len(page) / 1e6:.2f} MB, written in {took:.1f} s")
        browser = Browser()
        longest = browser.run(lambda page: pauses(page, len(plan)), file.as_uri())
        browser.close()
    for question, pause in zip(QUESTIONS, longest, strict=True):
        print(f"{question:<10} longest pause {pause:6.0f} ms")


def pauses(page: Any, trials: int) -> list[float]:
    """The longest stretch of each question, in milliseconds; 0: none was over 50."""
    found: list[float] = []

    def measured() -> None:
        page.wait_for_timeout(300)
        found.append(page.evaluate("Math.max(0, ...window.upskillTimings.longTasks.splice(0))"))

    wait_for_text(page, "#trials-status", f"{trials:,} trials")
    measured()
    for name, value in (("model", "1"), ("arm", "1"), ("outcome", "1"), ("tag", "1")):
        page.locator(f"#trials [name={name}]").select_option(index=int(value))
        page.wait_for_timeout(100)
    measured()
    page.get_by_role("button", name="Clear").click()
    page.locator("#trials [name=text]").fill("nothing says this")
    wait_for_text(page, "#trials-status", "No trial matches.")
    measured()
    page.locator(".cell").first.click()
    page.wait_for_selector("dialog .answer")
    measured()
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
