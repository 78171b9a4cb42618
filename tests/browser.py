"""A real browser for the tests: the system's Chromium, driven by Playwright in a thread of its own.

Playwright's loop would be in the way of `asyncio.run` in the thread of the tests, so what is done with a page is a
function that runs over there:

    def test_a_page(browser: Browser) -> None:
        assert browser.run(lambda page: page.title(), url) == "upskill"

Afterwards nothing may have been logged as an error and nothing fetched from elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any, Literal, TypeVar

import pytest

Scheme = Literal["light", "dark"]
Answer = TypeVar("Answer")
PATIENCE = 600_000  # milliseconds; a busy machine takes its time
SCREENS: dict[str, tuple[int, int]] = {"desktop": (1280, 800), "phone": (390, 844)}
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


class Browser:
    """One browser for all tests. Each run has a page of its own, with no history and nothing stored."""

    def __init__(self) -> None:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

        self._thread = ThreadPoolExecutor(1, "browser")
        self._playwright: Any = self._thread.submit(lambda: sync_playwright().start()).result()
        # Chromium's own sandbox does not start as root.
        arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        chromium = self._playwright.chromium
        self._browser: Any = self._thread.submit(
            chromium.launch, executable_path=CHROMIUM, args=arguments, timeout=PATIENCE
        ).result()

    def run(
        self,
        use: Callable[[Any], Answer],
        url: str,
        *,
        screen: str = "desktop",
        scheme: Scheme = "light",
        scripts: bool = True,
    ) -> Answer:
        """What a function finds on the page at a URL, once its script has run."""

        def visit() -> Answer:
            width, height = SCREENS[screen]
            context = self._browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                java_script_enabled=scripts,
            )
            context.set_default_timeout(PATIENCE)
            try:
                page = context.new_page()
                problems = _watch(page, url)
                page.goto(url)
                page.wait_for_selector("html[data-ready]" if scripts else "html", state="attached")
                found = use(page)
                assert not problems, "\n".join(problems)
                return found
            finally:
                context.close()

        return self._thread.submit(visit).result()

    def close(self) -> None:
        def stop() -> None:
            self._browser.close()
            self._playwright.stop()

        self._thread.submit(stop).result()
        self._thread.shutdown()


def _watch(page: Any, url: str) -> list[str]:
    """What goes wrong on a page from now on: errors, and requests to elsewhere."""
    problems: list[str] = []

    def logged(said: Any) -> None:
        if said.type == "error":
            problems.append(said.text)

    def raised(error: Any) -> None:
        problems.append(str(error))

    def asked(request: Any) -> None:
        if _is_elsewhere(request.url, url):
            problems.append(request.url)

    page.on("console", logged)
    page.on("pageerror", raised)
    page.on("request", asked)
    return problems


def _is_elsewhere(asked: str, url: str) -> bool:
    if asked.startswith(("data:", "blob:", "about:")):
        return False
    if url.startswith("file:"):
        return asked.partition("#")[0] != url.partition("#")[0]
    return asked.split("/")[2] != url.split("/")[2]


def wait_for_text(page: Any, selector: str, text: str) -> None:
    """Wait until the whole text of an element is this one. (Playwright's own waiting for a condition is a script that
    a strict policy refuses.)"""
    page.locator(selector).filter(has_text=re.compile(f"^{re.escape(text)}$")).wait_for()


def accessibility_problems(page: Any) -> list[str]:
    """What axe-core calls serious or critical, with the first place of each."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def overflowing(page: Any) -> list[str]:
    """What makes the page wider than the screen, and texts that are cut where nothing scrolls."""
    return page.evaluate(
        """() => {
          const found = [];
          const width = document.documentElement.scrollWidth;
          if (width > innerWidth) found.push(`the page: ${width}`);
          for (const node of document.querySelectorAll("h1, h2, h3, p, li, button, a, th, td, label, legend")) {
            const box = node.getBoundingClientRect();
            const outside = box.width && (box.right > innerWidth + 1 || box.left < -1);
            if (outside && !node.closest(".scroll, .menu, .skill, .hidden") && !node.matches(".skip"))
              found.push(`${node.tagName} ${node.className}: ${node.textContent.slice(0, 80)}`);
          }
          return found;
        }"""
    )


def launch() -> Generator[Browser]:
    """For the fixture of the session; skips where there is no Chromium."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    pytest.importorskip("playwright", reason="Playwright is not installed")
    browser = Browser()
    yield browser
    browser.close()
