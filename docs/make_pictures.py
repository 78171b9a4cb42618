"""Makes the pictures of README and docs, in docs/pictures: `make pictures`.

The figures are measured ones: examples/recorded has what three embedded models answered, and everything is graded and
computed from that anew, so no model is asked. With Chromium on this machine, screenshots of the report and the live
page are made too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import experiment_pictures
import kernel_pictures

from upskill.reports.svg import lift, pass_rates

ROOT = Path(__file__).resolve().parent.parent
PICTURES, RECORDED = ROOT / "docs" / "pictures", ROOT / "examples" / "recorded"
# What is shown, in the order of the table in docs/results.md: recording -> skill, suite, and what it is.
SHOWN = {
    "kernel-builder-cuda-kernels": (
        "kernel-builder-cuda-kernels",
        "suite",
        "look-up form, 48 cases",
    ),
    "kernel-builder": ("kernel-builder", "suite", "ordinary prose, 30 cases"),
    "tern-deploy": ("tern-deploy", "suite", "look-up form, 20 cases"),
    "tern-questions": ("tern", "questions", "ordinary prose, 26 direct questions"),
    "tern": ("tern", "suite", "ordinary prose, 24 tasks that combine facts"),
    "house-commit-messages": ("house-commit-messages", "suite", "look-up form, 20 cases"),
    "pidgin-language": ("pidgin-language", "suite", "a skill where it does not belong, 36 cases"),
}
FIRST = "kernel-builder-cuda-kernels"  # the one that the README begins with
MODELS = {
    "local:smollm2-135m": "SmolLM2 135M",
    "local:qwen2.5-coder-0.5b": "Qwen2.5-Coder 0.5B",
    "local:qwen2.5-coder-1.5b": "Qwen2.5-Coder 1.5B",
}


def upskill(*given: object) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "upskill", *map(str, given)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def arguments(name: str) -> list[object]:
    """What `eval` is given to measure a recording anew."""
    skill, suite, _ = SHOWN[name]
    folder = ROOT / "examples" / skill
    return [
        folder,
        "-t",
        folder / "evals" / f"{suite}.yaml",
        "--replay",
        RECORDED / f"{name}.jsonl.gz",
        "--json",
    ]


def drawn(documents: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The pictures, by the names of their files, from the `--json` document of each recording."""
    named = {
        name: [model | {"model": MODELS[model["model"]]} for model in document["models"]]
        for name, document in documents.items()
    }
    every = [
        model | {"model": f"{model['model']}, {name}"}
        for name, models in named.items()
        for model in models
    ]
    rates = pass_rates(documents[FIRST] | {"models": named[FIRST]})
    rates.paragraph("48 cases about building CUDA kernels, one run each.")
    return {
        "pass-rates.svg": rates.svg(),
        "lift.svg": lift({"skill": {"name": "the examples"}, "models": every}).svg(),
    }


@contextmanager
def view() -> Generator[str]:
    """The live page of ./runs; its address."""
    command = [sys.executable, "-m", "upskill", "view", "--no-browser", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stdout)))
        try:
            yield found[0]
        finally:
            process.terminate()


def take_screenshots(run: str) -> None:
    """The report and the live page of ./runs as a reader sees them first."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the extra `dev`

    program = shutil.which("chromium")
    if program is None:
        print("Chromium is not installed, so no screenshots were made.", file=sys.stderr)
        return
    upskill("report", run, "-o", "report.html")
    report = Path("report.html").resolve().as_uri()
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with view() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        for name, url, height in (
            ("report", report, 740),
            ("live", address, 660),
        ):
            page = browser.new_page(
                viewport={"width": 1280, "height": height}, color_scheme="light"
            )
            page.goto(url)
            page.wait_for_selector("html[data-ready]", state="attached")
            page.screenshot(path=PICTURES / f"{name}.png")
            page.close()
        browser.close()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # for ./runs
        documents = {
            name: json.loads(upskill("eval", *arguments(name))) for name in reversed(SHOWN)
        }
        found = drawn({name: documents[name] for name in SHOWN})
        PICTURES.mkdir(exist_ok=True)
        for name, svg in (found | kernel_pictures.drawn() | experiment_pictures.drawn()).items():
            (PICTURES / name).write_text(f"{svg}\n", encoding="utf-8")
        take_screenshots(documents[FIRST]["run"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
