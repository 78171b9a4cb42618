"""How an HTML report of many trials opens, filters and searches in Chromium.

    python bench/report.py [TRIALS]

Prints the size of the file, how long it took to write, and how long each question to the page took.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from browser import Browser
from stored_runs import plan_of_models, result_of, store_run
from upskill import Result, Trial, open_store
from upskill.reports.evaluated import report_evaluation
from upskill.reports.html import render
from upskill.runs.results.evaluation import evaluation_of

WORDS = (Path(__file__).parent.parent / "docs" / "concepts.md").read_text(encoding="utf-8").split()
RUNS = 5


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
            page = render(report_evaluation(evaluation_of(store, run), store=store))
        took = time.perf_counter() - begun
        file = place / "report.html"
        file.write_text(page, encoding="utf-8")
        print(f"{len(plan):,} trials: {len(page) / 1e6:.2f} MB, written in {took:.1f} s")
        browser = Browser()
        seconds = browser.run(measure, file.as_uri())
        browser.close()
    for question, took in seconds.items():
        print(f"{question:<10} {took:6.2f} s")


def measure(page: Any) -> dict[str, float]:
    """Seconds until the page has answered, and laid itself out again."""
    found: dict[str, float] = {}

    def time_it(question: str, ask: Callable[[], object]) -> None:
        begun = time.perf_counter()
        ask()
        page.evaluate("document.body.offsetHeight")
        found[question] = time.perf_counter() - begun

    filters = page.locator(".filters")
    time_it("opening", page.reload)
    time_it("filtering", lambda: filters.locator("[name=model]").select_option(index=1))
    time_it("searching", lambda: filters.locator("[name=text]").fill("nothing says this"))
    time_it("ordering", lambda: filters.locator("[name=order]").select_option("suite"))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
